// SPDX-License-Identifier: MIT
// Divides the tiles of one product among threads. Each thread has a share of its own, one tile
// after the other, and takes the share in pieces that become smaller towards the end; a thread that
// has finished helps with the other shares. Two threads that read memory are seldom equally fast:
// with fixed shares the slower thread kept all others waiting.
//
// Thread rule: all threads of the team call Each(), once in each product. Between two products with
// one object the threads meet at a barrier.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

namespace moestro {

class TileShares {
 public:
  explicit TileShares(uint32_t threads) : claimed_(threads) {}

  // Calls work(begin, end) for pieces of [0, tiles). The pieces of all threads together cover each
  // tile once. REQUIRES: n_threads is at most that of the constructor.
  template <class Work>
  void Each(int64_t tiles, int thread, int n_threads, Work&& work) {
    const Leaving leaving{*this, n_threads};
    for (int i = 0; i < n_threads; ++i) {
      const int owner = (thread + i) % n_threads;
      const int64_t begin = tiles * owner / n_threads;
      const int64_t end = tiles * (owner + 1) / n_threads;
      std::atomic<int64_t>& claimed = claimed_[static_cast<size_t>(owner)].tiles;
      while (true) {
        const int64_t left = end - begin - claimed.load(std::memory_order_relaxed);
        if (left <= 0) break;
        const int64_t piece = std::max(left / kPieces, kFewest);
        const int64_t at = begin + claimed.fetch_add(piece, std::memory_order_relaxed);
        if (at >= end) break;
        work(at, std::min(at + piece, end));
      }
    }
  }

 private:
  static constexpr int64_t kPieces = 3;  // a piece is one part in kPieces of the rest of a share
  static constexpr int64_t kFewest = 2;  // tiles that are worth a call

  struct alignas(64) Claimed {
    std::atomic<int64_t> tiles{0};
  };
  // Resets the shares when the last thread leaves, also after an exception of `work`.
  struct Leaving {
    TileShares& shares;
    int n_threads;
    ~Leaving() {
      if (shares.left_.fetch_add(1, std::memory_order_acq_rel) + 1 < n_threads) return;
      for (Claimed& its : shares.claimed_) its.tiles.store(0, std::memory_order_relaxed);
      shares.left_.store(0, std::memory_order_release);
    }
  };
  std::vector<Claimed> claimed_;  // [thread]
  std::atomic<int> left_{0};      // threads that have finished
};

}  // namespace moestro
