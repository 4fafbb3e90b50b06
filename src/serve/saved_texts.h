// SPDX-License-Identifier: MIT
// Texts that clients save under names of their own, in one folder. A file is a saved sequence
// (docs/sequence-format.md) with the same note as a prefix on disk, so it is for one model and one
// chat template. Nothing here removes a file.
//
// Errors: 404, there is no such file; 400, it is damaged, foreign or too long for this server; 500,
// the system does not read or write it.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <string>

#include "api/api_error.h"
#include "engine/engine.h"

namespace moestro {

class SavedTexts {
 public:
  // `key`: see PrefixFiles.
  SavedTexts(Engine& engine, std::string folder, std::string key, uint32_t most_files);

  // `name` is a plain one (api/place_bodies.h). Replaces a file of that name when it is complete.
  // Gives its bytes. 400 for another one when there are as many as may be.
  ApiResult<uint64_t> Save(const Sequence& sequence, const std::string& name);
  // Tokens of what Restore() would give, above 0.
  ApiResult<uint32_t> Length(const std::string& name) const;
  ApiResult<Sequence> Restore(const std::string& name);
  uint64_t BytesOf(const std::string& name) const;

 private:
  ApiStatus CheckNumber(const std::string& name) const;
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  Engine& engine_;
  std::string folder_;
  std::string key_;
  uint32_t most_files_;
};

}  // namespace moestro
