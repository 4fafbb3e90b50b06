// SPDX-License-Identifier: MIT
#include "store/read_queue.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/number.h"
#include "base/result.h"
#include "base/text.h"
#include "store/open_files.h"

namespace moestro {
namespace {

// Results taken from the reader in one call.
constexpr size_t kBatch = 16;

// A device read's result is a signed 32-bit number in the kernel.
constexpr uint64_t kMaxRequest = 1U << 30;

// An unused index of a table, which grows if all are used.
template <class T>
uint32_t Allocate(std::vector<T>& table, std::vector<uint32_t>& free) {
  if (free.empty()) {
    table.emplace_back();
    return static_cast<uint32_t>(table.size() - 1);
  }
  const uint32_t index = free.back();
  free.pop_back();
  return index;
}

Error GivenUp() { return {Errc::kInterrupted, "no caller waits for this read any more"}; }

}  // namespace

ReadQueueOptions ForReader(ReadQueueOptions options, uint64_t block) {
  options.max_request = std::clamp(AlignDown(options.max_request, block), block, kMaxRequest);
  options.max_in_flight = std::max(options.max_in_flight, 1U);
  options.max_speculative = std::clamp(options.max_speculative, 1U, options.max_in_flight);
  options.max_ahead = std::max(options.max_ahead, options.max_in_flight);
  return options;
}

uint64_t PartBytes(uint64_t window_bytes, uint64_t max_request, uint64_t block) {
  const uint64_t parts = (window_bytes + max_request - 1) / max_request;
  return AlignUp((window_bytes + parts - 1) / parts, block);
}

ReadQueue::ReadQueue(BlockReader& reader, std::vector<std::string> paths, ReadQueueOptions options)
    : reader_(reader), paths_(std::move(paths)), options_(ForReader(options, reader.block())) {}

ReadQueue::~ReadQueue() {
  std::array<BlockDone, kBatch> results;
  while (at_device_ > 0) {
    const size_t n = reader_.Wait(results);
    CHECK(n > 0);
    at_device_ -= static_cast<unsigned>(n);
  }
}

bool ReadQueue::idle() const { return unfinished_ == 0; }

void ReadQueue::Enqueue(const ExtentRead& read) {
  const uint64_t block = reader_.block();
  const Window window = CoveringWindow(read.from, block);
  CHECK(read.from.length > 0);
  CHECK(read.landing.size() >= window.length);
  const Index index = Allocate(reads_, free_reads_);
  reads_[index] = {.asked = read,
                   .window = window,
                   .part_bytes = PartBytes(window.length, options_.max_request, block)};
  CHECK(by_tag_.emplace(read.tag, index).second);
  Append(lane(read.urgency), index);
  ++unfinished_;
}

void ReadQueue::Append(UrgencyQueue& lane, Index index) {
  Read& read = reads_[index];
  read.before = lane.last;
  read.after = kNone;
  read.is_waiting = true;
  (lane.last == kNone ? lane.first : reads_[lane.last].after) = index;
  lane.last = index;
}

void ReadQueue::Unlink(UrgencyQueue& lane, Index index) {
  Read& read = reads_[index];
  if (!read.is_waiting) return;
  (read.before == kNone ? lane.first : reads_[read.before].after) = read.after;
  (read.after == kNone ? lane.last : reads_[read.after].before) = read.before;
  read.is_waiting = false;
}

void ReadQueue::Promote(uint64_t tag) {
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end()) return;
  const Index index = found->second;
  Read& read = reads_[index];
  if (read.asked.urgency == Urgency::kDemand) return;
  read.asked.urgency = Urgency::kDemand;
  UrgencyQueue& from = lane(Urgency::kSpeculative);
  UrgencyQueue& to = lane(Urgency::kDemand);
  if (read.is_waiting) {
    Unlink(from, index);
    Append(to, index);
  }
  // `again` holds parts that were in flight, so the search is short.
  std::erase_if(from.again, [&](Index p) {
    if (parts_[p].read != index) return false;
    to.again.push_back(p);
    return true;
  });
}

bool ReadQueue::Cancel(uint64_t tag) {
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end() || reads_[found->second].handed_out > 0) return false;
  const Index index = found->second;
  Unlink(lane(reads_[index].asked.urgency), index);
  Free(index);
  return true;
}

