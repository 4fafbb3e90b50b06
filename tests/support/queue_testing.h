// SPDX-License-Identifier: MIT
// For tests of the read queue: a file in memory, and a landing place for every read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "store/files_testing.h"
#include "store/read_queue.h"
#include "tests/support/memory_reader_testing.h"

namespace moestro {

inline constexpr uint64_t kBlock = 4096;
using Order = MemoryScript::Order;

// A queue over one file in memory, with landing memory for every read.
class QueueFixture {
 public:
  explicit QueueFixture(uint64_t file_bytes, MemoryScript script = {},
                        ReadQueueOptions options = {})
      : bytes_(RandomBytes(file_bytes, 7)),
        reader_({bytes_}, std::move(script)),
        queue_(std::make_unique<ReadQueue>(reader_, std::vector<std::string>{"model.gguf"},
                                           options)) {}

  void Ask(uint64_t tag, uint64_t offset, uint64_t length, Urgency urgency = Urgency::kDemand) {
    const Extent from{.file = 0, .offset = offset, .length = length};
    landings_.insert_or_assign(tag, AlignedMemory(WindowCapacity(length, kBlock)));
    extents_[tag] = from;
    queue_->Enqueue(
        {.from = from, .landing = landings_.at(tag).span(), .tag = tag, .urgency = urgency});
  }
  bool HasRightBytes(uint64_t tag) const {
    const Extent& e = extents_.at(tag);
    const auto landed = landings_.at(tag).span().subspan(e.offset % kBlock, e.length);
    return std::ranges::equal(landed, std::span(bytes_).subspan(e.offset, e.length));
  }
  std::vector<ExtentDone> Pump() {
    std::vector<ExtentDone> done;
    queue_->Pump(done);
    return done;
  }
  std::vector<ExtentDone> Drain() {
    std::vector<ExtentDone> done;
    while (!queue_->idle()) queue_->Wait(done);
    return done;
  }
  // Offsets of the reads that the device holds, in blocks, oldest first.
  std::vector<uint64_t> AtDevice() const {
    std::vector<uint64_t> blocks;
    for (const BlockRead& r : reader_.waiting()) blocks.push_back(r.offset / kBlock);
    return blocks;
  }
  ReadQueue& queue() { return *queue_; }
  MemoryReader& reader() { return reader_; }
  void DestroyQueue() { queue_.reset(); }

 private:
  std::vector<std::byte> bytes_;
  std::map<uint64_t, AlignedMemory> landings_;
  std::map<uint64_t, Extent> extents_;
  MemoryReader reader_;
  std::unique_ptr<ReadQueue> queue_;
};

inline std::vector<uint64_t> Tags(const std::vector<ExtentDone>& done) {
  std::vector<uint64_t> tags;
  for (const ExtentDone& d : done) tags.push_back(d.tag);
  return tags;
}

}  // namespace moestro
