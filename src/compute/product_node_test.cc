// SPDX-License-Identifier: MIT
#include "compute/product_node.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"
#include "compute/row_check.h"
#include "compute/row_kernel.h"
#include "compute/weight_set.h"

namespace moestro {
namespace {

// Both sides differ by the rounding of a handful of F32 operations: 1e-6 of the result.
constexpr double kTolerance = 1e-6;

struct Pair {
  float gate;
  float up;
};

void Expect(Activation activation, const Pair& pair, double value) {
  std::vector<float> gate(3, pair.gate);
  Join(activation, std::vector<float>(3, pair.up), gate);
  for (const float g : gate) {
    EXPECT_NEAR(g, value, kTolerance * std::max(1.0, std::abs(value)))
        << static_cast<int>(activation) << ": " << pair.gate << ", " << pair.up;
  }
}

TEST(Join, Swiglu) {
  for (const Pair& p : {Pair{0, 3}, {2, -1.5F}, {-3, 0.5F}, {40, 2}, {-40, 2}}) {
    Expect(Activation::kSwiglu, p, p.gate / (1 + std::exp(-static_cast<double>(p.gate))) * p.up);
  }
}

TEST(Join, LimitsOfSwiglu) {
  std::vector<float> gate = {9.0F, 9.0F, -9.0F, 0.5F};
  const std::vector<float> up = {12.0F, -12.0F, 2.0F, 1.0F};
  Join(Activation::kSwiglu, up, gate, 4.0F);
  EXPECT_EQ(gate[0], 16.0F);
  EXPECT_EQ(gate[1], -16.0F);
  EXPECT_NEAR(gate[2], -9 / (1 + std::exp(9.0)) * 2, kTolerance);
  EXPECT_NEAR(gate[3], 0.5 / (1 + std::exp(-0.5)), kTolerance);
  gate = {9.0F, 9.0F, -9.0F, 0.5F};
  Join(Activation::kSwigluGate, up, gate, 4.0F);
  EXPECT_NEAR(gate[0], 4 / (1 + std::exp(-4.0)) * 4, kTolerance);
  EXPECT_NEAR(gate[1], 4 / (1 + std::exp(-4.0)) * -4, kTolerance);
  EXPECT_NEAR(gate[2], -9 / (1 + std::exp(9.0)) * 2, kTolerance);
  EXPECT_NEAR(gate[3], 0.5 / (1 + std::exp(-0.5)), kTolerance);
  for (const Activation activation : {Activation::kSwiglu, Activation::kSwigluGate}) {
    gate = {std::nanf(""), 1.0F};
    Join(activation, std::vector<float>{1.0F, std::nanf("")}, gate, 4.0F);
    EXPECT_TRUE(std::isnan(gate[0]) && std::isnan(gate[1]));
  }
}

// The nodes of a graph give what the loop gives, NaN included.
class LimitedActivation : public testing::TestWithParam<Activation> {};

INSTANTIATE_TEST_SUITE_P(All, LimitedActivation,
                         testing::Values(Activation::kSwiglu, Activation::kSwigluGate));

TEST_P(LimitedActivation, AsJoined) {
  constexpr float kLimit = 0.5F;
  std::vector<float> gate = {9.0F, -9.0F, 0.25F, std::nanf(""), 1.0F, -0.125F};
  std::vector<float> up = {12.0F, 2.0F, 0.25F, 1.0F, std::nanf(""), -7.0F};
  CpuDevice device = *CpuDevice::Open(1);
  GraphArena arena(device.backend(), 32);
  ggml_context* ctx = arena.Begin();
  auto buffer = *BackendBuffer::OnHost(4096);
  const auto place = [&](const std::vector<float>& from, uint64_t at) {
    ggml_tensor* t = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, static_cast<int64_t>(from.size()));
    buffer.Place(t, at);
    std::ranges::copy(from, static_cast<float*>(t->data));
    return t;
  };
  ggml_tensor* joined = Activate(ctx, GetParam(), place(gate, 0), place(up, 64), kLimit);
  buffer.Place(joined, 128);
  ggml_build_forward_expand(arena.graph(), joined);
  ASSERT_TRUE(arena.Run());
  Join(GetParam(), up, gate, kLimit);
  for (size_t i = 0; i < gate.size(); ++i) {
    const float found = static_cast<const float*>(joined->data)[i];
    EXPECT_EQ(std::isnan(found), std::isnan(gate[i])) << i;
    if (std::isnan(gate[i])) continue;
    EXPECT_NEAR(found, gate[i], kTolerance) << i;
  }
}

TEST(Join, GegluByTheTanhFormula) {
  for (const Pair& p : {Pair{0, 3}, {2, -1.5F}, {-3, 0.5F}, {40, 2}}) {
    const double g = p.gate;
    const double inner = std::sqrt(2.0 / std::acos(-1.0)) * (g + 0.044715 * g * g * g);
    Expect(Activation::kGeglu, p, 0.5 * g * (1 + std::tanh(inner)) * p.up);
  }
}

TEST(Join, SwigluOaiClampsBothAndAddsOne) {
  Expect(Activation::kSwigluOai, {1, 2}, 1 / (1 + std::exp(-1.702)) * 3);
  Expect(Activation::kSwigluOai, {9, 12}, 7 / (1 + std::exp(-1.702 * 7)) * 8);
  Expect(Activation::kSwigluOai, {-9, -12}, -9 / (1 + std::exp(1.702 * 9)) * -6);
}

constexpr int64_t kProductIn = 512;
constexpr size_t kMostRows = 150;  // three groups of activations

std::vector<float> Normal(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

// Matrices of these types and numbers of rows, of random weights.
class Matrices {
 public:
  struct Shape {
    ggml_type type;
    int64_t n_out;
  };
  Matrices(const CpuDevice& device, const std::vector<Shape>& shapes, bool allow_repack) {
    std::vector<WeightRequest> requests;
    for (const Shape& s : shapes) {
      requests.push_back({.name = "w",
                          .type = s.type,
                          .ne = {kProductIn, s.n_out, 1, 1},
                          .only_multiplied = true});
    }
    set_ = WeightSet::Plan(device, requests, {.allow_repack = allow_repack});
    EXPECT_TRUE(set_.Allocate().has_value());
    for (size_t i = 0; i < shapes.size(); ++i) {
      const std::vector<float> values =
          Normal(static_cast<size_t>(kProductIn * shapes[i].n_out), static_cast<uint32_t>(i));
      std::vector<std::byte> bytes(static_cast<size_t>(shapes[i].n_out) *
                                   ggml_row_size(shapes[i].type, kProductIn));
      MakeUpWeights(shapes[i].type, values, kProductIn, bytes);
      EXPECT_TRUE(set_.Store(i, 0, bytes));
      weights_.push_back(set_.tensor(i));
    }
  }
  const std::vector<ggml_tensor*>& weights() const { return weights_; }

 private:
  WeightSet set_;
  std::vector<ggml_tensor*> weights_;
};

// The difference of a product whose terms are added in another order. A product is about
// sqrt(kProductIn) = 23 large; its terms sum up to 330 in size, of which the order of 16 + 8
// additions moves 2^-24 each.
constexpr double kOtherOrder = 330 * 24.0 / (1 << 24);

enum class Way : uint8_t { kOneNode, kNodeForEach, kNormed };

// Compares a norm in the node with a norm before the node.
const RowNorm kNorm{.kernel = RowKernel::ForThisMachine(), .eps = 1e-6F};
std::vector<float> NormWeight() { return Normal(kProductIn, 77); }

// Products of rows [first, first + rows) of `x` [..][kProductIn] -> for each matrix [rows][n_out].
std::vector<std::vector<float>> Multiply(CpuDevice& device, const std::vector<ggml_tensor*>& w,
                                         const std::vector<float>& x, size_t first, size_t rows,
                                         Way way) {
  GraphArena arena(device.backend(), 32);
  ggml_context* ctx = arena.Begin();
  auto buffer = BackendBuffer::OnHost(rows * kProductIn * sizeof(float));
  EXPECT_TRUE(buffer.has_value());
  ggml_tensor* in = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kProductIn, static_cast<int64_t>(rows));
  buffer->Place(in, 0);
  std::copy_n(x.begin() + static_cast<int64_t>(first) * kProductIn, rows * kProductIn,
              reinterpret_cast<float*>(buffer->data()));
  std::vector<ggml_tensor*> products(w.size());
  auto norm_buffer = BackendBuffer::OnHost(kProductIn * sizeof(float));
  EXPECT_TRUE(norm_buffer.has_value());
  ggml_tensor* norm_weight = ggml_new_tensor_1d(ctx, GGML_TYPE_F32, kProductIn);
  norm_buffer->Place(norm_weight, 0);
  std::ranges::copy(NormWeight(), reinterpret_cast<float*>(norm_buffer->data()));
  if (way == Way::kOneNode) {
    MultiplyNodes(ctx, w, in, products);
  } else if (way == Way::kNormed) {
    MultiplyNodes(ctx, w, in, products, {.norm = &kNorm, .weight = norm_weight});
  } else {
    for (size_t i = 0; i < w.size(); ++i) products[i] = MultiplyNode(ctx, w[i], in);
  }
  for (ggml_tensor* product : products) {
    ggml_set_output(product->view_src != nullptr ? product->view_src : product);
    ggml_build_forward_expand(arena.graph(), product);
  }
  EXPECT_TRUE(arena.Run().has_value());
  std::vector<std::vector<float>> results;
  for (const ggml_tensor* product : products) {
    EXPECT_TRUE(ggml_is_contiguous(product));
    EXPECT_EQ(product->ne[1], static_cast<int64_t>(rows));
    const auto* values = static_cast<const float*>(product->data);
    results.emplace_back(values, values + ggml_nelements(product));
  }
  return results;
}

constexpr ggml_type kTypes[] = {
    GGML_TYPE_Q4_0,   GGML_TYPE_Q4_1,    GGML_TYPE_Q5_0,  GGML_TYPE_Q5_1,
    GGML_TYPE_Q8_0,   GGML_TYPE_IQ4_NL,  GGML_TYPE_MXFP4, GGML_TYPE_Q2_K,
    GGML_TYPE_Q3_K,   GGML_TYPE_Q4_K,    GGML_TYPE_Q5_K,  GGML_TYPE_Q6_K,
    GGML_TYPE_IQ4_XS, GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S, GGML_TYPE_IQ2_S};

// K-quants from eight rows on, too, which ggml's tiled product multiplies by other rules.
TEST(ProductNode, RowsTogetherHaveTheBitsOfRowsAlone) {
  const std::vector<float> x = Normal(kMostRows * kProductIn, 99);
  for (const ggml_type type : kTypes) {
    for (const uint32_t threads : {1U, 2U, 3U}) {
      auto device = CpuDevice::Open(threads);
      ASSERT_TRUE(device.has_value());
      // Whole tiles, a part of one, and fewer rows than a quad.
      const Matrices m(*device, {{type, 208}, {type, 37}, {type, 3}}, true);
      if (!ShareNode(m.weights())) GTEST_SKIP() << "this processor has no kernels of ours";
      const auto together = Multiply(*device, m.weights(), x, 0, kMostRows, Way::kOneNode);
      for (const size_t row : {size_t{0}, size_t{63}, size_t{64}, kMostRows - 1}) {
        const auto alone = Multiply(*device, m.weights(), x, row, 1, Way::kNodeForEach);
        for (size_t i = 0; i < alone.size(); ++i) {
          const auto width = static_cast<int64_t>(alone[i].size());
          const auto at = together[i].begin() + static_cast<int64_t>(row) * width;
          EXPECT_EQ(alone[i], std::vector<float>(at, at + width))
              << ggml_type_name(type) << ", matrix " << i << ", row " << row;
        }
      }
    }
  }
}

// One row alone, as many as each thread quantises for itself, and more than these.
TEST(ProductNode, NormsRowsAsIfTheyHadBeenNormedBefore) {
  const std::vector<float> x = Normal(kMostRows * kProductIn, 97);
  std::vector<float> normed = x;
  const std::vector<float> weight = NormWeight();
  for (size_t row = 0; row < kMostRows; ++row) {
    float* const values = normed.data() + row * kProductIn;
    kNorm.kernel.norm(
        {.from = values, .weight = weight.data(), .to = values, .n = kProductIn, .eps = kNorm.eps});
  }
  for (const uint32_t threads : {1U, 3U}) {
    auto device = CpuDevice::Open(threads);
    ASSERT_TRUE(device.has_value());
    const Matrices m(*device, {{GGML_TYPE_Q4_0, 208}, {GGML_TYPE_Q4_0, 37}}, true);
    if (!ShareNode(m.weights())) GTEST_SKIP() << "this processor has no kernels of ours";
    for (const size_t rows : {size_t{1}, size_t{4}, size_t{5}, kMostRows}) {
      EXPECT_EQ(Multiply(*device, m.weights(), x, 0, rows, Way::kNormed),
                Multiply(*device, m.weights(), normed, 0, rows, Way::kOneNode))
          << rows << " rows, " << threads << " threads";
    }
  }
}

// Routers: few outputs, F32, with ggml's dot products.
TEST(ProductNode, RoutersHaveANodeOfOursWithTheBitsOfRowsAlone) {
  const std::vector<float> x = Normal(kMostRows * kProductIn, 96);
  auto device = CpuDevice::Open(2);
  ASSERT_TRUE(device.has_value());
  const Matrices m(*device, {{GGML_TYPE_F32, 128}}, true);
  ASSERT_NE(RowProductOf(m.weights()[0]), nullptr);
  ASSERT_NE(RowProductOf(m.weights()[0])->kernel, nullptr);
  const auto together = Multiply(*device, m.weights(), x, 0, kMostRows, Way::kNodeForEach);
  const Matrices plain(*device, {{GGML_TYPE_F32, 128}}, false);
  const auto by_ggml = Multiply(*device, plain.weights(), x, 0, kMostRows, Way::kNodeForEach);
  for (size_t i = 0; i < together[0].size(); ++i) {
    ASSERT_NEAR(together[0][i], by_ggml[0][i], kOtherOrder);
  }
  for (const size_t row : {size_t{0}, kMostRows - 1}) {
    const auto alone = Multiply(*device, m.weights(), x, row, 1, Way::kNodeForEach);
    const auto at = together[0].begin() + static_cast<int64_t>(row * 128);
    EXPECT_EQ(alone[0], std::vector<float>(at, at + 128));
  }
}

// Rows are longer than a block of a matrix that is kept for all rows of activations.
TEST(ProductNode, ManyRowsOfALargeMatrixAreThoseOfTheFileLayout) {
  const std::vector<float> x = Normal(kMostRows * kProductIn, 98);
  auto device = CpuDevice::Open(2);
  ASSERT_TRUE(device.has_value());
  const std::vector<Matrices::Shape> shapes = {{GGML_TYPE_Q8_0, 2000}};
  const Matrices own(*device, shapes, true);
  const Matrices plain(*device, shapes, false);
  const auto a = Multiply(*device, own.weights(), x, 0, kMostRows, Way::kNodeForEach);
  const auto b = Multiply(*device, plain.weights(), x, 0, kMostRows, Way::kNodeForEach);
  ASSERT_EQ(a[0].size(), b[0].size());
  for (size_t i = 0; i < a[0].size(); ++i) ASSERT_NEAR(a[0][i], b[0][i], kOtherOrder);
}

TEST(ProductNode, MatricesThatReadDifferentActivationsShareNoNode) {
  auto device = CpuDevice::Open(1);
  ASSERT_TRUE(device.has_value());
  const Matrices m(*device,
                   {{GGML_TYPE_Q4_0, 32},
                    {GGML_TYPE_Q4_0, 32},
                    {GGML_TYPE_Q4_K, 32},
                    {GGML_TYPE_Q6_K, 32},
                    {GGML_TYPE_F32, 32}},
                   true);
  const std::vector<ggml_tensor*>& w = m.weights();
  // Where ggml multiplies in tiles, as on processors with AMX, no node of ours does.
  const auto is_ours = [](const ggml_tensor* t) {
    const RowProduct* product = RowProductOf(t);
    return product != nullptr && product->kernel != nullptr;
  };
  if (!std::ranges::all_of(std::span(w).first(4), is_ours))
    GTEST_SKIP() << "this processor has no nodes of ours for some of the types";
  EXPECT_TRUE(ShareNode(std::array{w[0], w[1]}));
  EXPECT_TRUE(ShareNode(std::array{w[2], w[3]}));
  EXPECT_FALSE(ShareNode(std::array{w[0], w[2]}));
  EXPECT_FALSE(ShareNode(std::array{w[0], w[4]}));
  EXPECT_FALSE(ShareNode(std::array{w[4], w[0]}));
}

// The quantised weights among those that keep their layout.
TEST(ProductNode, PlainWeightsAreMultipliedByGgmlRowByRow) {
  auto device = CpuDevice::Open(1);
  ASSERT_TRUE(device.has_value());
  const Matrices m(*device, {{GGML_TYPE_Q4_0, 32}, {GGML_TYPE_Q4_0, 32}, {GGML_TYPE_F32, 32}},
                   false);
  ASSERT_NE(RowProductOf(m.weights()[0]), nullptr);
  EXPECT_EQ(RowProductOf(m.weights()[0])->kernel, nullptr);
  EXPECT_EQ(RowProductOf(m.weights()[2]), nullptr);
  EXPECT_FALSE(ShareNode(m.weights()));
}

}  // namespace
}  // namespace moestro
