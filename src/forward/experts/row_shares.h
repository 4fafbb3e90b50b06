// SPDX-License-Identifier: MIT
// The rows of a matrix, divided among the threads of a team. Each thread takes its own share from
// the first row to the last, one block at a time, so that the thread reads one stream of memory. A
// thread that has finished takes blocks of other threads' shares.
//
// Thread rule: Reset() before the team begins; the rest from all threads of the team.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>

#include "core/row_tiles.h"

namespace moestro {

struct RowBlock {
  uint32_t begin = 0;
  uint32_t count = 0;
  uint32_t end() const { return begin + count; }
};

class RowShare {
 public:
  void Reset(uint32_t begin, uint32_t end) {
    next_.store(begin, std::memory_order_relaxed);
    begin_ = begin;
    end_ = end;
  }
  // The next rows, at most `most` of them; no other thread gets them.
  std::optional<RowBlock> Claim(uint32_t most) {
    if (next_.load(std::memory_order_relaxed) >= end_) return std::nullopt;
    const uint32_t begin = next_.fetch_add(most, std::memory_order_relaxed);
    if (begin >= end_) return std::nullopt;
    return RowBlock{.begin = begin, .count = std::min(most, end_ - begin)};
  }
  uint32_t end() const { return end_; }
  bool has_begun() const { return next_.load(std::memory_order_relaxed) != begin_; }

 private:
  std::atomic<uint32_t> next_{0};
  uint32_t begin_ = 0;
  uint32_t end_ = 0;
};

// Counts the work that all threads together have done.
class RowProgress {
 public:
  void Reset(uint32_t all) {
    done_.store(0, std::memory_order_relaxed);
    all_ = all;
  }
  bool is_done() const { return done_.load(std::memory_order_acquire) == all_; }
  // True: all of the work is done with this call.
  bool Finish(uint32_t count) {
    return done_.fetch_add(count, std::memory_order_acq_rel) + count == all_;
  }

 private:
  std::atomic<uint32_t> done_{0};
  uint32_t all_ = 0;
};

}  // namespace moestro