ReadQueue::Dropped ReadQueue::Drop(uint64_t tag) {
  if (Cancel(tag)) return Dropped::kGone;
  const auto found = by_tag_.find(tag);
  if (found == by_tag_.end()) return Dropped::kUnknown;
  const Index index = found->second;
  Read& read = reads_[index];
  read.is_dropped = true;
  for (Part& part : parts_) {
    if (part.read == index) Uncount(part);
  }
  const bool waits_again = !read.error && GiveUp(index) > 0;
  const bool is_whole = !read.error && read.handed_out == read.window.length && !waits_again;
  if (!is_whole) read.error = GivenUp();  // also after an error: no caller waits to hear the cause
  if (read.open_parts > 0) return Dropped::kEnds;
  Free(index);  // all that was at the device has come back, to be tried again
  return Dropped::kGone;
}

void ReadQueue::Uncount(Part& part) {
  if (!std::exchange(part.is_counted, false)) return;
  --in_flight_;
  bytes_in_flight_ -= part.length;
  if (part.is_speculative) --speculative_in_flight_;
}

void ReadQueue::Pump(std::vector<ExtentDone>& done) {
  std::array<BlockDone, kBatch> results;
  size_t n = 0;
  do {
    SubmitWaiting();
    n = at_device_ > 0 ? reader_.Poll(results) : 0;
    CollectAll(std::span(results).first(n), done);
  } while (n > 0);
}

void ReadQueue::PumpAhead(std::vector<ExtentDone>& done, uint64_t most_bytes) {
  ahead_bytes_ = most_bytes;
  Pump(done);
  ahead_bytes_ = 0;
}

void ReadQueue::Wait(std::vector<ExtentDone>& done) {
  const size_t before = done.size();
  std::array<BlockDone, kBatch> results;
  for (;;) {
    Pump(done);
    if (done.size() > before || idle()) return;
    const size_t n = reader_.Wait(results);
    CHECK(n > 0);
    CollectAll(std::span(results).first(n), done);
  }
}

void ReadQueue::WaitBriefly(std::vector<ExtentDone>& done) {
  const size_t before = done.size();
  Pump(done);
  if (done.size() > before || idle()) return;
  std::array<BlockDone, kBatch> results;
  const size_t n = reader_.WaitBriefly(results);
  CollectAll(std::span(results).first(n), done);
}

void ReadQueue::CollectAll(std::span<const BlockDone> results, std::vector<ExtentDone>& done) {
  for (const BlockDone& result : results) Collect(result, done);
}

bool ReadQueue::MaySubmit(Urgency urgency) const {
  if (bytes_in_flight_ < ahead_bytes_ && in_flight_ < options_.max_ahead) return true;
  if (in_flight_ >= options_.max_in_flight) return false;
  return urgency == Urgency::kDemand || speculative_in_flight_ < options_.max_speculative;
}

void ReadQueue::SubmitWaiting() {
  // A demand read that the reader has no room for keeps speculation out, too.
  while (MaySubmit(Urgency::kDemand) && SubmitNext(Urgency::kDemand)) {
  }
  if (!lane(Urgency::kDemand).is_empty()) return;
  while (MaySubmit(Urgency::kSpeculative) && SubmitNext(Urgency::kSpeculative)) {
  }
}

// False: nothing waits in this lane, or the reader is full.
bool ReadQueue::SubmitNext(Urgency urgency) {
  UrgencyQueue& waiting = lane(urgency);
  if (!waiting.again.empty()) {
    if (!SubmitPart(waiting.again.front())) return false;
    waiting.again.erase(waiting.again.begin());
    return true;
  }
  if (waiting.first == kNone) return false;
  const Index index = waiting.first;
  Read& read = reads_[index];
  const uint64_t rest = read.window.length - read.handed_out;
  const Index part = Allocate(parts_, free_parts_);
  parts_[part] = {
      .read = index, .begin = read.handed_out, .length = std::min(read.part_bytes, rest)};
  if (!SubmitPart(part)) {
    free_parts_.push_back(part);
    return false;
  }
  ++read.open_parts;
  read.handed_out += parts_[part].length;
  if (read.handed_out == read.window.length) Unlink(waiting, index);
  return true;
}

