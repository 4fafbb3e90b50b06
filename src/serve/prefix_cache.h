// SPDX-License-Identifier: MIT
// Computed texts that may begin later texts: kept texts in the KV cache, kept texts on disk, and
// prompts that further jobs of a request wait for. Kept texts go when positions are needed.
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

#include "base/work_limit.h"
#include "core/ids.h"
#include "engine/engine.h"
#include "engine/sequence.h"
#include "serve/prefix_files.h"
#include "serve/prefix_pool.h"

namespace moestro {

struct PrefixCacheOptions {
  std::string folder = {};  // empty: no text is kept on disk
  std::string key = {};     // see PrefixFiles
  uint64_t disk_bytes = 0;
};

class PrefixCache {
 public:
  // Engine and clock must outlive this.
  PrefixCache(Engine& engine, const Clock& clock, const PrefixCacheOptions& options);

  // A sequence with as much of the prompt's beginning as is kept; it takes one place. The prompt's
  // last token is never included, since the logits after that token are gone.
  Sequence Begin(std::span<const Token> prompt);
  // The number of tokens of the prompt's beginning that a kept text in memory has, whether or not
  // Begin() can use them.
  uint32_t MostInCommon(std::span<const Token> prompt) const {
    return kept_.MostInCommon(prompt, static_cast<uint32_t>(prompt.size() - 1));
  }
  // Keeps a text that has ended, and drops others if no place is left for a new text.
  void Keep(Sequence sequence);
  // See PrefixPool.
  std::optional<Sequence> ForkWhole(std::span<const Token> tokens) const {
    return kept_.ForkWhole(tokens);
  }
  bool Drop(std::span<const Token> tokens) { return kept_.Drop(tokens); }

  // Holds a prompt without the last token, until is_wanted() in LetGo() returns false for that
  // prompt.
  void Hold(Sequence prompt);
  // A fork of a held prompt with these tokens; empty, to be computed from the beginning, if the
  // engine has no place for a fork.
  std::optional<Sequence> ForkHeld(std::span<const Token> tokens) const;
  void LetGo(const std::function<bool(std::span<const Token> held)>& is_wanted);

  // Whether `positions` are free, and so many of the engine's places for sequences.
  bool HasRoom(uint32_t positions, uint32_t places) const;
  // Drops kept and held texts until positions and places are free, or no text is left to drop.
  void DropFor(uint32_t positions, uint32_t places = 1);
  // Drops one text; false: no text is left. A small text is written to disk first, as it would be
  // after a rest.
  bool DropOne();
  // Like DropOne(), if that can free `positions` and places; false: it cannot.
  bool DropOneFor(uint32_t positions);
  // Like DropOneFor(), but writes no file and leaves held prompts alone.
  bool DropOldestFor(uint32_t positions) { return MayHelp(positions) && kept_.DropOldest(); }
  // Writes one text that has rested since `before`; false: no such text.
  bool SaveOne(double before);

  uint32_t texts() const { return static_cast<uint32_t>(kept_.all().size()); }
  uint64_t tokens() const;
  const PrefixFiles& files() const { return files_; }

 private:
  bool MayHelp(uint32_t positions) const;
  void Save(PrefixPool::CachedPrefix& kept);

  Engine& engine_;
  const Clock& clock_;
  PrefixPool kept_;
  std::vector<Sequence> held_;
  PrefixFiles files_;
  bool has_failed_to_save_ = false;  // the last time
};

}  // namespace moestro
