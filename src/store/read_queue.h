// SPDX-License-Identifier: MIT
// Extents instead of windows: splits large reads, bounds the reads in flight, puts demand before
// speculation, finishes short reads, retries a failed one once. Sits on a BlockReader.
//
// Thread rule: engine thread only, no locks. Pump() is cheap when nothing happened (well under a
// microsecond) because the engine calls it between pieces of computation.
#pragma once

#include <cstddef>
#include <cstdint>
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
  // Memory for the covering window; the extent's first byte lands at landing[residue], see
  // CoveringWindow(). REQUIRES: size >= WindowCapacity(from.length, block), address aligned.
  std::span<std::byte> landing;
  uint64_t tag = 0;  // unique among unfinished reads
  Urgency urgency = Urgency::kDemand;
};

struct ExtentDone {
  uint64_t tag = 0;
  std::optional<Error> error;  // set after a failed retry; names file, offset and cause
};

// Costs of request size and depth: CPU seconds of the calling thread per GiB, and GiB/s. Medians of
// nine interleaved runs of bench/store_bench's loop; virtio disk, busy 2-core machine, io_uring,
// landing in huge pages.
//   request     depth 4       depth 8       depth 16      depth 32
//   256 KiB     0.046 2.2     0.032 2.1     0.027 2.1     0.023 1.9
//   864 KiB     0.018 2.4     0.015 2.2     0.014 2.1     0.011 2.2
//     1 MiB     0.017 2.4     0.014 2.2     0.012 2.2     0.010 2.2
//     4 MiB     0.008 2.3     0.006 2.3     0.004 2.4     0.003 2.4
// Four reads already fill the disk, for 4 % of a core. Landing in small pages matters far more:
// 0.078 and 0.9 at 864 KiB x 4.
struct ReadQueueOptions {
  uint64_t max_request = 1 << 20;  // bytes per device read; longer extents are split
  unsigned max_in_flight = 4;      // device reads at a time: more land together, late, as one batch
  unsigned max_speculative = 4;    // speculative device reads at a time; no more than max_in_flight
  unsigned max_ahead = 256;        // of either kind after PumpAhead(); no fewer than max_in_flight
};

// `options` adjusted to the reader's block size, as a queue uses them.
ReadQueueOptions ForReader(ReadQueueOptions options, uint64_t block);
// Bytes of the reads that a window is split into, all but the last: parts of equal size, so that
// none arrives much later than the others. REQUIRES: window_bytes > 0.
uint64_t PartBytes(uint64_t window_bytes, uint64_t max_request, uint64_t block);

struct ReadStats {
  uint64_t requests = 0;      // device reads
  uint64_t bytes = 0;         // bytes of device reads, padding included
  uint64_t demand_bytes = 0;  // requested bytes (without padding) of finished demand reads
  uint64_t speculative_bytes = 0;
  uint64_t retries = 0;
};

class ReadQueue {
 public:
  // `paths` serve error messages only. The reader must outlive the queue. Several queues may use
  // a reader if only one of them has reads at the device at a time.
  ReadQueue(BlockReader& reader, std::vector<std::string> paths, ReadQueueOptions options = {});
  ReadQueue(const ReadQueue&) = delete;
  ReadQueue& operator=(const ReadQueue&) = delete;
  // Waits for the reads in flight, which write into memory of the owner.
  ~ReadQueue();

  void Enqueue(const ExtentRead& read);
  // Makes a speculative read a demand read; parts not yet handed to the device go with the demand
  // reads. Leaves demand reads and unknown tags alone. Promote() and Cancel() take the same time
  // however many reads wait.
  void Promote(uint64_t tag);
  // Drops a read of which no part has been handed to the device. False: too late or unknown.
  bool Cancel(uint64_t tag);
  // Result of dropping a read for which no caller waits any more.
  enum class Dropped : uint8_t {
    kUnknown,  // no unfinished read has this tag
    kGone,     // no part of the read was at the device; `done` will not name the read
    kEnds,     // parts at the device still land; `done` then names the read, with kInterrupted if
               // parts were missing. Until then its memory must not be used otherwise.
  };
  // Drops a read. Its parts at the device no longer count as in flight: other reads need not wait
  // for them. REQUIRES: after kEnds, the tag is not promoted or dropped again.
  Dropped Drop(uint64_t tag);
  // Submits waiting reads as the limits allow and collects finished ones; never blocks. Appends to
  // `done`.
  void Pump(std::vector<ExtentDone>& done);
  // Like Pump, for a caller that will not be back for a while: hands waiting reads to the device,
  // up to max_ahead; beyond Pump's limits only until `most_bytes` are at the device, since a later
  // demand read has to wait for them.
  static constexpr uint64_t kAllThatWaits = ~uint64_t{0};
  void PumpAhead(std::vector<ExtentDone>& done, uint64_t most_bytes = kAllThatWaits);
  // Like Pump, but returns only when something finished or nothing is left to wait for.
  void Wait(std::vector<ExtentDone>& done);
  // Like Wait, but for BlockReader::kBriefly at most.
  void WaitBriefly(std::vector<ExtentDone>& done);

