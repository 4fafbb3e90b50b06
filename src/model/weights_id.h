// SPDX-License-Identifier: MIT
// A number for the weights of a model. Files that hold keys and values, or were made from the
// weights, store this number to show which weights they belong to. Two trainings with the same
// header have two numbers.
//
// Dense tensors count whole. Experts are too many to be read at every start, so a sample counts: a
// block of 4 KiB of each expert's each matrix, of 4,096 matrices where the model has more. So a
// change of a few weights of one expert may go unseen (docs/security.md). The place of a tensor and
// the number of files do not count. The number is no defence against an attacker who seeks a
// collision.
//
// The number is a sum over blocks, so blocks may be hashed in any order by any thread.
// docs/sequence-format.md has the definition to the byte. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/extent.h"
#include "model/low_copies.h"
#include "model/model_file.h"

namespace moestro {

// Dense tensors are hashed in blocks of this size; the last one is shorter.
inline constexpr uint64_t kDenseBlock = uint64_t{1} << 20;
inline constexpr uint64_t kSampleBytes = 4096;
inline constexpr size_t kMostSamples = 4096;

// The part of the sum that `bytes` of a dense tensor add. `offset`: in the tensor, a multiple of
// kDenseBlock. REQUIRES: `bytes` end at such a multiple or with the tensor.
uint64_t DenseSum(std::string_view tensor, uint64_t offset, std::span<const std::byte> bytes);

// A block that counts: HashBlock() of its bytes with this seed is added to the sum.
struct WeightBlock {
  Extent from;
  uint64_t seed = 0;
};
// All dense tensors. Extents index the model's paths.
std::vector<WeightBlock> DenseBlocks(const ModelWeights& weights);
// The sample, by layer.
std::vector<WeightBlock> ExpertBlocks(const ModelWeights& weights);
std::vector<WeightBlock> ExpertBlocks(const LowCopies& low);

// header: Fingerprint() of the file. sum: over all blocks. Never 0.
uint64_t WeightsId(uint64_t header, uint64_t sum);

}  // namespace moestro
