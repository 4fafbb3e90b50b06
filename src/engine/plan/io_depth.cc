// SPDX-License-Identifier: MIT
#include "engine/plan/io_depth.h"

#include <algorithm>

#include "base/result.h"

namespace moestro {

uint32_t FewestThatFill(std::span<const DepthSpeed> measured) {
  constexpr double kNearlyAll = 0.95;
  CHECK(!measured.empty());
  const double best =
      std::ranges::max_element(measured, {}, &DepthSpeed::bytes_per_second)->bytes_per_second;
  uint32_t fewest = UINT32_MAX;
  for (const DepthSpeed& m : measured) {
    if (m.bytes_per_second >= kNearlyAll * best) fewest = std::min(fewest, m.depth);
  }
  return fewest;
}

uint64_t RequestBytes(double bytes_per_second, uint32_t depth) {
  constexpr double kSeconds = 0.5e-3;
  constexpr uint64_t kMostAtATime = kIoDepths.back() * kLeastRequest;
  uint64_t bytes = kLeastRequest;
  while (2 * bytes <= kMostRequest &&
         static_cast<double>(2 * bytes) <= bytes_per_second * kSeconds &&
         2 * bytes * depth <= kMostAtATime) {
    bytes *= 2;
  }
  return bytes;
}

}  // namespace moestro
