// SPDX-License-Identifier: MIT
// Measures the disk's bandwidth while no other code reads: the denominator of "percent of the
// bound".
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <thread>
#include <vector>

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

// Reads at random places on a thread of its own while another thread computes: a disk and a
// processor that work at the same time give less than each gives alone.
//
// Thread rule: one thread calls the methods.

class ReadsBeside {
 public:
  // Opens a reader on the thread that uses it: a ring belongs to its thread.
  using Open = std::function<Result<std::unique_ptr<BlockReader>>()>;
  // Begins to read as ProbeBandwidth() does, over and over.
  ReadsBeside(Open open, std::vector<Extent> regions, const ReadQueueOptions& reads);
  ReadsBeside(const ReadsBeside&) = delete;
  ReadsBeside& operator=(const ReadsBeside&) = delete;
  // Ends the reading and returns its bytes per second. Errors: those of `open` and of
  // ProbeBandwidth(). REQUIRES: called once.
  Result<double> Stop();

 private:
  void Read(const std::stop_token& stop);
  Status ReadUntil(const std::stop_token& stop);

  const Open open_;
  const std::vector<Extent> regions_;
  const ReadQueueOptions reads_;
  uint64_t bytes_ = 0;  // owned by thread_ until it ends, like seconds_ and error_
  double seconds_ = 0.0;
  std::optional<Error> error_;
  std::jthread thread_;  // goes first
};

}  // namespace moestro
