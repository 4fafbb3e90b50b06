// SPDX-License-Identifier: MIT
// Learned paths as a file beside their model; docs/paths-format.md describes every byte. Thread
// rule: none, calls share nothing but the file system.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "decide/path_table.h"

namespace moestro {

// Identifies the model a file was made for.
struct ModelMark {
  std::string name = {};  // at most 4096 bytes; empty: unknown
  uint64_t id = 0;        // fingerprint; 0: unknown
  PathShape shape;

  // Same shape, and no fingerprints that are known and differ. Names may change.
  bool matches(const ModelMark& other) const {
    return shape == other.shape && (id == other.id || id == 0 || other.id == 0);
  }
  std::string text() const;  // for messages
};

struct PathFile {
  std::string model = {};  // its name, at most 4096 bytes; empty: unknown
  uint64_t model_id = 0;   // fingerprint; 0: unknown
  uint64_t tokens = 0;     // that were learned from
  PathTable table;
  bool operator==(const PathFile&) const = default;

  ModelMark mark() const { return {.name = model, .id = model_id, .shape = table.shape()}; }
};

// The name that the paths of a model have by default: "MODEL.paths".
std::string PathsNameOf(const std::string& model);

// `path` holds the old file or the whole new one, never a part. Gives the file's size.
// kInvalidRequest: the model's name is too long; kIo, naming the file and the reason: nothing is
// left behind then.
Result<uint64_t> WritePaths(const std::string& path, const PathFile& paths);

// Nothing in the file is trusted: sizes are checked against the file's before memory is asked for,
// the checksum before a row is looked at. kIo: cannot be read; kUnsupported: a newer format;
// kInvalidFile: not paths, cut short, or damaged. The message names the file and the remedy.
Result<PathFile> ReadPaths(const std::string& path);

// kInvalidRequest, naming both, if `paths` (read from `path`) were not learned from `model`.
Status CheckPathsFit(const PathFile& paths, const std::string& path, const ModelMark& model);

}  // namespace moestro
