// SPDX-License-Identifier: MIT
#include "compute/state_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace moestro {
namespace {

using Rows = StateKernel::Rows;
using RowsOut = StateKernel::RowsOut;

std::vector<float> Random(size_t n, uint32_t seed, float deviation = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, deviation);
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

double SiluOf(double x) { return x / (1.0 + std::exp(-x)); }

// All is F32 and sums have at most 256 terms: errors of a random walk are 256^0.5 * 2^-24 = 1e-6 of
// the terms, a few such sums follow one another, and the polynomial of 2^x adds 1.3e-7.
void ExpectNear(std::span<const float> values, std::span<const double> expected,
                const std::string& what) {
  ASSERT_EQ(values.size(), expected.size());
  double size = 0.0;
  for (const double e : expected) size = std::max(size, std::abs(e));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(values[i], expected[i], 1e-5 * size) << what << ", value " << i;
  }
}

class StateKernelTest : public testing::TestWithParam<StateKernel> {};

TEST_P(StateKernelTest, ConvolvesAsTheSumSays) {
  for (uint32_t taps = StateKernel::kFewestTaps; taps <= StateKernel::kMostTaps; ++taps) {
    constexpr uint32_t kTokens = 7;
    constexpr uint32_t kChannels = 48;
    constexpr size_t kWide = kChannels + 5;  // rows may be further apart
    const std::vector<float> x = Random(kTokens * kWide, 1, 3.0F);
    const std::vector<float> weights = Random(size_t{kChannels} * taps, 2);
    const std::vector<float> before = Random(size_t{taps - 1} * kWide, 3);
    std::vector<double> expected;
    for (size_t t = 0; t < kTokens; ++t) {
      for (size_t c = 0; c < kChannels; ++c) {
        double sum = 0.0;
        for (size_t tap = 0; tap < taps; ++tap) {
          const size_t at = t + tap;  // among what was before, and then the tokens
          const float input =
              at < taps - 1 ? before[at * kWide + c] : x[(at - taps + 1) * kWide + c];
          sum += double{weights[c * taps + tap]} * input;
        }
        expected.push_back(SiluOf(sum));
      }
    }
    std::vector<float> state = before;
    std::vector<float> y(size_t{kTokens} * kChannels);
    // Two calls with the state in place; then one call from zeros.
    for (const auto& [first, n] : {std::pair{0U, 2U}, {2U, kTokens - 2}}) {
      GetParam().convolve({.n_tokens = n,
                           .n_channels = kChannels,
                           .n_taps = taps,
                           .weights = weights.data(),
                           .bias = nullptr,
                           .has_silu = true,
                           .x = {x.data() + first * kWide, kWide},
                           .before = {state.data(), kWide},
                           .after = {state.data(), kWide},
                           .y = {y.data() + size_t{first} * kChannels, kChannels}});
    }
    ExpectNear(y, expected, std::to_string(taps) + " taps");
    for (size_t tap = 0; tap + 1 < taps; ++tap) {
      for (size_t c = 0; c < kChannels; ++c) {
        EXPECT_EQ(state[tap * kWide + c], x[(kTokens - taps + 1 + tap) * kWide + c]);
      }
    }
    std::vector<float> fresh(state.size());
    GetParam().convolve({.n_tokens = 1,
                         .n_channels = kChannels,
                         .n_taps = taps,
                         .weights = weights.data(),
                         .bias = nullptr,
                         .has_silu = true,
                         .x = {x.data(), kWide},
                         .before = {},
                         .after = {fresh.data(), kWide},
                         .y = {y.data(), kChannels}});
    for (size_t c = 0; c < kChannels; ++c) {
      EXPECT_NEAR(y[c], SiluOf(double{weights[c * taps + taps - 1]} * x[c]), 1e-5);
      EXPECT_EQ(fresh[(taps - 2) * kWide + c], x[c]);
      if (taps > 2) {
        EXPECT_EQ(fresh[c], 0.0F);
      }
    }
  }
}

