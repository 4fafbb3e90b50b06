// SPDX-License-Identifier: MIT
// Tables learned from a model's runs, as binary files beside it: paths of experts, and lengths of
// their outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/output_file.h"
#include "base/result.h"
#include "core/run_identity.h"
#include "decide/ahead/path_table.h"
#include "decide/layer/importance.h"
#include "learned/path_counter.h"
#include "trace/trace.h"

namespace moestro {

// Learned paths as a file; docs/paths-format.md describes every byte. Thread
// rule: none, calls share nothing but the file system.

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

// Learns paths from recorded routing, and measures their recall.

// A range of tokens; `end` is excluded. REQUIRES: begin <= end <= number of tokens.
struct TokenRange {
  size_t begin = 0;
  size_t end = 0;
};

// Adds the first `most` tokens of a trace, or all it has; prefill and decode tokens alike.
// REQUIRES: same shape.
void CountTrace(const Trace& trace, size_t most, PathCounter& counter);

// Share of a layer's experts among K predicted, over all layers but a stack's first; 0 without any.
struct PathRecall {
  double paths = 0.0;    // by the experts of the two layers before
  double popular = 0.0;  // the table's most popular experts
  double repeat = 0.0;   // by the experts of the token before
};
PathRecall MeasurePaths(const PathTable& table, const PathCounter& routing, TokenRange range);

// Mean lengths of experts' outputs as a file beside their model; docs/norms-format.md describes
// every byte. Thread rule: none, calls share nothing but the file system.

struct NormsFile {
  ModelId model = {};   // has the shape of the norms
  uint64_t tokens = 0;  // tokens that were measured
  ExpertNorms norms;
};

// `path` holds the old file or the whole new one, never a part. kIo, naming the file.
Status WriteNorms(const OutputPath& path, const NormsFile& norms);

// Trusts nothing in the file. kIo: cannot be read; kUnsupported: a newer format; kInvalidFile: no
// norms, cut short, damaged, or a value that is not a length. The message names the file.
Result<NormsFile> ReadNorms(const std::string& path);

// Reads norms for a model. kInvalidRequest, naming both models, if the norms were measured on
// another one; other errors: those of ReadNorms().
Result<std::shared_ptr<const ExpertNorms>> ReadNormsFor(const ModelId& model,
                                                        const std::string& path);

}  // namespace moestro
