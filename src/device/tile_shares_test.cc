// SPDX-License-Identifier: MIT
#include "device/tile_shares.h"

#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdint>
#include <future>
#include <thread>
#include <vector>

namespace moestro {
namespace {

// Each tile once, in every product, whichever thread is slow; also with fewer tiles than threads
// and with fewer threads than there could be.
TEST(TileShares, ThreadsTakeEveryTileOnce) {
  constexpr int kMost = 4;
  TileShares shares(kMost);
  for (const int n_threads : {1, 2, 3, 4}) {
    for (const int64_t tiles : {0, 1, 3, 7, 48, 1001}) {
      std::vector<std::atomic<int>> taken(static_cast<size_t>(tiles));
      constexpr int kProducts = 5;
      std::barrier together(n_threads);
      const auto work = [&](int thread) {
        for (int p = 0; p < kProducts; ++p) {
          shares.Each(tiles, thread, n_threads, [&](int64_t begin, int64_t end) {
            EXPECT_LT(begin, end);
            for (int64_t t = begin; t < end; ++t) ++taken[static_cast<size_t>(t)];
          });
          together.arrive_and_wait();
        }
      };
      std::vector<std::jthread> threads;
      for (int t = 1; t < n_threads; ++t) threads.emplace_back(work, t);
      work(0);
      threads.clear();
      for (const std::atomic<int>& n : taken) EXPECT_EQ(n, kProducts);
    }
  }
}

TEST(TileShares, AThreadThatHasFinishedHelpsASlowOne) {
  TileShares shares(2);
  int64_t of_slow = 0;
  std::promise<void> has_begun;
  std::promise<void> others_are_done;
  std::jthread slow([&] {
    shares.Each(100, 1, 2, [&](int64_t begin, int64_t end) {
      of_slow += end - begin;
      has_begun.set_value();  // once: there is no second piece
      others_are_done.get_future().wait();
    });
  });
  has_begun.get_future().wait();
  int64_t of_fast = 0;
  shares.Each(100, 0, 2, [&](int64_t begin, int64_t end) { of_fast += end - begin; });
  others_are_done.set_value();
  slow.join();
  EXPECT_EQ(of_slow, 16);  // a third of its fifty
  EXPECT_EQ(of_fast, 84);
}

}  // namespace
}  // namespace moestro
