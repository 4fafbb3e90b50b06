// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/pooled_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"
#include "memory/layer_values.h"

namespace moestro {
namespace {

constexpr uint32_t kPlaces = 4;
constexpr uint32_t kPooledKey = 32;
constexpr uint32_t kPooledCells = 16;

std::vector<float> PooledFloats(size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  return values;
}

// The pool of eight positions in two runs of cells; a row before its end pools nothing.
TEST(PooledKeys, AgreeWithPlainLoops) {
  for (const KvType type : {KvType::kF32, KvType::kF16, KvType::kQ8}) {
    const std::vector<float> cells = PooledFloats(size_t{kPooledCells} * 2 * kPooledKey, 5);
    const std::vector<float> bias = PooledFloats(size_t{kPlaces} * kPooledKey, 6);
    std::vector<std::byte> stored(KvBytes(type, cells.size()));
    ToCells(type, cells, stored);
    std::vector<float> read(cells.size());
    FromCells(type, stored, read);
    const std::vector<float> before = read;
    const std::vector<CellRun> runs = {{.first = 9, .count = 6}, {.first = 2, .count = 3}};
    const std::vector<RowCells> rows = {{.runs = runs, .n_positions = 7},
                                        {.runs = runs, .n_positions = 8},
                                        {.runs = runs, .n_positions = 9}};
    CpuDevice device = *CpuDevice::Open(2);
    auto pools =
        *PooledKeys::Create({.head_dim = kPooledKey, .top_k = 8, .n_pool = kPlaces}, type, 2);
    GraphArena arena(device.backend(), 16);
    ggml_context* ctx = arena.Begin();
    auto buffer = *BackendBuffer::OnHost(1 << 16);
    ggml_tensor* of_places = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kPooledKey, kPlaces);
    buffer.Place(of_places, 0);
    std::memcpy(of_places->data, bias.data(), ggml_nbytes(of_places));
    ggml_tensor* node = pools->Node(ctx, of_places);
    buffer.Place(node, 1 << 12);
    ggml_build_forward_expand(arena.graph(), node);
    pools->Bind({.cells = stored.data(), .visible = rows});
    ASSERT_TRUE(arena.Run());
    FromCells(type, stored, read);

    constexpr uint32_t kMembers[kPlaces] = {13, 14, 2, 3};  // cells of positions 4 to 7
    std::vector<float> expected = before;
    for (uint32_t d = 0; d < kPooledKey; ++d) {
      double weights = 0.0;
      double sum = 0.0;
      for (uint32_t j = 0; j < kPlaces; ++j) {
        const float* cell = &before[size_t{kMembers[j]} * 2 * kPooledKey];
        const double weight = std::exp(double{cell[kPooledKey + d]} + bias[j * kPooledKey + d]);
        weights += weight;
        sum += weight * cell[d];
      }
      expected[size_t{kMembers[kPlaces - 1]} * 2 * kPooledKey + d] =
          static_cast<float>(sum / weights);
    }
    // Values of cells below 4 are rounded to 11 bits, or to 8 of the largest of 32.
    const double tolerance = type == KvType::kF32 ? 1e-5 : type == KvType::kF16 ? 2e-3 : 2e-2;
    for (size_t i = 0; i < expected.size(); ++i) {
      const bool is_pooled =
          i / (2 * kPooledKey) == kMembers[kPlaces - 1] && i % (2 * kPooledKey) < kPooledKey;
      EXPECT_NEAR(read[i], expected[i], is_pooled ? tolerance : 0.0) << "value " << i;
    }
  }
}

}  // namespace
}  // namespace moestro
