// SPDX-License-Identifier: MIT
#include "compute/attention_kernel.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "compute/kernels/float_lanes.h"

namespace moestro {
namespace {

constexpr uint32_t kKeys = AttentionKernel::kKeys;
constexpr uint32_t kLanes = AttentionKernel::kMaxLanes;

// Memory with the kernels' alignment.
class SomeFloats {
 public:
  explicit SomeFloats(size_t n) : values_(n + 16, 0.0F) {}
  float* data() {
    return reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(values_.data()) + 63) / 64 * 64);
  }

 private:
  std::vector<float> values_;
};

struct Case {
  uint32_t n_queries = 8;
  uint32_t dim_k = 128;
  uint32_t dim_v = 128;
  uint32_t blocks = 3;
  float spread = 1.0F;           // number of queries
  std::vector<KeyRange> ranges;  // [blocks][n_queries]
};

struct Numbers {
  std::vector<float> queries;  // [n_queries][dim_k]
  std::vector<float> keys;     // [blocks * kKeys][dim_k]
  std::vector<float> values;   // [blocks * kKeys][dim_v]
};

Numbers RandomNumbers(const Case& c) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  const auto fill = [&](size_t n, float factor) {
    std::vector<float> values(n);
    for (float& v : values) v = factor * ggml_fp16_to_fp32(ggml_fp32_to_fp16(normal(random)));
    return values;
  };
  return {.queries = fill(size_t{c.n_queries} * c.dim_k, c.spread),
          .keys = fill(size_t{c.blocks} * kKeys * c.dim_k, 1.0F),
          .values = fill(size_t{c.blocks} * kKeys * c.dim_v, 1.0F)};
}

// Queries [first, first + n) of the case -> [n][dim_v].
std::vector<float> Attend(const AttentionKernel& kernel, const Case& c, const Numbers& x,
                          uint32_t first, uint32_t n) {
  const uint32_t width = kernel.padded(c.dim_v);
  const size_t key_stride = c.dim_k + 3;
  SomeFloats queries(size_t{n} * c.dim_k);
  SomeFloats keys(kKeys * key_stride);
  SomeFloats turned(size_t{kKeys} * c.dim_k);
  SomeFloats values(size_t{kKeys} * width);
  SomeFloats scores(size_t{n} * kKeys);
  SomeFloats weights(size_t{n} * kLanes);
  SomeFloats sums(size_t{n} * width);
  std::vector<float> largest(n, -std::numeric_limits<float>::infinity());
  std::copy_n(x.queries.data() + size_t{first} * c.dim_k, size_t{n} * c.dim_k, queries.data());
  for (uint32_t b = 0; b < c.blocks; ++b) {
    for (uint32_t k = 0; k < kKeys; ++k) {
      const size_t at = size_t{b} * kKeys + k;
      std::copy_n(x.keys.data() + at * c.dim_k, c.dim_k, keys.data() + k * key_stride);
      std::copy_n(x.values.data() + at * c.dim_v, c.dim_v, values.data() + size_t{k} * width);
    }
    const AttentionKernel::Piece stored = {.at = reinterpret_cast<const std::byte*>(&x.keys[b]),
                                           .bytes = kKeys};
    const std::array<AttentionKernel::Piece, 3> ahead = {stored, stored, stored};
    kernel.turn(keys.data(), key_stride, c.dim_k, turned.data());
    kernel.attend({.queries = queries.data(),
                   .ranges = c.ranges.data() + size_t{b} * c.n_queries + first,
                   .n_queries = n,
                   .dim_k = c.dim_k,
                   .dim_v = width,
                   .keys = turned.data(),
                   .values = values.data(),
                   .value_stride = width,
                   .scores = scores.data(),
                   .largest = largest.data(),
                   .weights = weights.data(),
                   .sums = sums.data(),
                   .ahead = ahead});
  }
  std::vector<float> out;
  for (uint32_t q = 0; q < n; ++q) {
    const float* w = weights.data() + size_t{q} * kLanes;
    const float weight = std::accumulate(w, w + kLanes, 0.0F);
    for (uint32_t d = 0; d < c.dim_v; ++d) {
      out.push_back(sums.data()[size_t{q} * width + d] / weight);
    }
  }
  return out;
}

