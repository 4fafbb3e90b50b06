// SPDX-License-Identifier: MIT
// What was computed and may begin texts to come: kept texts in the KV cache, the same on disk, and
// prompts that a request's further jobs wait for. It gives way when positions are needed.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "core/ids.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "memory/kv_blocks.h"
#include "serve/kept_prefixes.h"
#include "serve/prefix_files.h"

namespace moestro {

struct PrefixCacheOptions {
  std::string folder = {};  // empty: none on disk
  std::string key = {};     // see PrefixFiles
  uint64_t disk_bytes = 0;
};

class PrefixCache {
 public:
  // What a sequence may take beyond the positions that it goes on by.
  static constexpr uint32_t kSlack = 2 * KvBlocks::kPositions;

  // Engine and clock must outlive this.
  PrefixCache(Engine& engine, const Clock& clock, const PrefixCacheOptions& options);

  // A sequence that has the beginning of the prompt, as much as is kept, but not its last token:
  // the logits of that are gone.
  Sequence Begin(std::span<const Token> prompt);
  // Keeps a text that has ended.
  void Keep(Sequence sequence);
  // See KeptPrefixes.
  std::optional<Sequence> ForkWhole(std::span<const Token> tokens) const {
    return kept_.ForkWhole(tokens);
  }
  bool Drop(std::span<const Token> tokens) { return kept_.Drop(tokens); }

  // Prompts without their last token, each held as long as it is wanted.
  void Hold(Sequence prompt);
  std::optional<Sequence> ForkHeld(std::span<const Token> tokens) const;
  void LetGo(const std::function<bool(std::span<const Token> held)>& is_wanted);

  // So many positions are free, and where layers have states a place for a state of so many texts.
  bool HasRoom(uint32_t positions, uint32_t states) const;
  // Kept and held positions go until so many are free, and a place for a state, or none is left to
  // go.
  void DropFor(uint32_t positions);
  // False: none is left to go. A small text is written to disk first, as it would be at its rest.
  bool DropOne();
  // As DropOne(), but writes nothing and leaves what is held.
  bool DropOldest() { return kept_.DropOldest(); }
  // Writes one text that has rested since `before`; false: there is none.
  bool SaveOne(double before);

  uint32_t texts() const { return static_cast<uint32_t>(kept_.all().size()); }
  uint64_t tokens() const;
  const PrefixFiles& files() const { return files_; }

 private:
  void Save(KeptPrefixes::Kept& kept);

  Engine& engine_;
  const Clock& clock_;
  KeptPrefixes kept_;
  std::vector<Sequence> held_;
  PrefixFiles files_;
  bool has_failed_to_save_ = false;  // the last time
};

}  // namespace moestro
