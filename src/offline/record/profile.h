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
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "core/run_identity.h"
#include "decide/layer/importance.h"
#include "engine/watchers.h"
#include "learned/learned_tables.h"
#include "learned/path_counter.h"
#include "offline/shard_file.h"

namespace moestro {

// Mean lengths of the experts' outputs, measured while a model reads texts: for the importance
// "score-norm".

// Keeps one sum for each window, and adds the sums in the order of the text: the means are the same
// to the bit, whether one run read all windows or several shared them.
class OutputNorms {
 public:
  // n_embd: the width of an expert's output, ModelSpec::n_embd_expert(). `keeps_windows`: for
  // windows().
  OutputNorms(const MoeShape& shape, uint32_t n_embd, bool keeps_windows = false);

  void Add(const SeenExperts& seen);
  void EndWindow();  // later rows belong to the next window
  // An expert that no row visited has its layer's mean; 1 where no expert of a layer was visited.
  ExpertNorms Mean() const;

  // windows(): for each window that ended, [layer][expert], the sums of lengths. counts(): the rows
  // of all windows together that came to each expert.
  std::span<const std::vector<double>> windows() const { return windows_; }
  std::span<const uint64_t> counts() const { return counts_; }
  // Add another run's windows and counts. REQUIRES: no window is begun; as many values as experts
  // of all layers.
  void AddWindow(std::span<const double> sums);
  void AddCounts(std::span<const uint64_t> counts);

 private:
  MoeShape shape_;
  uint32_t n_embd_;
  bool keeps_windows_;
  std::vector<double> sums_;    // [layer][expert], of windows that ended
  std::vector<double> window_;  // sums of the window that is read
  std::vector<std::vector<double>> windows_;
  std::vector<uint64_t> counts_;  // [layer][expert]
};

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
