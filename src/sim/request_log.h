// SPDX-License-Identifier: MIT
// Logs a run's requests for experts of one kind of slots, and computes the fewest reads for them:
// by Belady's rule (see belady.h) on the whole log, from the experts in the slots when the log
// began. In this count a read expert need not take a slot, and a layer may request experts in any
// order. So no policy and no prefetch needs fewer reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace moestro {

class RequestLog {
 public:
  // Takes memory for `capacity` requests at once and keeps no more requests.
  explicit RequestLog(size_t capacity) { requests_.reserve(capacity); }
  // Bytes of a log with this number of requests and of different experts, and of FewestReads().
  static uint64_t BytesFor(uint64_t requests, uint64_t experts);

  // Adds the experts that one layer of a step needs, in any order, each once. REQUIRES: numbers
  // below 2^31.
  void Add(std::span<const uint32_t> experts);
  // False after more requests than the capacity.
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
