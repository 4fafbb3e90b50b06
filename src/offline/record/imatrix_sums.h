// SPDX-License-Identifier: MIT
// Sums of the squared inputs of the routed experts' matrices, column by column.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "base/result.h"
#include "core/model_spec.h"
#include "engine/watchers.h"
#include "model/gguf_file.h"
#include "offline/record/imatrix_file.h"
#include "offline/shard_file.h"

namespace moestro {

// The sizes of all sums.
struct ImatrixShape {
  uint32_t n_experts = 0;           // of a layer
  uint32_t n_embd = 0;              // an expert's inputs
  std::vector<uint32_t> n_ff = {};  // [layer with experts]: its products

  static ImatrixShape Of(const ModelSpec& spec);
  uint64_t columns() const;  // of all experts of all layers
};

// Adds up the squared inputs of a model's experts, in F64, so that order and number of parts hardly
// matter. Engine's thread.
class ImatrixSums {
 public:
  explicit ImatrixSums(ImatrixShape shape);
  static uint64_t BytesFor(const ImatrixShape& shape);

  void Add(const SeenExperts& seen);

  const ImatrixShape& shape() const { return shape_; }
  // Sums of a layer with experts.
  struct Layer {
    std::vector<double> inputs;    // [expert][n_embd]
    std::vector<double> products;  // [expert][n_ff]
    std::vector<uint64_t> counts;  // [expert]
  };
  const Layer& layer(size_t l) const { return layers_[l]; }
  Layer& layer(size_t l) { return layers_[l]; }
  bool is_finite() const;  // whether all sums are finite, also in F32, as files have them

 private:
  ImatrixShape shape_;
  std::vector<Layer> layers_;
};

// A tensor of experts, and the place of its sums.
struct ImatrixSlice {
  std::string name;
  Matrix matrix = Matrix::kGate;
  uint32_t layer = 0;  // among the layers with experts
  uint32_t first_expert = 0;
  uint32_t n_experts = 1;
};
// kInvalidFile: the file has other tensors than the spec requires.
Result<std::vector<ImatrixSlice>> PlacesOf(const GgufFile& file, const ModelSpec& spec);
// Views of the sums. Gate and up have the same inputs.
std::vector<ImatrixEntry> EntriesOf(std::span<const ImatrixSlice> places, const ImatrixSums& sums);

// Files of `imatrix --shard`, and the sums of all shards. docs/shards.md describes the bytes.

// Sums of a run over texts, or over a shard of the texts.
struct ImatrixRun {
  ImatrixInfo info = {};  // of the whole run
  std::vector<ImatrixSlice> places = {};
  uint64_t tokens = 0;
  ImatrixSums sums;
};

// Errors: kIo.
Status WriteImatrixShard(const OutputPath& path, const ShardInfo& shard, const ImatrixRun& run);

// Adds up the shards. Counts equal those of the run over the whole texts, and sums do but for their
// rounding to F64. Errors: kInvalidFile, kIo; kInvalidRequest: the shards are of different tensors.
// REQUIRES: the shards are those of FindShards(), of imatrix.
Result<ImatrixRun> MergeImatrix(std::span<const FoundShard> shards);

}  // namespace moestro
