// SPDX-License-Identifier: MIT
// Learned paths as a file; docs/paths-format.md describes every byte. Thread
// rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "core/run_identity.h"
#include "decide/ahead/path_table.h"

namespace moestro {

struct PathFile {
  ModelId model = {};   // has the shape of the table
  uint64_t tokens = 0;  // tokens that the table was learned from
  PathTable table;
  bool operator==(const PathFile&) const = default;
};

// `path` holds the old file or the whole new one, never a part. Gives the file's size.
// kInvalidRequest: the model's name is too long; kIo, naming the file and the reason: nothing is
// left behind then.
Result<uint64_t> WritePaths(const OutputPath& path, const PathFile& paths);

// Trusts nothing in the file: sizes are checked against the file's before memory is allocated, the
// checksum before a row is read. kIo: cannot be read; kUnsupported: a newer format; kInvalidFile:
// not paths, cut short, or damaged. The message names the file and the remedy.
Result<PathFile> ReadPaths(const std::string& path);

// Reads paths for a model. kInvalidRequest, naming both models, if the paths were learned from
// another one; other errors: those of ReadPaths().
Result<std::shared_ptr<const PathTable>> ReadPathsFor(const ModelId& model,
                                                      const std::string& path);

}  // namespace moestro
