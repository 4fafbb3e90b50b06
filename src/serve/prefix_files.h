// SPDX-License-Identifier: MIT
// Kept texts on disk, in one folder for all models: they outlive the server. A file is a saved
// sequence (docs/sequence-format.md), which knows its model, its weights and the choices it was
// computed with; its name has a number for all of them, so that others' files are left alone and
// never written over. When the folder holds more than it may, the file that was used longest ago
// goes, also one of another server.
//
// Thread rule: the engine thread. Several servers may share a folder: files appear whole, and one
// that is gone or damaged when it is asked for is as if it had never been there.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "engine/engine.h"
#include "serve/prefix_match.h"

namespace moestro {

class PrefixFiles {
 public:
  // Looks at what is there for the engine's keys and values (Engine::kv_origin()) and for `key`,
  // anything else that must be equal for texts to be worth keeping (a chat template's hash).
  // `folder` empty or most_bytes 0: keeps nothing. Files that cannot be read, and those of this
  // model's header that are of other weights, choices or versions, are left alone, and said in the
  // log.
  PrefixFiles(Engine& engine, std::string folder, std::string key, uint64_t most_bytes);

  // As KeptPrefixes::Find().
  std::optional<PrefixMatch> Find(std::span<const Token> tokens, uint32_t most);
  // Its sequence. Errors as Engine::RestoreSequence(); a file that cannot be read is forgotten, a
  // damaged one removed. kInvalidRequest: no room in the KV cache.
  Result<Sequence> Restore(const PrefixMatch& match);
  uint32_t length(const PrefixMatch& match) const {
    return static_cast<uint32_t>(entries_[match.index].tokens.size());
  }
  // Writes one; files that are its beginning go. Errors: kIo, and nothing has changed. A text that
  // some file begins with is there already.
  Status Save(const Sequence& sequence);

  bool is_on() const { return !folder_.empty(); }
  uint64_t bytes() const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string path;
    std::vector<Token> tokens;
    uint64_t bytes = 0;
  };
  void TurnOff(const std::string& why);
  bool Refresh();  // of entries_, if the engine's origin is another one
  void Scan();
  void Forget(size_t index, bool removes);
  void MakeRoom();

  Engine& engine_;
  std::string folder_;
  std::string key_;
  KvOrigin origin_;          // of what the files hold
  std::string model_begin_;  // of the names of files of this model's header
  std::string begin_;        // of our files' names
  uint64_t most_bytes_;
  std::vector<Entry> entries_;
};

}  // namespace moestro
