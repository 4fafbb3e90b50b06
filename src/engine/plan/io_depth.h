// SPDX-License-Identifier: MIT
// Chooses the number of reads that the disk gets at a time, and their size.
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

// Bytes of one read at most, with `depth` at a time: what the disk reads in half a millisecond, but
// a power of two from kLeastRequest to kMostRequest. Each read costs the processor the same, so
// fast drives get larger ones; a demand read waits no longer for them than on a slow disk. All
// reads at a time take no more than kIoDepths.back() of the least would. Any speed may come in.
inline constexpr uint64_t kLeastRequest = 1U << 20;
inline constexpr uint64_t kMostRequest = 4U << 20;
uint64_t RequestBytes(double bytes_per_second, uint32_t depth);

}  // namespace moestro
