// SPDX-License-Identifier: MIT
// What a run asked of one kind of slots, and the fewest reads that it could have done with: by
// Belady's rule (see belady.h), which knows what is asked for later, from the experts that were in
// the slots when the log began. An expert that is read need not take a slot, and a layer may ask in
// any order: whatever a policy keeps or a prefetch reads early, it reads no less.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace moestro {

class RequestLog {
 public:
  // Takes memory for so many requests at once and keeps no more.
  explicit RequestLog(size_t capacity) { requests_.reserve(capacity); }
  // Bytes of a log with so many requests for so many different experts, and of FewestReads().
  static uint64_t BytesFor(uint64_t requests, uint64_t experts);

  // What one layer of a step needs, in any order, each expert once. REQUIRES: numbers below 2^31.
  void Add(std::span<const uint32_t> experts);
  // False once there were more requests than it keeps.
  bool is_complete() const { return is_complete_; }

  // REQUIRES: is_complete(); slots > 0; `present` are different experts, no more than slots.
  uint64_t FewestReads(uint64_t slots, std::span<const uint32_t> present) const;

 private:
  static constexpr uint32_t kBegins = 1U << 31;  // the first request of a layer

  uint32_t expert(size_t request) const { return requests_[request] & ~kBegins; }

  std::vector<uint32_t> requests_;
  bool is_complete_ = true;
};

}  // namespace moestro