// The definition, in doubles.
std::vector<double> ExpectedAttention(const Case& c, const Numbers& x) {
  std::vector<double> out;
  for (uint32_t q = 0; q < c.n_queries; ++q) {
    std::vector<double> scores;
    std::vector<size_t> seen;
    for (size_t at = 0; at < size_t{c.blocks} * kKeys; ++at) {
      const KeyRange& range = c.ranges[at / kKeys * c.n_queries + q];
      if (at % kKeys < range.begin || at % kKeys >= range.end) continue;
      double score = 0.0;
      for (size_t d = 0; d < c.dim_k; ++d) {
        score += double{x.queries[q * c.dim_k + d]} * x.keys[at * c.dim_k + d];
      }
      scores.push_back(score);
      seen.push_back(at);
    }
    const double largest = std::ranges::max(scores);
    double weight = 0.0;
    std::vector<double> sums(c.dim_v, 0.0);
    for (size_t i = 0; i < seen.size(); ++i) {
      const double w = std::exp2(scores[i] - largest);
      weight += w;
      for (size_t d = 0; d < c.dim_v; ++d) sums[d] += w * x.values[seen[i] * c.dim_v + d];
    }
    for (const double sum : sums) out.push_back(sum / weight);
  }
  return out;
}

// Causal: query q attends to one key more than query q - 1, and to all keys of earlier blocks.
std::vector<KeyRange> Causal(uint32_t n_queries, uint32_t blocks, uint32_t before) {
  std::vector<KeyRange> ranges;
  for (uint32_t b = 0; b < blocks; ++b) {
    for (uint32_t q = 0; q < n_queries; ++q) {
      const uint32_t end = before + q + 1;
      ranges.push_back(
          {.begin = 0, .end = std::clamp(end, b * kKeys, (b + 1) * kKeys) - b * kKeys});
    }
  }
  return ranges;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const auto& [queries, dim_k, dim_v] : {std::array{8U, 128U, 128U},
                                              {21U, 64U, 64U},
                                              {1U, 128U, 128U},
                                              {16U, 80U, 80U},
                                              {9U, 192U, 128U},
                                              {5U, 6U, 10U}}) {
    Case c{.n_queries = queries, .dim_k = dim_k, .dim_v = dim_v, .ranges = {}};
    c.ranges = Causal(queries, c.blocks, 2 * kKeys + 40);
    cases.push_back(c);
    c.ranges = Causal(queries, c.blocks, 17);
    cases.push_back(c);
    // A window: early blocks are left out, and the first block in the window counts only in part.
    for (uint32_t q = 0; q < queries; ++q) {
      c.ranges[q] = {};
      c.ranges[queries + q] = {.begin = q % kKeys, .end = kKeys};
      c.ranges[2 * queries + q] = {.begin = 0, .end = q + 1};
    }
    cases.push_back(c);
  }
  return cases;
}

// The kernel computes in F32: each score is a sum of dim_k products, added one after the other, and
// has an error of at most dim_k * 2^-24 * sum |q k| <= dim_k * 2^-24 * |q| |k|; weights take the
// error over times log(2), the polynomial adds 1.3e-7, and values are averaged with these weights.
// The expected error is a random walk, a root of dim_k; four times the expected error never occurs.
double Tolerance(const Case& c) {
  const auto dim = static_cast<double>(c.dim_k);
  const double norms = double{c.spread} * dim * 1.5;
  return 4.0 * (std::sqrt(dim) * norms * 0x1p-24 + 2e-7 + 64 * 0x1p-24);
}

TEST(AttentionKernel, EachIsSoftmaxAttention) {
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    for (const float spread : {0.02F, 0.3F, 3.0F}) {
      for (Case c : Cases()) {
        c.spread = spread;
        const Numbers x = RandomNumbers(c);
        const std::vector<double> expected = ExpectedAttention(c, x);
        const std::vector<float> got = Attend(kernel, c, x, 0, c.n_queries);
        double worst = 0.0;
        for (size_t i = 0; i < got.size(); ++i) {
          worst = std::max(worst, std::abs(got[i] - expected[i]));
        }
        EXPECT_LT(worst, Tolerance(c)) << kernel.name << ' ' << c.n_queries << " queries, dim "
                                       << c.dim_k << ", spread " << spread;
      }
    }
  }
}

