// SPDX-License-Identifier: MIT
#include "forward/dense/finite.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace moestro {
namespace {

// Infinity as an integer. Magnitudes from here on are infinite or NaN.
constexpr int32_t kInfinity = 0x7f800000;

// Values that are compared at once: enough for the compiler to use vectors.
constexpr size_t kTogether = 64;

int32_t Magnitude(float value) { return std::bit_cast<int32_t>(value) & 0x7fffffff; }

bool AreFinite(std::span<const float> values) {
  std::array<int32_t, kTogether> largest{};
  size_t at = 0;
  for (; at + kTogether <= values.size(); at += kTogether) {
    for (size_t i = 0; i < kTogether; ++i) {
      largest[i] = std::max(largest[i], Magnitude(values[at + i]));
    }
  }
  for (; at < values.size(); ++at) largest[0] = std::max(largest[0], Magnitude(values[at]));
  return std::ranges::max(largest) < kInfinity;
}

}  // namespace

std::optional<size_t> FirstRowNotFinite(std::span<const float> values, size_t width) {
  if (AreFinite(values)) return std::nullopt;
  for (size_t row = 0; row * width < values.size(); ++row) {
    if (!AreFinite(values.subspan(row * width, width))) return row;
  }
  return std::nullopt;
}

}  // namespace moestro
