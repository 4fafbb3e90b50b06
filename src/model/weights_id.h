// SPDX-License-Identifier: MIT
// A number for the weights of a model, by which what holds keys and values, or was made from the
// weights, tells that it belongs to them. Two trainings with the same header have two.
//
// Dense tensors count whole. Of experts, which are too many to be read at every start, a sample
// counts: a block of 4 KiB of each expert's each matrix, of 4,096 of them where there are more. So
// a change of a few weights of one expert may go unseen (docs/security.md). Where tensors lie does
// not count, nor in how many files. It is no defence against an attacker who wants a collision.
//
// The number is a sum over blocks, so they may be hashed in any order by any thread.
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

// What a part of a dense tensor adds. `offset`: in the tensor, a multiple of kDenseBlock. REQUIRES:
// the part ends at such a multiple or with the tensor.
uint64_t DenseSum(std::string_view tensor, uint64_t offset, std::span<const std::byte> bytes);

// A block that counts: what it adds is HashBlock() of its bytes with this seed.
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
