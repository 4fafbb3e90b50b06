// SPDX-License-Identifier: MIT
// Kept texts on disk, in one folder for all models. The files outlive the server. A file is a saved
// sequence (docs/sequence-format.md), which names the model, the weights and the choices that the
// text was computed with. A number for these three is part of the file's name, so that files of
// other models are left alone and never written over. When the folder holds more bytes than it may,
// the file that was used longest ago goes, also a file of another server.
//
// Thread rule: the engine thread. Several servers may share a folder: a file appears when it is
// complete, and a file that is gone or damaged counts as absent.
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
  // Finds the files with the engine's keys and values (Engine::kv_origin()) and with `key`. `key`
  // stands for further conditions of a text's use (a chat template's hash). `folder` empty or
  // most_bytes 0: no file is written. Files that cannot be read are left alone, and so are files of
  // this model's header with other weights, choices or versions; the log names them.
  PrefixFiles(Engine& engine, std::string folder, std::string key, uint64_t most_bytes);

  // Like PrefixPool::Find(), for saved files.
  std::optional<PrefixMatch> Find(std::span<const Token> tokens, uint32_t most);
  // The sequence of the match's file. Errors as Engine::RestoreSequence(). A file that cannot be
  // read is forgotten, a damaged file is removed. kInvalidRequest: the KV cache has no room.
  Result<Sequence> Restore(const PrefixMatch& match);
  // The match's file is not found again until the server starts anew.
  void Ignore(const PrefixMatch& match) { Forget(match.index, false); }
  std::span<const Token> tokens(const PrefixMatch& match) const {
    return entries_[match.index].tokens;
  }
  uint32_t length(const PrefixMatch& match) const {
    return static_cast<uint32_t>(entries_[match.index].tokens.size());
  }
  // Writes a file, unless a file begins with the same text. Files that hold a beginning of the text
  // go. kIo: no file has changed.
  Status Save(const Sequence& sequence);

  bool is_on() const { return !folder_.empty(); }
  uint64_t bytes() const;
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string path;
    std::vector<Token> tokens;
    std::vector<uint32_t> checkpoints;  // see SavedTokens
    uint64_t bytes = 0;
  };
  uint32_t Reach(const Entry& entry, uint32_t n) const;
  void TurnOff(const std::string& why);
  bool Refresh();  // reads entries_ again if the engine's origin has changed
  void Scan();
  void Forget(size_t index, bool removes);
  void MakeRoom();

  Engine& engine_;
  std::string folder_;
  std::string key_;
  KvOrigin origin_;          // origin of the files' values
  std::string model_begin_;  // beginning of the names of files of this model's header
  std::string begin_;        // beginning of our files' names
  uint64_t most_bytes_;
  std::vector<Entry> entries_;
};

}  // namespace moestro