TEST_P(StateKernelTest, NormalisesRows) {
  constexpr uint32_t kN = 96;
  std::vector<float> x = Random(3 * kN, 5);
  std::vector<double> expected;
  for (size_t r = 0; r < 3; ++r) {
    double sum = 1e-3;
    for (size_t i = 0; i < kN; ++i) sum += double{x[r * kN + i]} * x[r * kN + i];
    for (size_t i = 0; i < kN; ++i) expected.push_back(0.25 * x[r * kN + i] / std::sqrt(sum));
  }
  GetParam().normalise({.n_rows = 3, .n = kN, .eps = 1e-3F, .scale = 0.25F}, {x.data(), kN});
  ExpectNear(x, expected, "normed");
}

struct Tokens {
  std::vector<float> keys, queries, values, decays, rates;
};

// Keys of length one, as they are after Normalise().
Tokens RandomTokens(uint32_t n, uint32_t rows, uint32_t columns) {
  Tokens t{.keys = Random(size_t{n} * rows, 6, 1.0F / std::sqrt(static_cast<float>(rows))),
           .queries = Random(size_t{n} * rows, 7),
           .values = Random(size_t{n} * columns, 8),
           .decays = Random(n, 9),
           .rates = Random(n, 10)};
  for (float& d : t.decays) d = std::exp(-std::abs(d));
  for (float& r : t.rates) r = 1.0F / (1.0F + std::exp(-r));
  return t;
}

// Each row has a decay instead.
Tokens RowDecays(Tokens t, uint32_t n, uint32_t rows) {
  t.decays = Random(size_t{n} * rows, 14);
  for (float& d : t.decays) d = std::exp(-std::abs(d));
  return t;
}

std::vector<double> Expected(const Tokens& t, uint32_t n, uint32_t rows, uint32_t columns,
                             std::vector<double> s) {
  std::vector<double> results;
  for (size_t at = 0; at < n; ++at) {
    const bool has_row_decays = t.decays.size() > n;
    for (size_t r = 0; r < rows; ++r) {
      const double decay = t.decays[has_row_decays ? at * rows + r : at];
      for (size_t c = 0; c < columns; ++c) s[r * columns + c] *= decay;
    }
    std::vector<double> change(columns);
    for (size_t c = 0; c < columns; ++c) {
      double given = 0.0;
      for (size_t r = 0; r < rows; ++r) given += t.keys[at * rows + r] * s[r * columns + c];
      change[c] = t.rates[at] * (t.values[at * columns + c] - given);
    }
    for (size_t r = 0; r < rows; ++r) {
      for (size_t c = 0; c < columns; ++c) s[r * columns + c] += t.keys[at * rows + r] * change[c];
    }
    for (size_t c = 0; c < columns; ++c) {
      double sum = 0.0;
      for (size_t r = 0; r < rows; ++r) sum += t.queries[at * rows + r] * s[r * columns + c];
      results.push_back(sum);
    }
  }
  return results;
}

StateKernel::Update UpdateOf(const Tokens& t, uint32_t first, uint32_t n, uint32_t rows,
                             uint32_t columns, std::vector<float>& results) {
  const bool has_row_decays = t.decays.size() > t.rates.size();
  return {.is_corrected = true,
          .n_tokens = n,
          .n_rows = rows,
          .n_columns = columns,
          .before = nullptr,
          .after = nullptr,
          .keys = {t.keys.data() + size_t{first} * rows, rows},
          .queries = {t.queries.data() + size_t{first} * rows, rows},
          .values = {t.values.data() + size_t{first} * columns, columns},
          .decays = has_row_decays ? nullptr : t.decays.data() + first,
          .row_decays = {t.decays.data() + size_t{first} * rows, rows},
          .rates = t.rates.data() + first,
          .results = {results.data() + size_t{first} * columns, columns}};
}

