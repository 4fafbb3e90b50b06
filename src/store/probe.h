// SPDX-License-Identifier: MIT
// Measures the disk's bandwidth while no other code reads: the denominator of "percent of the
// bound".
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "base/result.h"
#include "core/extent.h"
#include "store/block_reader.h"
#include "store/read_queue.h"

namespace moestro {

struct BandwidthProbe {
  double bytes_per_second = 0.0;
  uint64_t bytes = 0;  // read by the probe
  double seconds = 0.0;
};

struct ProbeOptions {
  ReadQueueOptions reads;       // of the measured queue: how extents are split, the depth
  uint64_t total = 256u << 20;  // bytes to read, less for small files
  double most_seconds = std::numeric_limits<double>::infinity();  // no read is begun later
  uint64_t seed = 1;
};

// Reads at seeded random places out of `regions` (the experts' matrices), none twice, and times it.
// Regions are split as a ReadQueue splits extents and as many reads are in flight, so that the
// probe measures what the engine does. Uses max_request * max_in_flight bytes of memory at most.
// REQUIRES: nothing else is in flight on `reader`.
// Errors: kIo when a read fails; kInvalidRequest without a region; kNoMemory.
Result<BandwidthProbe> ProbeBandwidth(BlockReader& reader, std::span<const Extent> regions,
                                      const ProbeOptions& options);

}  // namespace moestro
