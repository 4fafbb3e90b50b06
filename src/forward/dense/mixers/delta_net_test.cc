// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/delta_net.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"
#include "compute/state_kernel.h"
#include "memory/layer_values.h"

namespace moestro {
namespace {

constexpr uint32_t kHeads = 2;
constexpr uint32_t kDim = 32;
constexpr uint32_t kTaps = 4;
constexpr uint32_t kWidth = kHeads * kDim;
constexpr float kEps = 1e-3F;

// Values of a text's rows and of a layer, where each value of a key decays on its own.
struct Values {
  std::vector<float> query, key, value, gate, rate, decay;  // [row][..]
  std::vector<float> conv_q, conv_k, conv_v;                // [channel][tap]
  std::vector<float> dt, a, norm;
};

Values RandomValues(size_t rows, float bound) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto of = [&](size_t n) {
    std::vector<float> values(n);
    for (float& x : values) x = normal(random);
    return values;
  };
  Values v{.query = of(rows * kWidth),
           .key = of(rows * kWidth),
           .value = of(rows * kWidth),
           .gate = of(rows * kWidth),
           .rate = of(rows * kHeads),
           .decay = of(rows * kWidth),
           .conv_q = of(size_t{kWidth} * kTaps),
           .conv_k = of(size_t{kWidth} * kTaps),
           .conv_v = of(size_t{kWidth} * kTaps),
           .dt = of(kWidth),
           .a = {-0.3F, -0.05F},
           .norm = of(kDim)};
  if (bound < 0.0F) v.a = {1.0F, 2.5F};
  return v;
}

double SigmoidOf(double x) { return 1.0 / (1.0 + std::exp(-x)); }

// Values of `rows` that are convolved, with zeros before the text: [row][channel].
std::vector<double> Convolved(const std::vector<float>& x, const std::vector<float>& weights) {
  std::vector<double> y(x.size());
  for (size_t at = 0; at < x.size(); ++at) {
    const size_t row = at / kWidth;
    const size_t channel = at % kWidth;
    double sum = 0.0;
    for (size_t tap = 0; tap < kTaps; ++tap) {
      if (row + tap + 1 < kTaps) continue;
      sum += double{weights[channel * kTaps + tap]} * x[at - (kTaps - 1 - tap) * kWidth];
    }
    y[at] = sum * SigmoidOf(sum);
  }
  return y;
}

// Divides the values of a head by the root of their squares' sum.
void Normalise(double* x, double scale) {
  double sum = kEps;
  for (uint32_t i = 0; i < kDim; ++i) sum += x[i] * x[i];
  for (uint32_t i = 0; i < kDim; ++i) x[i] *= scale / std::sqrt(sum);
}

// [row][kWidth]: the formulas in plain loops.
std::vector<double> Expected(const Values& v, float bound) {
  std::vector<double> q = Convolved(v.query, v.conv_q);
  std::vector<double> k = Convolved(v.key, v.conv_k);
  const std::vector<double> values = Convolved(v.value, v.conv_v);
  std::vector<double> state(size_t{kHeads} * kDim * kDim);  // [head][of a key][of a value]
  std::vector<double> result(v.query.size());
  for (size_t at = 0; at < result.size(); at += kDim) {
    const size_t row = at / kWidth;
    const size_t head = at % kWidth / kDim;
    Normalise(&q[at], 1.0 / std::sqrt(double{kDim}));
    Normalise(&k[at], 1.0);
    double* s = &state[head * kDim * kDim];
    const double rate = SigmoidOf(v.rate[row * kHeads + head]);
    for (size_t d = 0; d < kDim; ++d) {
      const double x = double{v.decay[at + d]} + v.dt[head * kDim + d];
      const double a = v.a[head];
      const double log = bound < 0.0F ? bound * SigmoidOf(a * x) : a * std::log1p(std::exp(x));
      for (size_t c = 0; c < kDim; ++c) s[d * kDim + c] *= std::exp(log);
    }
    for (size_t c = 0; c < kDim; ++c) {
      double known = 0.0;
      for (size_t d = 0; d < kDim; ++d) known += k[at + d] * s[d * kDim + c];
      for (size_t d = 0; d < kDim; ++d) {
        s[d * kDim + c] += k[at + d] * rate * (values[at + c] - known);
        result[at + c] += q[at + d] * s[d * kDim + c];
      }
    }
    double squares = 0.0;
    for (size_t c = 0; c < kDim; ++c) squares += result[at + c] * result[at + c];
    const double rms = std::sqrt(squares / kDim + kEps);
    for (size_t c = 0; c < kDim; ++c) {
      result[at + c] *= v.norm[c] / rms * SigmoidOf(v.gate[at + c]);
    }
  }
  return result;
}

class DeltaNetTest : public testing::TestWithParam<float> {};

INSTANTIATE_TEST_SUITE_P(Bounds, DeltaNetTest, testing::Values(0.0F, -5.0F),
                         [](const auto& one) { return one.param < 0.0F ? "Bound" : "NoBound"; });

// Two steps, the second of which begins with the state that the first one wrote.
TEST_P(DeltaNetTest, AgreesWithPlainLoops) {
  constexpr size_t kRows = 9;
  const DeltaNetSpec spec{.n_head_k = kHeads,
                          .n_head_v = kHeads,
                          .head_dim = kDim,
                          .n_taps = kTaps,
                          .decays_values = true,
                          .decay_bound = GetParam()};
  const Values values = RandomValues(kRows, GetParam());
  CpuDevice device = *CpuDevice::Open(2);
  auto net = *DeltaNet::Create(spec, kEps, 2, StateKernel::ForThisMachine());
  const MemoryShape shape{.layers = {{.state_values = spec.state_values()}}};
  const StateStore states = *StateStore::Allocate(shape, 1);
  const std::vector<double> expected = Expected(values, GetParam());
  size_t first = 0;
  for (const size_t rows : {size_t{5}, kRows - 5}) {
    GraphArena arena(device.backend(), 64);
    ggml_context* ctx = arena.Begin();
    auto buffer = *BackendBuffer::OnHost(1 << 18);
    uint64_t at = 0;
    const auto input = [&](uint32_t n, const std::vector<float>& from) {
      ggml_tensor* t = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, n, static_cast<int64_t>(rows));
      buffer.Place(t, at);
      at += (ggml_nbytes(t) + 63) / 64 * 64;
      std::memcpy(t->data, from.data() + first * n, ggml_nbytes(t));
      return t;
    };
    ggml_tensor* result = net->Node(
        ctx, {input(kWidth, values.query), input(kWidth, values.key), input(kWidth, values.value),
              input(kWidth, values.gate), input(kHeads, values.rate), input(kWidth, values.decay)});
    buffer.Place(result, at);
    ggml_build_forward_expand(arena.graph(), result);
    const StateSlot slot{0};
    std::vector<RowState> places(rows, {.from = slot, .to = slot});
    if (first == 0) places.front().from = std::nullopt;
    const auto columns = [](uint32_t source, uint32_t of_h) {
      return HeadColumns{.source = source, .of_h = of_h};
    };
    net->Bind({.columns = {.query = columns(0, kDim),
                           .key = columns(1, kDim),
                           .value = columns(2, kDim),
                           .gate = columns(3, kDim),
                           .rate = columns(4, 1),
                           .decay = columns(5, kDim)},
               .conv = {values.conv_q.data(), values.conv_k.data(), values.conv_v.data()},
               .dt = values.dt.data(),
               .a = values.a.data(),
               .norm = values.norm.data()},
              places, states);
    ASSERT_TRUE(arena.Run());
    const auto* found = static_cast<const float*>(result->data);
    for (size_t i = 0; i < rows * kWidth; ++i) {
      // Sums of 32 terms in F32, normed: some 1e-6 of values around one.
      EXPECT_NEAR(found[i], expected[first * kWidth + i], 2e-5) << "row " << first + i / kWidth;
    }
    first += rows;
  }
}

}  // namespace
}  // namespace moestro