bool ReadQueue::SubmitPart(Index index) {
  Part& part = parts_[index];
  const Read& read = reads_[part.read];
  const bool was_taken = reader_.Submit({.file = read.asked.from.file,
                                         .offset = read.window.offset + part.begin,
                                         .to = read.asked.landing.subspan(part.begin, part.length),
                                         .tag = index});
  if (!was_taken) return false;
  part.is_speculative = read.asked.urgency == Urgency::kSpeculative;
  part.is_counted = true;
  ++at_device_;
  ++in_flight_;
  bytes_in_flight_ += part.length;
  if (part.is_speculative) ++speculative_in_flight_;
  ++stats_.requests;
  return true;
}

void ReadQueue::Collect(const BlockDone& result, std::vector<ExtentDone>& done) {
  const auto index = static_cast<Index>(result.tag);
  Part& part = parts_[index];
  const Index owner = part.read;
  Read& read = reads_[owner];
  --at_device_;
  Uncount(part);
  stats_.bytes += result.bytes;
  if (!read.error && NeedsMore(part, result)) {
    lane(read.asked.urgency).again.push_back(index);
    return;
  }
  free_parts_.push_back(index);
  --read.open_parts;
  if (read.error) GiveUp(owner);
  CloseIfDone(owner, done);
}

// Returns true if data is left to read, with `part` moved on to that; false if the part is complete
// or has failed for good (the read then carries the error).
bool ReadQueue::NeedsMore(Part& part, const BlockDone& result) {
  Read& read = reads_[part.read];
  const uint64_t wanted = read.window.residue + read.asked.from.length;
  const uint64_t end = std::min(part.begin + part.length, wanted);
  if (result.error == 0 && part.begin + result.bytes >= end) return false;
  if (read.is_dropped) {
    read.error = GivenUp();
    return false;
  }
  const uint64_t progress = result.error == 0 ? AlignDown(result.bytes, reader_.block()) : 0;
  if (progress > 0) {  // short, by a fault or a signal: go on where it stopped
    part.begin += progress;
    part.length -= progress;
    return true;
  }
  if (part.is_retry) {
    read.error = Describe(part, result);
    return false;
  }
  part.is_retry = true;
  ++stats_.retries;
  return true;
}

// Withdraws the parts of a read that are not at the device. Returns how many of those waited to be
// tried again.
uint32_t ReadQueue::GiveUp(Index index) {
  UrgencyQueue& waiting = lane(reads_[index].asked.urgency);
  Unlink(waiting, index);
  const size_t parts = std::erase_if(waiting.again, [&](Index p) {
    if (parts_[p].read != index) return false;
    free_parts_.push_back(p);
    --reads_[index].open_parts;
    return true;
  });
  return static_cast<uint32_t>(parts);
}

void ReadQueue::Free(Index index) {
  by_tag_.erase(reads_[index].asked.tag);
  reads_[index] = {};
  free_reads_.push_back(index);
  --unfinished_;
}

void ReadQueue::CloseIfDone(Index index, std::vector<ExtentDone>& done) {
  Read& read = reads_[index];
  if (read.open_parts > 0) return;  // also of a failed read: parts still write into memory
  if (!read.error && read.handed_out < read.window.length) return;
  if (!read.error) {
    const bool is_demand = read.asked.urgency == Urgency::kDemand;
    (is_demand ? stats_.demand_bytes : stats_.speculative_bytes) += read.asked.from.length;
  }
  done.push_back({.tag = read.asked.tag, .error = std::move(read.error)});
  Free(index);
}

Error ReadQueue::Describe(const Part& part, const BlockDone& result) const {
  const Read& read = reads_[part.read];
  const uint32_t file = read.asked.from.file;
  const std::string name = file < paths_.size() ? paths_[file] : Format("file {}", file);
  const uint64_t offset = read.window.offset + part.begin;
  if (result.error != 0) {
    return {Errc::kIo, Format("cannot read {} at offset {}: {} (tried twice)", name, offset,
                              ErrnoText(result.error))};
  }
  return {Errc::kIo,
          Format("{} ends at byte {}, before byte {} that is needed: was it cut off "
                 "while in use?",
                 name, offset + result.bytes, read.asked.from.offset + read.asked.from.length)};
}

}  // namespace moestro
