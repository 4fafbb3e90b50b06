// SPDX-License-Identifier: MIT
#include "device/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

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

}  // namespace
}  // namespace moestro