  bool idle() const;  // nothing queued, nothing in flight
  // The reader's memory registration and block size; see BlockReader.
  uint64_t RegisterMemory(std::span<const std::span<std::byte>> pieces) {
    return reader_.RegisterMemory(pieces);
  }
  void ForgetMemory() { reader_.ForgetMemory(); }
  uint64_t block() const { return reader_.block(); }
  const ReadQueueOptions& options() const { return options_; }  // as adjusted to the reader
  const ReadStats& stats() const { return stats_; }

 private:
  using Index = uint32_t;
  static constexpr Index kNone = ~Index{0};

  // An unfinished extent. Each device read for the extent is a part.
  struct Read {
    ExtentRead asked;
    Window window;                    // empty: this entry is not in use
    uint64_t part_bytes = 0;          // size of its device reads but the last
    uint64_t handed_out = 0;          // bytes of the window given to parts
    unsigned open_parts = 0;          // parts in flight or waiting to be tried again
    std::optional<Error> error = {};  // set: no further part is handed out
    // Neighbours in the lane that holds the read until all parts are handed out.
    Index before = kNone;
    Index after = kNone;
    bool is_waiting = false;  // the read is in a lane
    bool is_dropped = false;  // no further part is handed out
  };
  struct Part {
    Index read = 0;
    uint64_t begin = 0;  // in the window
    uint64_t length = 0;
    bool is_retry = false;
    bool is_speculative = false;  // urgency at submission
    bool is_counted = false;      // the part is at the device, and a caller may wait for it
  };
  // Waiting reads and parts of one urgency.
  struct UrgencyQueue {
    std::vector<Index> again;  // parts to be tried again or continued; they go first
    Index first = kNone;       // reads not yet handed out completely
    Index last = kNone;
    bool is_empty() const { return again.empty() && first == kNone; }
  };

  void Append(UrgencyQueue& lane, Index index);
  void Unlink(UrgencyQueue& lane, Index index);
  UrgencyQueue& lane(Urgency urgency) { return lanes_[static_cast<size_t>(urgency)]; }
  bool MaySubmit(Urgency urgency) const;
  void SubmitWaiting();
  bool SubmitNext(Urgency urgency);
  bool SubmitPart(Index index);
  void CollectAll(std::span<const BlockDone> results, std::vector<ExtentDone>& done);
  void Uncount(Part& part);
  void Collect(const BlockDone& result, std::vector<ExtentDone>& done);
  bool NeedsMore(Part& part, const BlockDone& result);
  uint32_t GiveUp(Index index);
  void Free(Index index);
  void CloseIfDone(Index index, std::vector<ExtentDone>& done);
  Error Describe(const Part& part, const BlockDone& result) const;

  BlockReader& reader_;
  const std::vector<std::string> paths_;
  const ReadQueueOptions options_;
  // Tables with free lists: they stop growing at the usual number of reads.
  std::vector<Read> reads_;
  std::vector<Index> free_reads_;
  std::vector<Part> parts_;
  std::vector<Index> free_parts_;
  UrgencyQueue lanes_[2];
  std::unordered_map<uint64_t, Index> by_tag_;  // unfinished reads
  unsigned at_device_ = 0;                      // parts
  unsigned in_flight_ = 0;                      // parts at the device that are counted
  unsigned speculative_in_flight_ = 0;
  uint64_t bytes_in_flight_ = 0;  // bytes of counted parts
  uint64_t ahead_bytes_ = 0;      // within PumpAhead()
  size_t unfinished_ = 0;         // extents
  ReadStats stats_;
};

}  // namespace moestro
