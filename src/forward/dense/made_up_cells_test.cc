// SPDX-License-Identifier: MIT
#include "forward/dense/made_up_cells.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace moestro {
namespace {

constexpr uint32_t kCells = 3000;

ModelSpec Spec() {
  ModelSpec spec;
  spec.n_layer = 2;
  spec.n_head_kv = 1;
  spec.head_dim_k = 16;
  spec.head_dim_v = 8;
  return spec;
}

KvCache Filled(std::span<const CellRun> cells, uint64_t seed) {
  auto kv = KvCache::Allocate(Spec(), kCells);
  EXPECT_TRUE(kv) << kv.error().message;
  EXPECT_TRUE(MakeUpCells(*kv, cells, seed));
  return std::move(*kv);
}

std::vector<Half> Keys(const KvCache& kv, uint32_t layer) {
  std::vector<Half> keys(size_t{kCells} * 16);
  EXPECT_TRUE(kv.Read(layer, KvCache::Part::kKeys, 0, std::as_writable_bytes(std::span(keys))));
  return keys;
}

TEST(MakeUpCells, NumbersAreOrdinaryAndOthersStayAsTheyAre) {
  const std::vector<CellRun> cells = {{.first = 0, .count = 1100}, {.first = 2000, .count = 900}};
  const KvCache kv = Filled(cells, 1);
  for (uint32_t layer = 0; layer < 2; ++layer) {
    const std::vector<Half> keys = Keys(kv, layer);
    double sum = 0.0;
    double squares = 0.0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const double x = ggml_fp16_to_fp32(keys[i]);
      ASSERT_TRUE(std::abs(x) <= 6.0);
      const size_t cell = i / 16;
      if (cell >= 1100 && cell < 2000) {
        ASSERT_EQ(x, 0.0) << cell;  // fresh memory
      }
      sum += x;
      squares += x * x;
    }
    EXPECT_NEAR(sum / (2000.0 * 16), 0.0, 0.05);
    EXPECT_NEAR(squares / (2000.0 * 16), 1.0, 0.05);
  }
}

TEST(MakeUpCells, ASeedGivesTheSameNumbersAndCellsDiffer) {
  const std::vector<CellRun> cells = {{.first = 0, .count = kCells}};
  const std::vector<Half> keys = Keys(Filled(cells, 1), 0);
  EXPECT_EQ(keys, Keys(Filled(cells, 1), 0));
  EXPECT_NE(keys, Keys(Filled(cells, 2), 0));
  EXPECT_NE(keys, Keys(Filled(cells, 1), 1));
  EXPECT_NE(std::vector(keys.begin(), keys.begin() + 16),
            std::vector(keys.begin() + 16, keys.begin() + 32));
}

}  // namespace
}  // namespace moestro
