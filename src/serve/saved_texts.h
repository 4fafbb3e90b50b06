// SPDX-License-Identifier: MIT
// Texts that clients save under names of their own, in one folder. A file is a saved sequence
// (docs/sequence-format.md) with the same note as a prefix on disk. So a file is for one model and
// one chat template. The server never removes a file.
//
// Errors: 404, no file has this name; 400, the file is damaged, of another model or too long for
// this server; 500, the system cannot read or write the file.
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

  // Saves a text and returns the file's bytes. `name` is a plain name (api/server_bodies.h). The
  // new file replaces a file of the same name once it is complete. 400: the name is new, and the
  // folder has most_files; a file of this name exists and is no saved text.
  ApiResult<uint64_t> Save(const Sequence& sequence, const std::string& name);
  // The number of tokens of the file's text, above 0.
  ApiResult<uint32_t> Length(const std::string& name) const;
  ApiResult<Sequence> Restore(const std::string& name);
  uint64_t BytesOf(const std::string& name) const;

 private:
  ApiStatus CheckNumber(const std::string& name) const;
  ApiStatus CheckMayReplace(const std::string& name) const;
  std::string PathOf(const std::string& name) const { return folder_ + "/" + name; }

  Engine& engine_;
  std::string folder_;
  std::string key_;
  uint32_t most_files_;
};

}  // namespace moestro
