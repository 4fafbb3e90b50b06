// SPDX-License-Identifier: MIT
#include "forward/dense/hyper_connections.h"

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

constexpr uint32_t kStreams = 4;
constexpr uint32_t kStreamWidth = 48;
constexpr uint32_t kStreamValues = kStreams * kStreamWidth;
constexpr uint32_t kStreamIterations = 5;
constexpr uint32_t kStreamMixes = kStreams * (2 + kStreams);
constexpr float kStreamRmsEps = 1e-3F;
constexpr float kStreamEps = 1e-2F;
constexpr size_t kStreamRows = 5;

struct StreamValues {
  std::vector<float> streams;  // [row][stream][value]
  std::vector<float> y;        // [row][value]
  std::vector<float> matrix;   // [weight][kStreamValues]
  std::vector<float> base, scale;
};

StreamValues RandomStreams() {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto of = [&](size_t n, float deviation) {
    std::vector<float> values(n);
    for (float& x : values) x = deviation * normal(random);
    return values;
  };
  return {.streams = of(kStreamRows * kStreamValues, 3.0F),
          .y = of(kStreamRows * kStreamWidth, 1.0F),
          .matrix = of(size_t{kStreamMixes} * kStreamValues, 0.1F),
          .base = of(kStreamMixes, 1.0F),
          .scale = {0.8F, 1.3F, 1.7F}};
}

