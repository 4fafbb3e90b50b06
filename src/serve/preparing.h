// SPDX-License-Identifier: MIT
// Turns at what comes before the engine: a body is taken apart, rendered and cut into tokens. There
// are two lanes, so that small bodies never wait behind large ones. In each lane one request has
// its turn at a time, since what a turn takes of memory is bounded for one (docs/server.md), and
// its processor time is limited.
//
// Requests that wait for a turn or have one are counted, for reports.
//
// Thread rule: any thread; a Turn is one thread's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "base/bytes.h"
#include "base/work_limit.h"
#include "serve/body_room.h"

namespace moestro {

class Preparing {
 public:
  static constexpr size_t kSmallBody = 256 * kKiB;
  // Of all requests together, what is kept of each while it waits and is answered.
  static constexpr size_t kKeptBytes = 32 * kMiB;

  struct Options {
    std::function<bool()> is_over = {};  // turns end early from then on; empty: never
    // Processor seconds of a turn. A quarter of a MB takes 0.1 on a quick machine.
    double small_seconds = 2.0;
    double large_seconds = 10.0;
    Clock clock = ThreadProcessorSeconds;
  };
  explicit Preparing(Options options) : options_(std::move(options)) {}

  class Turn {
   public:
    const WorkLimit& limit() const { return limit_; }
    // The next body may have its turn; this one is still being prepared.
    void FreeLane() { lock_.unlock(); }

   private:
    friend class Preparing;
    Turn(Preparing& preparing, std::mutex& lane, WorkLimit::Rules rules)
        : counted_(preparing.waiting_, preparing.working_), lock_(lane), limit_(std::move(rules)) {
      counted_.Begins();
    }

    // Counts its owner among those that wait, then among those that work.
    class Counted {
     public:
      Counted(std::atomic<uint32_t>& waiting, std::atomic<uint32_t>& working)
          : at_(&waiting), working_(working) {
        ++*at_;
      }
      Counted(const Counted&) = delete;
      Counted& operator=(const Counted&) = delete;
      ~Counted() { --*at_; }
      void Begins() {
        ++working_;  // first: it is never in neither
        --*std::exchange(at_, &working_);
      }

     private:
      std::atomic<uint32_t>* at_;
      std::atomic<uint32_t>& working_;
    };

    Counted counted_;
    std::unique_lock<std::mutex> lock_;
    WorkLimit limit_;  // its time begins when the lane is free
  };
  // Waits until the lane for such a body is free. The lane is free again when the Turn ends.
  Turn Begin(size_t body_bytes) {
    const bool is_small = body_bytes <= kSmallBody;
    return {*this,
            is_small ? small_ : large_,
            {.processor_seconds = is_small ? options_.small_seconds : options_.large_seconds,
             .clock = options_.clock,
             .is_over = options_.is_over}};
  }
  const std::function<bool()>& is_over() const { return options_.is_over; }
  BodyRoom& kept() { return kept_; }
  // Turns that have begun, and those that are waited for.
  uint32_t working() const { return working_; }
  uint32_t waiting() const { return waiting_; }

 private:
  const Options options_;
  std::atomic<uint32_t> waiting_ = 0;
  std::atomic<uint32_t> working_ = 0;
  std::mutex small_;
  std::mutex large_;
  BodyRoom kept_{kKeptBytes};
};

}  // namespace moestro
