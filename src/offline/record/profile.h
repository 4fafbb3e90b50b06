// SPDX-License-Identifier: MIT
// Results of `moestro profile` from routing: learned paths, and the lengths of experts' outputs. A
// shard keeps the routing itself; the paths, of which only the most frequent are kept, are learned
// from the routing of all shards. docs/shards.md describes the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/output_path.h"
#include "base/result.h"
#include "core/model_id.h"
#include "learned/learn_paths.h"
#include "learned/path_counter.h"
#include "learned/path_file.h"
#include "offline/record/output_norms.h"
#include "offline/shard/shard_file.h"

namespace moestro {

// Routing to learn from, and its model. Two bytes per expert of a token.
struct RecordedRouting {
  ModelId model;
  PathCounter experts;
  std::optional<OutputNorms> norms = {};  // of texts that the native engine evaluated
};

// Output files of a profile.
struct ProfileFiles {
  OutputPath paths;
  OutputPath norms = {};  // empty: they are not written
};

// Checks the files before recording. kUsage: both would be one file; kIo: one of them is an input.
Status CheckFiles(const ProfileFiles& where);

struct Profile {
  PathFile paths;
  ProfileFiles written = {};  // norms: empty where none were measured
  uint64_t file_bytes = 0;
  size_t held_out = 0;  // tokens
  PathRecall recall = {};
};

// Learns a profile and writes its files. kInvalidRequest without a token; errors: those of
// WritePaths() and WriteNorms().
Result<Profile> LearnProfile(const RecordedRouting& routing, const ModelId& model,
                             const ProfileFiles& where);

// Errors: kIo. REQUIRES: the norms keep their windows, of which the shard has as many.
Status WriteProfileShard(const OutputPath& path, const ShardInfo& shard,
                         const RecordedRouting& routing);
// Returns the routing of the run over the whole text, and its norms, to the bit. Errors:
// kInvalidFile, kIo. REQUIRES: the shards are those of FindShards(), of profile.
Result<RecordedRouting> MergeProfile(std::span<const FoundShard> shards);

}  // namespace moestro
