// SPDX-License-Identifier: MIT
#include "compute/weight_set.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <future>
#include <random>
#include <thread>
#include <vector>

#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"
#include "compute/product_node.h"

namespace moestro {
namespace {

// Each tile once, in every product, whichever thread is slow; also with fewer tiles than threads
// and with fewer threads than there could be.
TEST(TileShares, ThreadsTakeEveryTileOnce) {
  constexpr int kMost = 4;
  TileShares shares(kMost);
  for (const int n_threads : {1, 2, 3, 4}) {
    for (const int64_t tiles : {0, 1, 3, 7, 48, 1001}) {
      std::vector<std::atomic<int>> taken(static_cast<size_t>(tiles));
      constexpr int kProducts = 5;
      std::barrier together(n_threads);
      const auto work = [&](int thread) {
        for (int p = 0; p < kProducts; ++p) {
          shares.Each(tiles, thread, n_threads, [&](int64_t begin, int64_t end) {
            EXPECT_LT(begin, end);
            for (int64_t t = begin; t < end; ++t) ++taken[static_cast<size_t>(t)];
          });
          together.arrive_and_wait();
        }
      };
      std::vector<std::jthread> threads;
      for (int t = 1; t < n_threads; ++t) threads.emplace_back(work, t);
      work(0);
      threads.clear();
      for (const std::atomic<int>& n : taken) EXPECT_EQ(n, kProducts);
    }
  }
}

TEST(TileShares, AThreadThatHasFinishedHelpsASlowOne) {
  TileShares shares(2);
  int64_t of_slow = 0;
  std::promise<void> has_begun;
  std::promise<void> others_are_done;
  std::jthread slow([&] {
    shares.Each(100, 1, 2, [&](int64_t begin, int64_t end) {
      of_slow += end - begin;
      has_begun.set_value();  // once: there is no second piece
      others_are_done.get_future().wait();
    });
  });
  has_begun.get_future().wait();
  int64_t of_fast = 0;
  shares.Each(100, 0, 2, [&](int64_t begin, int64_t end) { of_fast += end - begin; });
  others_are_done.set_value();
  slow.join();
  EXPECT_EQ(of_slow, 16);  // a third of its fifty
  EXPECT_EQ(of_fast, 84);
}

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
  GraphArena arena(device.backend(), 16);
  ggml_context* ctx = arena.Begin();
  auto buffer = BackendBuffer::OnHost(64 * 1024);
  EXPECT_TRUE(buffer.has_value());
  ggml_tensor* x = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, kIn, 1);
  buffer->Place(x, 0);
  for (int64_t i = 0; i < kIn; ++i) {
    reinterpret_cast<float*>(buffer->data())[i] = std::sin(static_cast<float>(i));
  }
  ggml_tensor* y = MultiplyNode(ctx, weight, x);
  buffer->Place(y, 32 * 1024);
  ggml_build_forward_expand(arena.graph(), y);
  EXPECT_TRUE(arena.Run().has_value());
  const auto* out = reinterpret_cast<const float*>(buffer->data() + 32 * 1024);
  return {out, out + kOut};
}

// Per output: the sum of |weight * activation|, the size that rounding errors are measured against.
std::vector<double> Magnitudes(ggml_type type, const std::vector<std::byte>& bytes) {
  std::vector<double> sums;
  std::vector<float> row(kIn);
  for (size_t r = 0; r < kOut; ++r) {
    ggml_get_type_traits(type)->to_float(bytes.data() + r * ggml_row_size(type, kIn), row.data(),
                                         kIn);
    double sum = 0.0;
    for (size_t i = 0; i < kIn; ++i) sum += std::abs(row[i] * std::sin(static_cast<float>(i)));
    sums.push_back(sum);
  }
  return sums;
}

struct Stored {
  bool is_repacked = false;
  std::vector<float> product;
};

Stored StoreAndMultiply(CpuDevice& device, ggml_type type, const std::vector<std::byte>& bytes,
                        bool allow_repack) {
  WeightSet set = WeightSet::Plan(
      device, {{.name = "w", .type = type, .ne = {kIn, kOut, 1, 1}, .only_multiplied = true}},
      {.allow_repack = allow_repack});
  EXPECT_GE(set.bytes(), bytes.size());
  EXPECT_TRUE(set.Allocate().has_value());
  EXPECT_TRUE(set.Store(0, 0, bytes));
  return {.is_repacked = set.is_repacked(0), .product = Multiply(device, set.tensor(0))};
}

// Whatever layout a weight is stored in, its product is the same up to the order of additions: a
// layout of a quantised type rounds activations to the same 8-bit blocks as ggml's plain product.
// Products within a block of 32 are added as integers, so there are kIn / 32 additions of floats
// and less than as many again over the lanes of a register, each off by 2^-24 of what it adds up.
// What is added up may be four times as large as the sum: types with minima add d*q*x and m*x. (On
// an AVX-512 machine the largest difference is 3e-8 of 4e-6 allowed; an activation rounded the
// other way would make about 3e-5.)
TEST(WeightSet, RepackedWeightsMultiplyAlike) {
  auto device = CpuDevice::Open(1);
  ASSERT_TRUE(device.has_value());
  constexpr double kShare = 2.0 * kIn / 32 * 4 / (1 << 24);
  for (const ggml_type type : {GGML_TYPE_Q4_0, GGML_TYPE_Q8_0, GGML_TYPE_Q2_K, GGML_TYPE_Q4_K,
                               GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_IQ4_NL}) {
    const std::vector<std::byte> bytes = RandomMatrix(type);
    const std::vector<double> magnitudes = Magnitudes(type, bytes);
    const Stored plain = StoreAndMultiply(*device, type, bytes, false);
    const Stored repacked = StoreAndMultiply(*device, type, bytes, true);
    EXPECT_FALSE(plain.is_repacked);
    for (size_t i = 0; i < kOut; ++i) {
      ASSERT_GT(magnitudes[i], 0.0);
      EXPECT_NEAR(plain.product[i], repacked.product[i], kShare * magnitudes[i])
          << ggml_type_name(type);
    }
  }
}

// ggml's AMX buffer takes F16 and multiplies it by other rules than its plain product, which rounds
// activations to F16: docs/decisions/0006.
TEST(WeightSet, FloatingPointWeightsKeepTheirLayout) {
  auto device = CpuDevice::Open(1);
  ASSERT_TRUE(device.has_value());
  for (const ggml_type type : {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16}) {
    const std::vector<std::byte> bytes = RandomMatrix(type);
    const Stored plain = StoreAndMultiply(*device, type, bytes, false);
    const Stored allowed = StoreAndMultiply(*device, type, bytes, true);
    EXPECT_FALSE(allowed.is_repacked) << ggml_type_name(type);
    EXPECT_EQ(plain.product, allowed.product) << ggml_type_name(type);
  }
}

TEST(WeightSet, LookedUpWeightsKeepTheirLayout) {
  auto device = CpuDevice::Open(1);
  ASSERT_TRUE(device.has_value());
  const WeightSet set = WeightSet::Plan(
      *device, {{.name = "embd", .type = GGML_TYPE_Q4_0, .ne = {kIn, kOut, 1, 1}}}, {});
  EXPECT_FALSE(set.is_repacked(0));
}

}  // namespace
}  // namespace moestro
