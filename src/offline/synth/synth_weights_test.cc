// SPDX-License-Identifier: MIT
#include "offline/synth/synth_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace moestro {
namespace {

std::vector<std::byte> Bytes(SynthWeights weights, const PlannedTensor& tensor) {
  std::vector<std::byte> all;
  const Status done = weights.Generate(tensor, [&](std::span<const std::byte> bytes) -> Status {
    all.insert(all.end(), bytes.begin(), bytes.end());
    return {};
  });
  EXPECT_TRUE(done.has_value());
  return all;
}

std::vector<float> Floats(const std::vector<std::byte>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

PlannedTensor MatrixTensor(const char* name, int64_t width, int64_t rows, ggml_type type) {
  return {.name = name, .ne = {width, rows, 1}, .dims = 2, .type = type, .deviation = 0.5F};
}

TEST(SynthRng, NormalHasMeanZeroAndVarianceOne) {
  SynthRng rng(3, "stream");
  constexpr int kDraws = 1000000;
  double sum = 0;
  double squares = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = static_cast<double>(rng.Normal());
    sum += x;
    squares += x * x;
  }
  // Five standard errors of the two estimates.
  EXPECT_NEAR(sum / kDraws, 0, 0.005);
  EXPECT_NEAR(squares / kDraws, 1, 0.007);
}

TEST(SynthWeights, BytesDependOnSeedAndNameAlone) {
  const PlannedTensor a = MatrixTensor("a", 64, 32, GGML_TYPE_Q8_0);
  const PlannedTensor b = MatrixTensor("b", 64, 32, GGML_TYPE_Q8_0);
  EXPECT_EQ(Bytes(SynthWeights({.seed = 1}), a), Bytes(SynthWeights({.seed = 1}), a));
  EXPECT_NE(Bytes(SynthWeights({.seed = 1}), a), Bytes(SynthWeights({.seed = 2}), a));
  EXPECT_NE(Bytes(SynthWeights({.seed = 1}), a), Bytes(SynthWeights({.seed = 1}), b));
  EXPECT_EQ(Bytes(SynthWeights({.seed = 1}), a).size(), a.bytes());
}

TEST(SynthWeights, EveryTypeStandsForTheSameValues) {
  const std::vector<float> exact =
      Floats(Bytes(SynthWeights({}), MatrixTensor("w", 256, 8, GGML_TYPE_F32)));
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q6_K,
                               GGML_TYPE_Q2_K, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4}) {
    const std::vector<std::byte> bytes = Bytes(SynthWeights({}), MatrixTensor("w", 256, 8, type));
    std::vector<float> read(exact.size());
    ggml_get_type_traits(type)->to_float(bytes.data(), read.data(),
                                         static_cast<int64_t>(read.size()));
    const double dot = std::inner_product(exact.begin(), exact.end(), read.begin(), 0.0);
    const double xx = std::inner_product(exact.begin(), exact.end(), exact.begin(), 0.0);
    const double yy = std::inner_product(read.begin(), read.end(), read.begin(), 0.0);
    // Two bits per weight still leave 8 % of noise power at most.
    EXPECT_GT(dot / std::sqrt(xx * yy), 0.95) << ggml_type_name(type);
  }
}

TEST(SynthWeights, TiledMatricesHaveTheRightSizeAndDiffer) {
  const SynthWeights tiling({.tile_above = 1024});
  const PlannedTensor a = MatrixTensor("a", 1024, 9000, GGML_TYPE_Q8_0);  // more than two blocks
  const PlannedTensor b = MatrixTensor("b", 1024, 9000, GGML_TYPE_Q8_0);
  const std::vector<std::byte> bytes = Bytes(tiling, a);
  ASSERT_EQ(bytes.size(), a.bytes());
  EXPECT_NE(bytes, Bytes(tiling, b));
  EXPECT_EQ(bytes, Bytes(tiling, a));
  std::vector<float> read(a.weights());
  ggml_get_type_traits(a.type)->to_float(bytes.data(), read.data(),
                                         static_cast<int64_t>(read.size()));
  const double n = static_cast<double>(read.size());
  const double mean = std::accumulate(read.begin(), read.end(), 0.0) / n;
  const double square = std::inner_product(read.begin(), read.end(), read.begin(), 0.0) / n;
  EXPECT_NEAR(mean, 0, 0.002);
  EXPECT_NEAR(square, 0.25, 0.002);
}

TEST(SynthWeights, ASinkErrorEndsTheWork) {
  SynthWeights weights({});
  int calls = 0;
  const Status done = weights.Generate(MatrixTensor("a", 1024, 4096, GGML_TYPE_F32),
                                       [&](std::span<const std::byte>) -> Status {
                                         ++calls;
                                         return Fail(Errc::kIo, "full");
                                       });
  ASSERT_FALSE(done.has_value());
  EXPECT_EQ(done.error().message, "full");
  EXPECT_EQ(calls, 1);
}

// Chosen share of tokens per expert, most popular first, for random inputs of unit variance.
std::vector<double> ChosenShares(double skew, uint32_t experts, uint32_t used) {
  constexpr int64_t kWidth = 64;
  constexpr int kTokens = 4000;
  const PlannedTensor router = {.name = "router",
                                .ne = {kWidth, experts, 1},
                                .dims = 2,
                                .fill = Fill::kRouter,
                                .deviation = 0.125F};
  const std::vector<float> rows = Floats(Bytes(SynthWeights({.skew = skew, .used = used}), router));
  SynthRng rng(9, "tokens");
  std::vector<double> counts(experts, 0);
  std::vector<std::pair<float, uint32_t>> logits(experts);
  std::vector<float> x(kWidth);
  for (int token = 0; token < kTokens; ++token) {
    for (float& value : x) value = rng.Normal();
    for (uint32_t e = 0; e < experts; ++e) {
      logits[e] = {std::inner_product(x.begin(), x.end(), rows.begin() + e * kWidth, 0.0F), e};
    }
    std::ranges::sort(logits, std::greater());
    for (uint32_t k = 0; k < used; ++k) counts[logits[k].second] += 1.0 / kTokens;
  }
  std::ranges::sort(counts, std::greater());
  return counts;
}

TEST(SynthWeights, SkewMakesExpertsUnequallyPopular) {
  const std::vector<double> even = ChosenShares(0, 64, 8);
  const std::vector<double> skewed = ChosenShares(1, 64, 8);
  const auto top_eighth = [](const std::vector<double>& shares) {
    return std::accumulate(shares.begin(), shares.begin() + 8, 0.0) / 8;
  };
  EXPECT_LT(even.front(), 2 * 8.0 / 64);
  EXPECT_LT(top_eighth(even), 0.22);
  EXPECT_GT(top_eighth(skewed), 0.35);  // Zipf with the cap: 8 experts take over a third
  EXPECT_GT(even.back(), 0.05);
  EXPECT_LT(skewed.back(), 0.04);  // and the last one 8 / (64 * (1 + 1/2 + ... + 1/64)) = 0.026
  EXPECT_NEAR(std::accumulate(skewed.begin(), skewed.end(), 0.0), 8, 1e-6);
}

TEST(SynthWeights, MoreSkewMeansMorePopularFavourites) {
  double before = ChosenShares(0, 32, 4).front();
  for (const double skew : {0.3, 0.6, 1.0}) {
    const double now = ChosenShares(skew, 32, 4).front();
    EXPECT_GT(now, before) << skew;
    before = now;
  }
}

}  // namespace
}  // namespace moestro
