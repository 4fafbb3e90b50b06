// SPDX-License-Identifier: MIT
// Copies memory to a device on a thread of its own, while the device computes: ggml's copies of
// different threads to different bytes do not meet (CUDA and Vulkan put synchronous ones on a
// stream or queue of their own; others have a backend of their own, see copy_ring.h). Copies begin
// one after another and land in this order, and are timed.
//
// Thread rule: one thread calls; the copier's thread copies.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "base/work_limit.h"

namespace moestro {

class Copier {
 public:
  // Copies under way at once: enough that the device copies while the thread wakes up and begins
  // the next one.
  static constexpr size_t kMostUnderWay = 3;

  // Waits until a copy has landed, by the number that its begin() has returned.
  using Land = std::function<Status(uint64_t number)>;
  // `fails`: for tests, called before each copy. If `fails` returns true or throws, the copy is not
  // made and counts as failed, as a copy that the driver refuses. land: empty: each copy has landed
  // when its begin() returns.
  explicit Copier(std::function<bool()> fails = {}, Land land = {}, Clock clock = SteadySeconds);
  ~Copier();  // makes all requested copies first
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  struct Copy {
    // Returns the number for `land`; 0: the bytes are copied.
    std::function<Result<uint64_t>()> begin;
    size_t bytes = 0;
  };
  // Requests a copy and returns its number. Copies are numbered from 1 in the order of requests.
  uint64_t Ask(Copy copy);
  bool is_done(uint64_t number) const;
  // Waits for the copies `first` to `last`; false if one of the copies failed.
  bool Wait(uint64_t first, uint64_t last);

  // Copies that were made.
  struct Made {
    uint64_t copies = 0;
    uint64_t bytes = 0;
    double seconds = 0.0;  // time in which a copy was under way

    static constexpr void Visit(auto&& visit) {
      visit(&Made::copies, CounterText{});
      visit(&Made::bytes, CounterText{});
      visit(&Made::seconds, CounterText{});
    }
  };
  Made made() const;

 private:
  struct UnderWay {
    Result<uint64_t> number;
    size_t bytes = 0;
    double begun = 0.0;

    bool has_ended() const { return !number || *number == 0; }
  };
  void Run();
  UnderWay Begin(const Copy& copy);
  void LandFirst(std::unique_lock<std::mutex>& lock);

  std::function<bool()> fails_;
  Land land_;
  Clock clock_;
  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable done_;
  std::deque<Copy> copies_;
  uint64_t n_asked_ = 0;
  uint64_t n_done_ = 0;
  Made made_;
  std::vector<uint64_t> failed_;  // failed copies that no call has waited for yet
  bool ends_ = false;
  // For the thread alone.
  std::deque<UnderWay> under_way_;
  double last_end_ = 0.0;
  std::thread thread_;  // last, since the thread uses all of the above
};
static_assert(CountsAllOf<Copier::Made>());

}  // namespace moestro
