// SPDX-License-Identifier: MIT
// Turns at the work before the engine: a body is taken apart, rendered and cut into tokens. Small
// and large bodies have a lane each, so that a small body never waits behind a large one. In a lane
// one request has a turn at a time, since the plan has memory for one (docs/server.md). A turn's
// processor time is limited.
//
// Requests that wait for a turn and requests that have one are counted, for reports.
//
// Thread rule: any thread; a Turn belongs to one thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>

#include "base/number.h"
#include "base/work_limit.h"
#include "serve/body_room.h"

namespace moestro {

class Preparing {
 public:
  static constexpr size_t kSmallBody = 256 * kKiB;
  // Bytes that all requests together may keep while they wait and are answered.
  static constexpr size_t kKeptBytes = 32 * kMiB;

  struct Options {
    std::function<bool()> is_over = {};  // true: turns end early; empty: never
    // Processor seconds of a turn. A quarter of a MB takes 0.1 on a quick machine.
    double small_seconds = 2.0;
    double large_seconds = 10.0;
    Clock clock = ThreadProcessorSeconds;
  };
  explicit Preparing(Options options) : options_(std::move(options)) {}

  class Turn {
   public:
    const WorkLimit& limit() const { return limit_; }
    // The next body may have a turn, while this body is still being prepared.
    void FreeLane() { lock_.unlock(); }

   private:
    friend class Preparing;
    Turn(Preparing& preparing, std::mutex& lane, WorkLimit::Rules rules)
        : counted_(preparing.waiting_, preparing.working_), lock_(lane), limit_(std::move(rules)) {
      counted_.Begins();
    }

    // Counts a request first among the waiting, then among the working requests.
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
        ++working_;  // first: a request is always counted
        --*std::exchange(at_, &working_);
      }

     private:
      std::atomic<uint32_t>* at_;
      std::atomic<uint32_t>& working_;
    };

    Counted counted_;
    std::unique_lock<std::mutex> lock_;
    WorkLimit limit_;  // the time begins when the lane is free
  };
  // Waits until the lane for a body of this size is free, and takes the lane until the Turn ends.
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
  // Turns that have begun, and turns that requests wait for.
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
