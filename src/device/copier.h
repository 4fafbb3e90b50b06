// SPDX-License-Identifier: MIT
// Makes copies of memory to a device on a thread of its own, beside what the device computes:
// ggml's synchronous copies of different threads to different bytes do not meet (facts: CUDA and
// Vulkan put them on a stream or queue of their own). One after another, in order, and timed.
//
// Thread rule: one thread asks, the copier's copies.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/counters.h"
#include "base/result.h"

namespace moestro {

class Copier {
 public:
  // `fails`: for tests, asked before each copy; if it is true or throws, the copy is not made and
  // counts as failed, as one does that the driver refuses.
  explicit Copier(std::function<bool()> fails = {}, Clock clock = SteadySeconds);
  ~Copier();  // all copies asked for are made first
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  struct Copy {
    std::function<Status()> make;  // returns when the bytes are there
    size_t bytes = 0;
  };
  // Copies are numbered from 1 in the order in which they are asked for.
  uint64_t Ask(Copy copy);
  bool is_done(uint64_t number) const;
  // Waits for the copies `first` to `last`; false if one of them failed.
  bool Wait(uint64_t first, uint64_t last);

  // Copies that were made.
  struct Made {
    uint64_t copies = 0;
    uint64_t bytes = 0;
    double seconds = 0.0;  // in which they were under way, one after another

    static constexpr void Visit(auto&& visit) {
      visit(&Made::copies, CounterText{});
      visit(&Made::bytes, CounterText{});
      visit(&Made::seconds, CounterText{});
    }
  };
  Made made() const;

 private:
  void Run();

  std::function<bool()> fails_;
  Clock clock_;
  mutable std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable done_;
  std::deque<Copy> copies_;
  uint64_t n_asked_ = 0;
  uint64_t n_done_ = 0;
  Made made_;
  std::vector<uint64_t> failed_;  // that no call has waited for yet
  bool ends_ = false;
  std::thread thread_;  // last: it uses all of the above
};
static_assert(CountsAllOf<Copier::Made>());

}  // namespace moestro
