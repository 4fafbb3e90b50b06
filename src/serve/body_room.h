// SPDX-License-Identifier: MIT
// The memory that the bodies of all requests may take together. Each body has kFree beside it, so
// that large bodies that come slowly do not hold up small bodies.
//
// Thread rule: any thread; a Share belongs to one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>

namespace moestro {

class BodyRoom {
 public:
  static constexpr size_t kFree = size_t{64} << 10;

  // `bytes`: for all bodies together, beyond each body's kFree.
  explicit BodyRoom(size_t bytes) : all_(bytes) {}

  // The memory of one body; the destructor gives it back. The room must outlive the share.
  class Share {
   public:
    explicit Share(BodyRoom& room) : room_(room) {}
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    ~Share() { room_.taken_.fetch_sub(taken_, std::memory_order_relaxed); }

    // The body has grown to `bytes`. False: the room has no place for so many bytes now.
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
