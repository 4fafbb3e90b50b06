// SPDX-License-Identifier: MIT
#include "native/dense_model.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro {
namespace {

BatchRow Row(uint32_t sequence, uint32_t position, bool wants_logits) {
  return {.sequence = {sequence}, .position = position, .wants_logits = wants_logits};
}

TEST(DenseReads, OfAPassOnHandMadeNumbers) {
  const DenseReads reads{.weights = 1000, .head = 500, .embedding = 10, .position = 3};
  EXPECT_EQ(reads.OfPass(std::vector{Row(0, 0, false)}), 1000U + 10 + 3);
  EXPECT_EQ(reads.OfPass(std::vector{Row(0, 99, true)}), 1000U + 500 + 10 + 300);
  // Two sequences read weights once, each its own positions.
  EXPECT_EQ(reads.OfPass(std::vector{Row(0, 9, true), Row(1, 19, true)}),
            1000U + 500 + 20 + 30 + 60);
  // Rows of one sequence look at the same positions.
  EXPECT_EQ(reads.OfPass(std::vector{Row(0, 9, false), Row(0, 10, true)}), 1000U + 500 + 20 + 33);
}

TEST(DenseReads, OfAModelIsEveryDenseTensorOnce) {
  const auto tensor = [](uint64_t bytes) {
    TensorInfo info;
    info.extent.length = bytes;
    return info;
  };
  const TensorInfo table = tensor(5120);
  const TensorInfo output = tensor(2560);
  const TensorInfo norm = tensor(40);
  ModelSpec spec;
  spec.layers.assign(2, {.mixer = AttentionSpec{.n_head_kv = 2, .head_dim_k = 64, .head_dim_v = 32},
                         .feed_forward = {}});
  spec.n_vocab = 512;
  ModelWeights weights;
  weights.token_embd = &table;
  weights.output = &output;
  weights.layers.resize(2);
  for (LayerWeights& layer : weights.layers) layer.attn_norm = &norm;  // one for both
  const DenseReads reads = DenseReads::Of(weights, spec, *MemoryShape::Of(spec, KvType::kF16));
  EXPECT_EQ(reads.weights, 40U);
  EXPECT_EQ(reads.head, 2560U);
  EXPECT_EQ(reads.embedding, 10U);
  EXPECT_EQ(reads.position, 2U * (128 + 64) * 2);
  EXPECT_EQ(DenseReads::Of(weights, spec, *MemoryShape::Of(spec, KvType::kQ8)).position,
            2U * (4 + 2) * 34);

  spec.tied_output = true;
  weights.output = &table;
  const DenseReads of_tied = DenseReads::Of(weights, spec, *MemoryShape::Of(spec, KvType::kF16));
  EXPECT_EQ(of_tied.weights, 40U);
  EXPECT_EQ(of_tied.head, 5120U);
}

}  // namespace
}  // namespace moestro
