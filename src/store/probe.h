// SPDX-License-Identifier: MIT
// What the disk gives when nothing else is asked of it: the denominator of "percent of the bound".
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "core/extent.h"
#include "store/block_reader.h"

namespace moestro {

struct BandwidthProbe {
  double bytes_per_second = 0.0;
  uint64_t bytes = 0;  // read by the probe
  double seconds = 0.0;
};

struct ProbeOptions {
  uint64_t request = 1 << 20;   // bytes; pass the size that real reads have
  unsigned depth = 8;           // requests in flight
  uint64_t total = 256u << 20;  // bytes to read, less for small files
  uint64_t seed = 1;
};

// Reads `request` bytes at seeded random aligned offsets, none twice, out of `regions` (for example
// the expert tensors) and times them. Uses request * depth bytes of memory while it runs.
// REQUIRES: nothing else is in flight on `reader`.
// Errors: kIo when a read fails; kInvalidRequest without a region; kNoMemory.
Result<BandwidthProbe> ProbeBandwidth(BlockReader& reader, std::span<const Extent> regions,
                                      const ProbeOptions& options);

}  // namespace moestro