double LogisticOf(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// A row's weights: [kStreams] of the input, [kStreams] of the result, [from][to] of streams.
struct RowWeights {
  double input[kStreams];
  double result[kStreams];
  double streams[kStreams][kStreams];
};

// The formulas in plain loops.
RowWeights ExpectedWeights(const StreamValues& v, size_t row) {
  const float* x = &v.streams[row * kStreamValues];
  double squares = 0.0;
  for (uint32_t i = 0; i < kStreamValues; ++i) squares += double{x[i]} * x[i];
  const double rms = std::sqrt(squares / kStreamValues + kStreamRmsEps);
  const auto number = [&](uint32_t w, uint32_t kind) {
    double product = 0.0;
    for (uint32_t i = 0; i < kStreamValues; ++i)
      product += v.matrix[w * kStreamValues + i] * (x[i] / rms);
    return v.scale[kind] * product + v.base[w];
  };
  RowWeights to;
  for (uint32_t s = 0; s < kStreams; ++s) {
    to.input[s] = LogisticOf(number(s, 0)) + kStreamEps;
    to.result[s] = 2.0 * LogisticOf(number(kStreams + s, 1));
    double sum = 0.0;
    for (uint32_t d = 0; d < kStreams; ++d) {
      to.streams[s][d] = std::exp(number((2 + s) * kStreams + d, 2));
      sum += to.streams[s][d];
    }
    for (double& weight : to.streams[s]) weight = weight / sum + kStreamEps;
  }
  for (uint32_t iteration = 0; iteration < kStreamIterations; ++iteration) {
    for (uint32_t s = 0; s < kStreams && iteration > 0; ++s) {
      double sum = kStreamEps;
      for (const double weight : to.streams[s]) sum += weight;
      for (double& weight : to.streams[s]) weight /= sum;
    }
    for (uint32_t d = 0; d < kStreams; ++d) {
      double sum = kStreamEps;
      for (const auto& from : to.streams) sum += from[d];
      for (auto& from : to.streams) from[d] /= sum;
    }
  }
  return to;
}

// Results of a half layer's two ends, and of the head's mix of what they leave.
struct MixedStreams {
  std::vector<float> x, streams, end;
};

MixedStreams ComputeStreams(const StreamValues& v, uint32_t threads) {
  CpuDevice device = *CpuDevice::Open(threads);
  HyperConnections connections(
      {.n_streams = kStreams, .n_iterations = kStreamIterations, .eps = kStreamEps}, kStreamWidth,
      kStreamRmsEps);
  GraphArena arena(device.backend(), 64);
  ggml_context* ctx = arena.Begin();
  PlacedTensors placed(ctx, 1 << 18);
  LayerTensors w;
  w.ffn_streams = placed.Input(kStreamValues, v.matrix);
  w.ffn_streams_b = placed.Input(kStreamMixes, v.base);
  w.ffn_streams_scale = placed.Input(StreamsSpec::kScales, v.scale);
  ggml_tensor* streams = placed.Input(kStreamValues, v.streams);
  const auto entered = connections.Enter(ctx, w, HyperConnections::Half::kFeedForward, streams);
  ggml_tensor* left = connections.Leave(
      ctx, {.y = placed.Input(kStreamWidth, v.y), .streams = streams, .weights = entered.weights});
  ggml_tensor* end = connections.End(ctx, {}, left);
  for (ggml_tensor* t : {entered.x, left, end}) {
    ggml_build_forward_expand(arena.graph(), placed.Place(t));
  }
  EXPECT_TRUE(arena.Run());
  const auto values = [](const ggml_tensor* t) {
    const auto* first = static_cast<const float*>(t->data);
    return std::vector<float>(first, first + ggml_nelements(t));
  };
  return {.x = values(entered.x), .streams = values(left), .end = values(end)};
}

TEST(HyperConnections, AgreeWithPlainLoops) {
  const StreamValues v = RandomStreams();
  const MixedStreams found = ComputeStreams(v, 2);
  ASSERT_EQ(found.streams.size(), kStreamRows * kStreamValues);
  for (size_t row = 0; row < kStreamRows; ++row) {
    const RowWeights weights = ExpectedWeights(v, row);
    const float* x = &v.streams[row * kStreamValues];
    for (uint32_t i = 0; i < kStreamWidth; ++i) {
      double input = 0.0;
      double mean = 0.0;
      for (uint32_t d = 0; d < kStreams; ++d) {
        input += weights.input[d] * x[d * kStreamWidth + i];
        double stream = weights.result[d] * v.y[row * kStreamWidth + i];
        for (uint32_t s = 0; s < kStreams; ++s) {
          stream += weights.streams[s][d] * x[s * kStreamWidth + i];
        }
        EXPECT_NEAR(found.streams[row * kStreamValues + d * kStreamWidth + i], stream, 2e-5)
            << "row " << row;
        mean += stream / kStreams;
      }
      EXPECT_NEAR(found.x[row * kStreamWidth + i], input, 2e-5) << "row " << row;
      EXPECT_NEAR(found.end[row * kStreamWidth + i], mean, 2e-5) << "row " << row;
    }
  }
}

TEST(HyperConnections, ThreadsAndOtherRowsLeaveTheBits) {
  const StreamValues v = RandomStreams();
  const MixedStreams found = ComputeStreams(v, 1);
  const MixedStreams by_three = ComputeStreams(v, 3);
  EXPECT_EQ(by_three.x, found.x);
  EXPECT_EQ(by_three.streams, found.streams);
  StreamValues last = v;
  last.streams.erase(last.streams.begin(), last.streams.end() - kStreamValues);
  last.y.erase(last.y.begin(), last.y.end() - kStreamWidth);
  const MixedStreams alone = ComputeStreams(last, 2);
  EXPECT_TRUE(std::ranges::equal(alone.streams, std::span(found.streams).last(kStreamValues)));
  EXPECT_TRUE(std::ranges::equal(alone.x, std::span(found.x).last(kStreamWidth)));
}

// The head's input where a matrix of its own mixes the streams, in plain loops.
TEST(HyperConnections, MixTheHeadsInput) {
  const StreamValues v = RandomStreams();
  CpuDevice device = *CpuDevice::Open(2);
  HyperConnections connections({.n_streams = kStreams,
                                .n_iterations = kStreamIterations,
                                .eps = kStreamEps,
                                .mixes_head = true},
                               kStreamWidth, kStreamRmsEps);
  GraphArena arena(device.backend(), 64);
  ggml_context* ctx = arena.Begin();
  PlacedTensors placed(ctx, 1 << 18);
  ModelTensors w;
  w.head_streams =
      placed.Input(kStreamValues, std::span(v.matrix).first(size_t{kStreams} * kStreamValues));
  w.head_streams_b = placed.Input(kStreams, std::span(v.base).first(kStreams));
  w.head_streams_scale = placed.Input(1, std::span(v.scale).first(1));
  ggml_tensor* x = connections.End(ctx, w, placed.Input(kStreamValues, v.streams));
  ggml_build_forward_expand(arena.graph(), placed.Place(x));
  ASSERT_TRUE(arena.Run());
  for (size_t row = 0; row < kStreamRows; ++row) {
    const RowWeights weights = ExpectedWeights(v, row);
    for (uint32_t i = 0; i < kStreamWidth; ++i) {
      double sum = 0.0;
      for (uint32_t s = 0; s < kStreams; ++s) {
        sum += weights.input[s] * v.streams[row * kStreamValues + s * kStreamWidth + i];
      }
      EXPECT_NEAR(static_cast<const float*>(x->data)[row * kStreamWidth + i], sum, 2e-5)
          << "row " << row;
    }
  }
}

// All streams begin as the embedding, and whatever weights are doubly stochastic keep their sum.
TEST(HyperConnections, WeightsOfStreamsKeepTheirSum) {
  std::vector<float> weights = {3.0F, -1.0F, 0.5F, 0.0F, 2.0F, 2.0F, -3.0F, 1.0F,
                                0.1F, 0.2F,  0.3F, 0.4F, 5.0F, 0.0F, 1.0F,  -2.0F};
  MakeDoublyStochastic(kStreams, 100, 0.0F, weights.data());
  for (uint32_t s = 0; s < kStreams; ++s) {
    float row = 0.0F;
    float column = 0.0F;
    for (uint32_t d = 0; d < kStreams; ++d) {
      row += weights[s * kStreams + d];
      column += weights[d * kStreams + s];
    }
    EXPECT_NEAR(row, 1.0F, 1e-5);
    EXPECT_NEAR(column, 1.0F, 1e-5);
  }
}

}  // namespace
}  // namespace moestro
