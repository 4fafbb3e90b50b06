// SPDX-License-Identifier: MIT
#include "compute/weight_set.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "compute/device.h"
#include "compute/graph_arena.h"

namespace moestro {
namespace {

constexpr int64_t kIn = 256;
constexpr int64_t kOut = 64;

std::vector<std::byte> RandomMatrix(ggml_type type) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values(kIn * kOut);
  for (float& v : values) v = normal(random);
  std::vector<std::byte> bytes(static_cast<size_t>(kOut) * ggml_row_size(type, kIn));
  ggml_quantize_chunk(type, values.data(), bytes.data(), 0, kOut, kIn, nullptr);
  return bytes;
}

std::vector<float> Multiply(CpuDevice& device, ggml_tensor* weight) {
  GraphArena arena(device, 16);
  ggml_context* ctx = arena.Begin();
  auto buffer = HostBuffer::Allocate(64 * 1024);
  EXPECT_TRUE(buffer.has_value());
  ggml_tensor* x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kIn, 1);
  buffer->Place(x, 0);
  for (int64_t i = 0; i < kIn; ++i) {
    reinterpret_cast<float*>(buffer->data())[i] = std::sin(static_cast<float>(i));
  }
  ggml_tensor* y = ggml_mul_mat(ctx, weight, x);
  buffer->Place(y, 32 * 1024);
  ggml_build_forward_expand(arena.graph(), y);
  EXPECT_TRUE(arena.Run().has_value());
  const auto* out = reinterpret_cast<const float*>(buffer->data() + 32 * 1024);
  return {out, out + kOut};
}

// Whatever layout a weight is stored in, its product is the same up to the order of additions.
TEST(WeightSet, RepackedWeightsMultiplyAlike) {
  auto device = CpuDevice::Open(1);
  ASSERT_TRUE(device.has_value());
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_Q4_K, GGML_TYPE_F16}) {
    const std::vector<std::byte> bytes = RandomMatrix(type);
    std::vector<std::vector<float>> products;
    for (const bool repack : {false, true}) {
      WeightSet set = WeightSet::Plan(
          *device, {{.name = "w", .type = type, .ne = {kIn, kOut, 1, 1}, .only_multiplied = true}},
          repack);
      EXPECT_GE(set.bytes(), bytes.size());
      ASSERT_TRUE(set.Allocate().has_value());
      set.Store(0, 0, bytes);
      products.push_back(Multiply(*device, set.tensor(0)));
    }
    double size = 0.0;
    for (const float y : products[0]) size = std::max(size, std::abs(static_cast<double>(y)));
    ASSERT_GT(size, 0.0);
    for (size_t i = 0; i < kOut; ++i) {
      EXPECT_NEAR(products[0][i], products[1][i], size * 1e-5) << ggml_type_name(type);
    }
  }
}

TEST(WeightSet, LookedUpWeightsKeepTheirLayout) {
  auto device = CpuDevice::Open(1);
  ASSERT_TRUE(device.has_value());
  const WeightSet set = WeightSet::Plan(
      *device, {{.name = "embd", .type = GGML_TYPE_Q4_0, .ne = {kIn, kOut, 1, 1}}}, true);
  EXPECT_FALSE(set.is_repacked(0));
  EXPECT_EQ(set.largest_repacked(), 0U);
}

}  // namespace
}  // namespace moestro
