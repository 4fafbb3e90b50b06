// SPDX-License-Identifier: MIT
// Extents instead of windows: splits large reads, bounds what is in flight, puts demand before
// speculation, finishes short reads, retries a failed one once. Sits on a BlockReader.
//
// Thread rule: engine thread only, no locks. Pump() is cheap when nothing happened (well under a
// microsecond) because the engine calls it between pieces of computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "core/extent.h"
#include "store/block_reader.h"

namespace moestro {

enum class Urgency : uint8_t { kDemand, kSpeculative };

struct ExtentRead {
  Extent from;
  // Where the covering window lands; the extent's first byte ends up at landing[residue], see
  // CoveringWindow(). REQUIRES: size >= WindowCapacity(from.length, block), address aligned.
  std::span<std::byte> landing;
  uint64_t tag = 0;  // unique among unfinished reads
  Urgency urgency = Urgency::kDemand;
};

struct ExtentDone {
  uint64_t tag = 0;
  std::optional<Error> error;  // set after a failed retry; names file, offset and cause
};

struct ReadQueueOptions {
  uint64_t max_request = 1 << 20;  // bytes per device read; longer extents are split
  unsigned max_in_flight = 16;     // device reads at a time
  unsigned max_speculative = 8;    // of these for speculation, while no demand read waits
};

struct ReadStats {
  uint64_t requests = 0;       // device reads
  uint64_t bytes = 0;          // bytes of device reads, padding included
  uint64_t demand_bytes = 0;   // wanted bytes of finished demand reads
  uint64_t speculative_bytes = 0;
  uint64_t retries = 0;
  template <class V>
  void Visit(V&& v) const {
    v("read_requests", requests);
    v("read_bytes", bytes);
    v("read_demand_bytes", demand_bytes);
    v("read_speculative_bytes", speculative_bytes);
    v("read_retries", retries);
  }
};

class ReadQueue {
 public:
  // `paths` serve error messages only. The reader must outlive the queue.
  ReadQueue(BlockReader& reader, std::vector<std::string> paths, ReadQueueOptions options = {});
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;
  // Waits for what is in flight: memory must not be written after it is gone.
  ~ReadQueue();

  void Enqueue(const ExtentRead& read);
  // Makes a waiting speculative read a demand read. No effect on others.
  void Promote(uint64_t tag);
  // Drops a read of which no part has been handed to the device. False: too late or unknown.
  bool Cancel(uint64_t tag);
  // Submits what may be submitted and collects what is done; never blocks. Appends to `done`.
  void Pump(std::vector<ExtentDone>& done);
  // Like Pump, but returns only when something finished or nothing is left to wait for.
  void Wait(std::vector<ExtentDone>& done);

  bool idle() const;  // nothing queued, nothing in flight
  const ReadStats& stats() const;
