// SPDX-License-Identifier: MIT
#include "model/weights_id.h"

#include <algorithm>

#include "base/hash.h"

namespace moestro {
namespace {

uint64_t DenseSeed(std::string_view tensor, uint64_t offset) {
  Fnv1a hash;
  hash.Add(tensor);
  hash.AddNumber(offset / kDenseBlock);
  return hash.value();
}

// The seed of an expert's sample; `layer` counts layers with experts.
uint64_t SampleSeed(uint64_t layer, uint64_t matrix, uint64_t expert) {
  Fnv1a hash;
  hash.Add("expert");
  hash.AddNumber(layer);
  hash.AddNumber(matrix);
  hash.AddNumber(expert);
  return hash.value();
}

// A block of 4 KiB of the matrix, chosen by `seed`. Blocks are counted from the beginning of the
// matrix, so that a matrix that begins at a multiple of 4 KiB in the file needs a read of one page.
Extent SampleOf(const Extent& matrix, uint64_t seed) {
  if (matrix.length <= kSampleBytes) return matrix;
  const uint64_t block = seed % (matrix.length / kSampleBytes);
  return {
      .file = matrix.file, .offset = matrix.offset + block * kSampleBytes, .length = kSampleBytes};
}

std::vector<WeightBlock> Sample(std::span<const LayerExperts* const> layers) {
  std::vector<WeightBlock> all;
  for (size_t l = 0; l < layers.size(); ++l) {
    for (size_t m = 0; m < kMatrices; ++m) {
      const std::vector<Extent>& slices = layers[l]->matrices[m].slices;
      for (size_t e = 0; e < slices.size(); ++e) {
        const uint64_t seed = SampleSeed(l, m, e);
        all.push_back({.from = SampleOf(slices[e], seed), .seed = seed});
      }
    }
  }
  const size_t n = std::min(all.size(), kMostSamples);
  // At equal distances, so that every tensor has some.
  for (size_t i = 0; i < n; ++i) all[i] = all[i * all.size() / n];
  all.resize(n);
  return all;
}

}  // namespace

uint64_t DenseSum(std::string_view tensor, uint64_t offset, std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (uint64_t at = 0; at < bytes.size(); at += kDenseBlock) {
    const auto block = bytes.subspan(at, std::min(kDenseBlock, bytes.size() - at));
    sum += HashBlock(block, DenseSeed(tensor, offset + at));
  }
  return sum;
}

std::vector<WeightBlock> DenseBlocks(const ModelWeights& weights) {
  std::vector<WeightBlock> blocks;
  for (const TensorInfo* tensor : weights.dense_tensors()) {
    const Extent& whole = tensor->extent;
    for (uint64_t at = 0; at < whole.length; at += kDenseBlock) {
      blocks.push_back({.from = {.file = whole.file,
                                 .offset = whole.offset + at,
                                 .length = std::min(kDenseBlock, whole.length - at)},
                        .seed = DenseSeed(tensor->name, at)});
    }
  }
  return blocks;
}

std::vector<WeightBlock> ExpertBlocks(const ModelWeights& weights) {
  std::vector<const LayerExperts*> layers;
  for (const LayerWeights& layer : weights.layers) {
    if (!layer.experts.is_empty()) layers.push_back(&layer.experts);
  }
  return Sample(layers);
}

std::vector<WeightBlock> ExpertBlocks(const LowCopies& low) {
  std::vector<const LayerExperts*> layers;
  for (const LayerExperts& layer : low.layers) layers.push_back(&layer);
  return Sample(layers);
}

uint64_t WeightsId(uint64_t header, uint64_t sum) {
  Fnv1a hash;
  hash.AddNumber(header);
  hash.AddNumber(sum);
  return hash.value() != 0 ? hash.value() : 1;
}

}  // namespace moestro