TEST_P(StateKernelTest, ChangesAMatrixTokenByToken) {
  constexpr uint32_t kTokens = 9;
  for (const auto& [rows, columns] : {std::pair{32U, 32U}, {128U, 128U}, {64U, 96U}}) {
    for (const bool has_row_decays : {false, true}) {
      Tokens t = RandomTokens(kTokens, rows, columns);
      if (has_row_decays) t = RowDecays(std::move(t), kTokens, rows);
      std::vector<float> results(size_t{kTokens} * columns);
      std::vector<float> state(size_t{rows} * columns, 7.0F);  // not read
      StateKernel::Update u = UpdateOf(t, 0, kTokens, rows, columns, results);
      u.after = state.data();
      GetParam().update(u);
      ExpectNear(results,
                 Expected(t, kTokens, rows, columns, std::vector<double>(state.size(), 0.0)),
                 std::to_string(rows));

      // In pieces, through other memory, with the same bits.
      std::vector<float> again(results.size());
      std::vector<float> here(state.size());
      std::vector<float> there(state.size());
      for (const auto& [first, n] : {std::pair{0U, 1U}, {1U, 5U}, {6U, 3U}}) {
        StateKernel::Update piece = UpdateOf(t, first, n, rows, columns, again);
        piece.before = first > 0 ? here.data() : nullptr;
        piece.after = there.data();
        GetParam().update(piece);
        here.swap(there);
      }
      EXPECT_EQ(again, results);
      EXPECT_EQ(here, state);
    }
  }
}

TEST_P(StateKernelTest, NormsAndGatesRows) {
  for (const bool is_sigmoid : {false, true}) {
    constexpr uint32_t kN = 64;
    std::vector<float> x = Random(2 * kN, 11, 0.1F);
    const std::vector<float> gate = Random(2 * kN, 12, 4.0F);
    const std::vector<float> weight = Random(kN, 13);
    std::vector<double> expected;
    for (size_t r = 0; r < 2; ++r) {
      double sum = 0.0;
      for (size_t i = 0; i < kN; ++i) sum += double{x[r * kN + i]} * x[r * kN + i];
      const double factor = 1.0 / std::sqrt(sum / kN + 1e-5);
      for (size_t i = 0; i < kN; ++i) {
        const double by = gate[r * kN + i];
        expected.push_back(x[r * kN + i] * factor * weight[i] *
                           (is_sigmoid ? SiluOf(by) / by : SiluOf(by)));
      }
    }
    GetParam().gate({.n_rows = 2,
                     .n = kN,
                     .eps = 1e-5F,
                     .is_sigmoid = is_sigmoid,
                     .weight = weight.data(),
                     .gate = {gate.data(), kN}},
                    {x.data(), kN});
    ExpectNear(x, expected, "gated");
  }
}

// A model with NaN in its values gives NaN in its results.
TEST_P(StateKernelTest, NoNumberStaysNone) {
  constexpr uint32_t kN = 32;
  for (const bool is_sigmoid : {false, true}) {
    std::vector<float> x(kN, 1.0F);
    std::vector<float> gate(kN, 1.0F);
    const std::vector<float> weight(kN, 1.0F);
    gate[3] = std::nanf("");
    gate[4] = std::numeric_limits<float>::infinity();
    gate[5] = -std::numeric_limits<float>::infinity();
    GetParam().gate({.n_rows = 1,
                     .n = kN,
                     .eps = 0.0F,
                     .is_sigmoid = is_sigmoid,
                     .weight = weight.data(),
                     .gate = {gate.data(), kN}},
                    {x.data(), kN});
    EXPECT_TRUE(std::isnan(x[3])) << is_sigmoid;
    EXPECT_FALSE(std::isnan(x[6])) << is_sigmoid;
    if (!is_sigmoid) continue;
    EXPECT_EQ(x[4], 1.0F);
    EXPECT_EQ(x[5], 0.0F);
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, StateKernelTest, testing::ValuesIn(StateKernel::AllHere()),
                         [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace moestro
