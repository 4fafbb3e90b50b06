// SPDX-License-Identifier: MIT
#include "forward/dense/dense_probes.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace moestro {
namespace {

constexpr uint32_t kMadeUpCells = 3000;
constexpr size_t kMadeUpWidth = 64;  // values of a key

// The first layer has a state and no cells.
MemoryShape Shape(KvType type) {
  ModelSpec spec;
  spec.layers.push_back({.mixer = StateSpec{.kind = "sum", .n_values = 8}, .feed_forward = {}});
  spec.layers.resize(
      3, {.mixer = AttentionSpec{.n_head_kv = 1, .head_dim_k = kMadeUpWidth, .head_dim_v = 32},
          .feed_forward = {}});
  return MemoryShape::Of(spec, type).value();
}

KvCache Filled(KvType type, std::span<const CellRun> cells, uint64_t seed) {
  auto kv = KvCache::Allocate(Shape(type), {.all = kMadeUpCells});
  EXPECT_TRUE(kv) << kv.error().message;
  EXPECT_TRUE(MakeUpCells(*kv, cells, {}, seed));
  return std::move(*kv);
}

std::vector<float> Keys(const KvCache& kv, uint32_t layer) {
  std::vector<std::byte> stored(KvBytes(kv.type(), kMadeUpCells * kMadeUpWidth));
  EXPECT_TRUE(kv.Read(layer, KvCache::KvTensor::kKeys, 0, stored));
  std::vector<float> keys(kMadeUpCells * kMadeUpWidth);
  FromCells(kv.type(), stored, keys);
  return keys;
}

class MakeUpCellsTest : public ::testing::TestWithParam<KvType> {};

INSTANTIATE_TEST_SUITE_P(All, MakeUpCellsTest,
                         ::testing::Values(KvType::kF16, KvType::kQ8, KvType::kF32),
                         [](const auto& one) { return std::string(NameOf(one.param)); });

TEST_P(MakeUpCellsTest, NumbersAreOrdinaryAndOthersStayAsTheyAre) {
  const std::vector<CellRun> cells = {{.first = 0, .count = 1100}, {.first = 2000, .count = 900}};
  const KvCache kv = Filled(GetParam(), cells, 1);
  for (const uint32_t layer : {1U, 2U}) {
    const std::vector<float> keys = Keys(kv, layer);
    double sum = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const double x = keys[i];
      ASSERT_TRUE(std::abs(x) <= 6.0);
      const size_t cell = i / kMadeUpWidth;
      if (cell >= 1100 && cell < 2000) {
        ASSERT_EQ(x, 0.0) << cell;  // fresh memory
      }
      sum += x;
      squares += x * x;
    }
    EXPECT_NEAR(sum / (2000.0 * kMadeUpWidth), 0.0, 0.05);
    EXPECT_NEAR(squares / (2000.0 * kMadeUpWidth), 1.0, 0.05);
  }
}

TEST_P(MakeUpCellsTest, ASeedGivesTheSameNumbersAndCellsDiffer) {
  const std::vector<CellRun> cells = {{.first = 0, .count = kMadeUpCells}};
  const KvCache kv = Filled(GetParam(), cells, 1);
  const std::vector<float> keys = Keys(kv, 1);
  EXPECT_EQ(keys, Keys(Filled(GetParam(), cells, 1), 1));
  EXPECT_NE(keys, Keys(Filled(GetParam(), cells, 2), 1));
  EXPECT_NE(keys, Keys(kv, 2));
  EXPECT_NE(std::vector(keys.begin(), keys.begin() + kMadeUpWidth),
            std::vector(keys.begin() + kMadeUpWidth, keys.begin() + 2 * kMadeUpWidth));
}

}  // namespace
}  // namespace moestro
