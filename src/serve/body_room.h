// SPDX-License-Identifier: MIT
// What the bodies of all requests may take together. Each may have kFree without asking, so that
// large ones that come slowly hold up no small ones.
//
// Thread rule: any thread; a Share is one thread's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace moestro {

class BodyRoom {
 public:
  static constexpr size_t kFree = size_t{64} << 10;

  // `bytes` beyond what is free.
  explicit BodyRoom(size_t bytes) : all_(bytes) {}

  // One body's. Gives back in the end. The room must outlive it.
  class Share {
   public:
    explicit Share(BodyRoom& room) : room_(room) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { room_.taken_.fetch_sub(taken_, std::memory_order_relaxed); }

    // The body has grown to so many bytes. False: there is no room for it now.
    bool GrowTo(size_t bytes) {
      const size_t wanted = bytes - std::min(bytes, kFree);
      if (wanted <= taken_) return true;
      const size_t more = wanted - taken_;
      const size_t before = room_.taken_.fetch_add(more, std::memory_order_relaxed);
      if (before + more > room_.all_) {
        room_.taken_.fetch_sub(more, std::memory_order_relaxed);
        return false;
      }
      taken_ = wanted;
      return true;
    }

   private:
    BodyRoom& room_;
    size_t taken_ = 0;
  };

 private:
  const size_t all_;
  std::atomic<size_t> taken_ = 0;
};

}  // namespace moestro
