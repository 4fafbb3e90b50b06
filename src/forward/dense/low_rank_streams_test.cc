// SPDX-License-Identifier: MIT
#include "forward/dense/low_rank_streams.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "compute/cpu_device.h"
#include "forward/dense/placed_tensors_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kNumber = 3;  // of streams
constexpr uint32_t kEach = 48;
constexpr uint32_t kTogether = kNumber * kEach;
constexpr uint32_t kRank = 16;
constexpr float kStreamRms = 1e-3F;
constexpr size_t kTokens = 5;

struct LowRankValues {
  std::vector<float> streams, y;  // [row][..]
  std::vector<float> norm, down, up, inject;
};

LowRankValues RandomLowRank() {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto of = [&](size_t n, float deviation) {
    std::vector<float> values(n);
    for (float& x : values) x = deviation * normal(random);
    return values;
  };
  return {.streams = of(kTokens * kTogether, 2.0F),
          .y = of(kTokens * kEach, 1.0F),
          .norm = of(kTogether, 1.0F),
          .down = of(size_t{kRank} * kTogether, 0.3F),
          .up = of(size_t{kTogether} * kRank, 0.5F),
          .inject = of(size_t{kNumber} * kTogether, 0.3F)};
}

struct LowRankMixed {
  std::vector<float> x, weights, streams, head;
};

LowRankMixed ComputeLowRank(const LowRankValues& v, uint32_t threads) {
  CpuDevice device = *CpuDevice::Open(threads);
  LowRankStreams mix({.mixing = StreamMixing::kLowRank, .n_streams = kNumber, .n_low_rank = kRank},
                     kEach, kStreamRms);
  GraphArena arena(device.backend(), 64);
  ggml_context* ctx = arena.Begin();
  PlacedTensors placed(ctx, 1 << 18);
  LowRankStreams::Weights w{.norm = placed.Input(kTogether, v.norm),
                            .down = placed.Input(kTogether, v.down),
                            .up = placed.Input(kRank, v.up),
                            .inject = placed.Input(kTogether, v.inject)};
  ggml_tensor* streams = placed.Input(kTogether, v.streams);
  const LowRankStreams::Entered entered = mix.Enter(ctx, w, streams);
  ggml_tensor* left = mix.Leave(ctx, placed.Input(kEach, v.y), streams, entered.weights);
  w.inject = nullptr;
  const LowRankStreams::Entered head = mix.Enter(ctx, w, left);
  EXPECT_EQ(head.weights, nullptr);
  for (ggml_tensor* t : {entered.x, entered.weights, left, head.x}) {
    ggml_build_forward_expand(arena.graph(), placed.Place(t));
  }
  EXPECT_TRUE(arena.Run());
  const auto values = [](const ggml_tensor* t) {
    const auto* first = static_cast<const float*>(t->data);
    return std::vector<float>(first, first + ggml_nelements(t));
  };
  return {.x = values(entered.x),
          .weights = values(entered.weights),
          .streams = values(left),
          .head = values(head.x)};
}

double PlainSigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// The formulas in plain loops: a row's mix, and the weights of its results.
struct PlainMix {
  std::vector<double> x = std::vector<double>(kEach);
  std::vector<double> weights = std::vector<double>(kNumber);
};

PlainMix MixPlainly(const LowRankValues& v, const float* streams) {
  std::vector<double> normed(kTogether);
  for (uint32_t s = 0; s < kNumber; ++s) {
    double squares = 0.0;
    for (uint32_t i = 0; i < kEach; ++i) squares += std::pow(streams[s * kEach + i], 2);
    const double rms = std::sqrt(squares / kEach + kStreamRms);
    for (uint32_t i = 0; i < kEach; ++i) {
      normed[s * kEach + i] = streams[s * kEach + i] / rms * v.norm[s * kEach + i];
    }
  }
  std::vector<double> low(kRank);
  for (uint32_t r = 0; r < kRank; ++r) {
    for (uint32_t i = 0; i < kTogether; ++i) low[r] += v.down[r * kTogether + i] * normed[i];
    low[r] /= kNumber;
    low[r] *= PlainSigmoid(low[r]);
  }
  PlainMix mix;
  for (uint32_t i = 0; i < kTogether; ++i) {
    double gate = 0.0;
    for (uint32_t r = 0; r < kRank; ++r) gate += v.up[i * kRank + r] * low[r];
    mix.x[i % kEach] += normed[i] * PlainSigmoid(gate) / kNumber;
  }
  for (uint32_t s = 0; s < kNumber; ++s) {
    double product = 0.0;
    for (uint32_t i = 0; i < kTogether; ++i) product += v.inject[s * kTogether + i] * normed[i];
    mix.weights[s] = 2.0 * PlainSigmoid(product / kNumber);
  }
  return mix;
}

TEST(LowRankStreamsTest, AgreeWithPlainLoops) {
  const LowRankValues v = RandomLowRank();
  const LowRankMixed found = ComputeLowRank(v, 2);
  ASSERT_EQ(found.head.size(), kTokens * kEach);
  for (size_t row = 0; row < kTokens; ++row) {
    const float* streams = &v.streams[row * kTogether];
    const PlainMix mix = MixPlainly(v, streams);
    for (uint32_t i = 0; i < kEach; ++i) EXPECT_NEAR(found.x[row * kEach + i], mix.x[i], 1e-5);
    for (uint32_t s = 0; s < kNumber; ++s) {
      EXPECT_NEAR(found.weights[row * kNumber + s], mix.weights[s], 1e-5);
      for (uint32_t i = 0; i < kEach; ++i) {
        EXPECT_NEAR(found.streams[row * kTogether + s * kEach + i],
                    streams[s * kEach + i] + mix.weights[s] * v.y[row * kEach + i], 1e-4);
      }
    }
    const PlainMix head = MixPlainly(v, &found.streams[row * kTogether]);
    for (uint32_t i = 0; i < kEach; ++i) EXPECT_NEAR(found.head[row * kEach + i], head.x[i], 1e-5);
  }
}

TEST(LowRankStreamsTest, ThreadsAndOtherRowsLeaveTheBits) {
  const LowRankValues v = RandomLowRank();
  const LowRankMixed found = ComputeLowRank(v, 1);
  const LowRankMixed by_three = ComputeLowRank(v, 3);
  EXPECT_EQ(by_three.x, found.x);
  EXPECT_EQ(by_three.streams, found.streams);
  EXPECT_EQ(by_three.head, found.head);
  LowRankValues last = v;
  last.streams.erase(last.streams.begin(), last.streams.end() - kTogether);
  last.y.erase(last.y.begin(), last.y.end() - kEach);
  const LowRankMixed alone = ComputeLowRank(last, 2);
  EXPECT_TRUE(std::ranges::equal(alone.streams, std::span(found.streams).last(kTogether)));
  EXPECT_TRUE(std::ranges::equal(alone.head, std::span(found.head).last(kEach)));
}

}  // namespace
}  // namespace moestro
