// SPDX-License-Identifier: MIT
// How many reads the disk gets at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace moestro {

// What is tried, the usual one first: four reads of up to 1 MiB fill a virtual disk (the table in
// store/read_queue.h), drives with many channels want more.
inline constexpr std::array<uint32_t, 4> kIoDepths{4, 8, 16, 32};

struct DepthSpeed {
  uint32_t depth = 0;             // reads at a time
  double bytes_per_second = 0.0;  // measured with so many
};

// The fewest reads at a time that come within 5 % of the best: with more of them experts land
// together, late, and a demand read waits behind more. REQUIRES: something was measured.
uint32_t FewestThatFill(std::span<const DepthSpeed> measured);

}  // namespace moestro