// Chunks, batches and threads cut tiles in many ways.
TEST(AttentionKernel, AQueryGetsTheSameBitsAloneAndAmongOthers) {
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    for (const Case& c : Cases()) {
      const Numbers x = RandomNumbers(c);
      const std::vector<float> all = Attend(kernel, c, x, 0, c.n_queries);
      for (uint32_t n = 1; n < c.n_queries; n += 3) {
        for (uint32_t first = 0; first < c.n_queries; first += n) {
          const uint32_t count = std::min(n, c.n_queries - first);
          const std::vector<float> some = Attend(kernel, c, x, first, count);
          const auto from = all.begin() + static_cast<std::ptrdiff_t>(size_t{first} * c.dim_v);
          EXPECT_TRUE(std::equal(some.begin(), some.end(), from))
              << kernel.name << ", " << n << " of " << c.n_queries << " from " << first;
        }
      }
    }
  }
}

// Cells that were never written may hold any bytes.
TEST(AttentionKernel, WhatAQueryDoesNotSeeMayBeAnything) {
  Case c{.n_queries = 12, .dim_k = 64, .dim_v = 64, .ranges = {}};
  c.ranges = Causal(c.n_queries, c.blocks, 2 * kKeys + 10);
  const Numbers clean = RandomNumbers(c);
  Numbers dirty = clean;
  const size_t first_unseen = 2 * kKeys + 10 + c.n_queries;
  const float values[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity(), -65504.0F};
  for (size_t at = first_unseen; at < size_t{c.blocks} * kKeys; ++at) {
    std::fill_n(dirty.keys.data() + at * c.dim_k, c.dim_k, values[at % 3]);
    std::fill_n(dirty.values.data() + at * c.dim_v, c.dim_v, values[(at + 1) % 3]);
  }
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    EXPECT_EQ(Attend(kernel, c, clean, 0, c.n_queries), Attend(kernel, c, dirty, 0, c.n_queries))
        << kernel.name;
  }
}

TEST(AttentionKernel, HalvesBecomeTheirFloats) {
  std::vector<Half> halves(65536);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<Half>(i);
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    for (const size_t n : {size_t{1}, size_t{7}, size_t{23}, halves.size()}) {
      std::vector<float> got(n);
      const Half* from = halves.data() + halves.size() - n;
      kernel.from_f16(reinterpret_cast<const std::byte*>(from), got.data(), n);
      for (size_t i = 0; i < n; ++i) {
        const float expected = ggml_fp16_to_fp32(halves[halves.size() - n + i]);
        EXPECT_TRUE(got[i] == expected || (std::isnan(got[i]) && std::isnan(expected)));
      }
    }
  }
}

// A factor of eleven bits times an integer of eight: there is nothing to round.
TEST(AttentionKernel, BlocksOf8BitsBecomeTheirFloats) {
  constexpr KvTypeInfo kBlock = InfoOf(KvType::kQ8);
  std::mt19937 random(5);
  std::vector<std::byte> blocks(size_t{kBlock.block_bytes} * 4096);
  for (std::byte& b : blocks) b = static_cast<std::byte>(random());
  for (size_t i = 0; i < 4096; ++i) {  // no factor is infinite
    std::byte& high = blocks[i * kBlock.block_bytes + 1];
    if ((high & std::byte{0x7c}) == std::byte{0x7c}) high &= std::byte{0x3f};
  }
  const ggml_to_float_t expected_by = ggml_get_type_traits(GGML_TYPE_Q8_0)->to_float;
  for (const AttentionKernel& kernel : AttentionKernel::AllHere()) {
    for (const size_t n : {1U, 2U, 3U, 4096U}) {
      std::vector<float> expected(n * kBlock.block);
      std::vector<float> got(n * kBlock.block);
      expected_by(blocks.data(), expected.data(), static_cast<int64_t>(expected.size()));
      kernel.from_q8(blocks.data(), got.data(), got.size());
      EXPECT_EQ(got, expected) << kernel.name << ", " << n << " blocks";
    }
  }
}

}  // namespace
}  // namespace moestro
