// SPDX-License-Identifier: MIT
// Chooses the number of reads that the disk gets at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace moestro {

// The depths that are tried, the usual one first: four reads of up to 1 MiB fill a virtual disk
// (the table in store/read_queue.h), drives with many channels want more.
inline constexpr std::array<uint32_t, 4> kIoDepths{4, 8, 16, 32};

struct DepthSpeed {
  uint32_t depth = 0;             // reads at a time
  double bytes_per_second = 0.0;  // measured with this depth
};

// The smallest depth whose speed is within 5 % of the best. With more reads at a time experts land
// together and late, and a demand read waits for more reads. REQUIRES: `measured` is not empty.
uint32_t FewestThatFill(std::span<const DepthSpeed> measured);

}  // namespace moestro
