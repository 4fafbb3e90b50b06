// SPDX-License-Identifier: MIT
// A request to end the work under way. Threads that compute check for a request now and then,
// between pieces of some milliseconds, and leave; the thread that began the work takes the request
// back once all have left.
//
// Thread rule: Request() from any thread or a signal handler, is_requested() from any thread, the
// other methods from the thread that begins the work, while no other thread checks.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

namespace moestro {

class StopSignal {
 public:
  // For tests: called at every look, by the looking thread; true requests a stop at that moment.
  using AtLook = std::function<bool()>;

  StopSignal() = default;
  explicit StopSignal(AtLook at_look) : at_look_(std::move(at_look)) {}

  void Request() { requested_.store(true, std::memory_order_release); }
  // Stays true until Take(), so that one piece of work cannot leave and the next one go on. Two
  // loads of a line that no thread writes.
  bool is_requested() {
    if (is_held_) return false;
    if (at_look_ && at_look_()) Request();
    return requested_.load(std::memory_order_relaxed);
  }
  // Takes a request back once all threads have left.
  void Take() { requested_.store(false, std::memory_order_relaxed); }

  // While a Hold lives is_requested() is false; a request that comes meanwhile counts afterwards.
  // For work that must not be left half done.
  class Hold {
   public:
    explicit Hold(StopSignal& signal) : signal_(signal) { signal_.is_held_ = true; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold() { signal_.is_held_ = false; }

   private:
    StopSignal& signal_;
  };

 private:
  std::atomic<bool> requested_{false};
  bool is_held_ = false;
  AtLook at_look_;
};

}  // namespace moestro
