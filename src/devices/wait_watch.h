// SPDX-License-Identifier: MIT
// Sees waits for a device that last too long. A driver waits for a launch without a limit, and no
// thread can end such a wait from outside: a device that hangs holds the engine's thread until the
// system's own watch resets the device, which the driver then reports as an error. The user reads
// why nothing happens meanwhile.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace moestro {

class WaitWatch {
 public:
  // Tells once about each wait that lasts longer than `seconds`, within another quarter of them,
  // from a thread of the watch's own.
  WaitWatch(double seconds, std::function<void()> tell);
  WaitWatch(const WaitWatch&) = delete;
  WaitWatch& operator=(const WaitWatch&) = delete;
  ~WaitWatch();

  // Returns what `wait` returns. One thread at a time.
  template <class Wait>
  auto During(Wait&& wait) {
    const Under under(marks_);
    return std::forward<Wait>(wait)();
  }

 private:
  // Marks the begin and the end of a wait, for two additions to memory that no other core writes.
  class Under {
   public:
    explicit Under(std::atomic<uint64_t>& marks) : marks_(marks) { ++marks_; }
    Under(const Under&) = delete;
    Under& operator=(const Under&) = delete;
    ~Under() { ++marks_; }

   private:
    std::atomic<uint64_t>& marks_;
  };
  void Watch();

  const double seconds_;
  const std::function<void()> tell_;
  std::atomic<uint64_t> marks_ = 0;  // odd: a wait is under way
  std::mutex mutex_;
  std::condition_variable ends_;
  bool shall_end_ = false;
  std::thread thread_;  // last member: uses the others
};

}  // namespace moestro
