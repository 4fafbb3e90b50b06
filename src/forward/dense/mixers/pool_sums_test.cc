// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/pool_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "compute/cpu_device.h"
#include "forward/dense/placed_tensors_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kPoolOf = 4;
constexpr uint32_t kPoolValues = 70;  // more than a thread takes at a time
constexpr size_t kPoolRows = 14;      // three pools and a part

struct PoolInputs {
  uint32_t n_shares = 1;
  std::vector<float> values = {};  // [row][n_shares * kPoolValues]
  std::vector<float> gates = {};
  std::vector<float> bias = {};  // [place][n_shares * kPoolValues]
  size_t width() const { return size_t{n_shares} * kPoolValues; }
};

PoolInputs RandomPools(uint32_t n_shares) {
  std::mt19937 random(n_shares);
  std::normal_distribution<float> normal;
  const auto of = [&](size_t n, float deviation) {
    std::vector<float> values(n);
    for (float& x : values) x = deviation * normal(random);
    return values;
  };
  PoolInputs in{.n_shares = n_shares};
  in.values = of(kPoolRows * in.width(), 1.0F);
  in.gates = of(kPoolRows * in.width(), 3.0F);
  in.bias = of(kPoolOf * in.width(), 1.0F);
  return in;
}

// The key of pool `pool` in plain loops.
double PlainKey(const PoolInputs& in, size_t pool, uint32_t i) {
  double weights = 0.0;
  double sum = 0.0;
  const auto add = [&](size_t row, size_t column) {
    const double gate =
        double{in.gates[row * in.width() + column]} + in.bias[row % kPoolOf * in.width() + column];
    weights += std::exp(gate);
    sum += std::exp(gate) * in.values[row * in.width() + column];
  };
  for (size_t row = pool * kPoolOf; row < (pool + 1) * kPoolOf; ++row) {
    add(row, in.width() - kPoolValues + i);
    if (in.n_shares > 1 && pool > 0) add(row - kPoolOf, i);
  }
  return sum / weights;
}

// Computes the rows in pieces of these lengths. Each piece begins with the state that the one
// before it left, which lies in another place each time.
std::vector<float> ComputePools(const PoolInputs& in, std::span<const size_t> pieces,
                                uint32_t threads) {
  const uint32_t n_values = PooledAttentionSpec::kSums * in.n_shares * kPoolValues;
  StateStore states = *StateStore::Allocate({.layers = {{.state_values = n_values + 3}}}, 2);
  for (const uint32_t slot : {0U, 1U}) std::ranges::fill(states.all(StateSlot{slot}), 7.0F);
  PoolSums sums({.n_pool = kPoolOf, .n_shares = in.n_shares, .n = kPoolValues, .first_value = 3},
                nullptr);
  CpuDevice device = *CpuDevice::Open(threads);
  std::vector<float> all;
  uint32_t at = 0;
  std::optional<StateSlot> from;
  for (const size_t n : pieces) {
    const StateSlot to{from && from->value == 0 ? 1U : 0U};
    std::vector<RowCells> visible;
    std::vector<RowState> rows;
    for (uint32_t i = 0; i < n; ++i) {
      visible.push_back({.runs = {}, .n_positions = at + i + 1});
      rows.push_back({.from = i == 0 ? from : to, .to = to});
    }
    const auto part = [&](const std::vector<float>& whole) {
      return std::span(whole).subspan(at * in.width(), n * in.width());
    };
    GraphArena arena(device.backend(), 16);
    ggml_context* ctx = arena.Begin();
    PlacedTensors placed(ctx, 1 << 16);
    const auto width = static_cast<int64_t>(in.width());
    ggml_tensor* keys =
        sums.Node(ctx, placed.Input(width, part(in.values)), placed.Input(width, part(in.gates)),
                  placed.Input(width, in.bias));
    ggml_build_forward_expand(arena.graph(), placed.Place(keys));
    sums.Bind(0, visible, rows, states);
    EXPECT_TRUE(arena.Run());
    const auto* first = static_cast<const float*>(keys->data);
    all.insert(all.end(), first, first + ggml_nelements(keys));
    at += static_cast<uint32_t>(n);
    from = to;
  }
  return all;
}

TEST(PoolSums, AgreeWithPlainLoops) {
  for (const uint32_t n_shares : {1U, 2U}) {
    const PoolInputs in = RandomPools(n_shares);
    const std::vector<float> keys = ComputePools(in, std::array{kPoolRows}, 2);
    ASSERT_EQ(keys.size(), kPoolRows * kPoolValues);
    for (size_t row = 0; row < kPoolRows; ++row) {
      for (uint32_t i = 0; i < kPoolValues; ++i) {
        const bool ends = row % kPoolOf == kPoolOf - 1;
        EXPECT_NEAR(keys[row * kPoolValues + i], ends ? PlainKey(in, row / kPoolOf, i) : 0.0,
                    ends ? 1e-5 : 0.0)
            << n_shares << " shares, row " << row;
      }
    }
  }
}

TEST(PoolSums, PiecesAndThreadsLeaveTheBits) {
  for (const uint32_t n_shares : {1U, 2U}) {
    const PoolInputs in = RandomPools(n_shares);
    const std::vector<float> whole = ComputePools(in, std::array{kPoolRows}, 1);
    EXPECT_EQ(ComputePools(in, std::array<size_t, 4>{1, 5, 2, 6}, 3), whole);
    EXPECT_EQ(ComputePools(in, std::vector<size_t>(kPoolRows, 1), 2), whole);
  }
}

}  // namespace
}  // namespace moestro
