// SPDX-License-Identifier: MIT
#include "device/half_vector.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace moestro {
namespace {

std::vector<Half> RandomHalves(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0.0F, 2.0F);
  std::vector<Half> halves(n);
  for (Half& h : halves) h = ggml_fp32_to_fp16(values(random));
  return halves;
}

// Lengths around the width of a vector, so that the rest of a row is covered too.
TEST(HalfVector, TheFastOneGivesTheBitsOfThePortableOne) {
  const HalfVector fast = HalfVector::ForThisMachine();
  const HalfVector portable = HalfVector::Portable();
  for (const size_t n : {1U, 7U, 8U, 9U, 64U, 128U, 131U}) {
    const std::vector<Half> x = RandomHalves(n, 1);
    std::vector<Half> a = RandomHalves(n, 2);
    std::vector<Half> b = a;
    for (const float factor : {0.0F, 1.0F, 0.37F, 1e-4F, -3.0F}) {
      fast.add_scaled(a.data(), x.data(), factor, n);
      portable.add_scaled(b.data(), x.data(), factor, n);
      EXPECT_EQ(a, b) << n << " add " << factor;
      fast.scale(a.data(), 1.0F + factor, n);
      portable.scale(b.data(), 1.0F + factor, n);
      EXPECT_EQ(a, b) << n << " scale " << factor;
    }
  }
}

TEST(HalfVector, ComputesWhatItSays) {
  std::vector<Half> y = {ggml_fp32_to_fp16(2.0F)};
  const std::vector<Half> x = {ggml_fp32_to_fp16(0.5F)};
  HalfVector::ForThisMachine().add_scaled(y.data(), x.data(), 3.0F, 1);
  EXPECT_EQ(ggml_fp16_to_fp32(y[0]), 3.5F);
  HalfVector::ForThisMachine().scale(y.data(), 2.0F, 1);
  EXPECT_EQ(ggml_fp16_to_fp32(y[0]), 7.0F);
}

}  // namespace
}  // namespace moestro
