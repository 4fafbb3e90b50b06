// SPDX-License-Identifier: MIT
#include "forward/experts/layer_run.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace moestro {
namespace {

TEST(RowSharesTest, SharesAreWholeTilesAndCoverAllRows) {
  for (const uint32_t rows : {1U, 15U, 16U, 50U, 768U, 2048U, 1408U}) {
    for (const uint32_t threads : {1U, 2U, 3U, 16U, 64U}) {
      EXPECT_EQ(ShareBegin(rows, 0, threads), 0U);
      EXPECT_EQ(ShareBegin(rows, threads, threads), rows);
      for (uint32_t t = 0; t < threads; ++t) {
        const uint32_t begin = ShareBegin(rows, t, threads);
        EXPECT_LE(begin, ShareBegin(rows, t + 1, threads));
        EXPECT_TRUE(begin % kTileRows == 0 || begin == rows) << rows << " by " << threads;
      }
    }
  }
}

TEST(RowSharesTest, NoShareIsMoreThanATileLargerThanAnother) {
  for (uint32_t t = 0; t < 5; ++t) {
    const uint32_t rows = ShareBegin(768, t + 1, 5) - ShareBegin(768, t, 5);
    EXPECT_GE(rows, 144U);
    EXPECT_LE(rows, 160U);
  }
}

TEST(RowSharesTest, BlocksFollowEachOtherAndTheLastIsShorter) {
  RowShare share;
  share.Reset(16, 66);
  for (const RowBlock expected : {RowBlock{16, 32}, RowBlock{48, 18}}) {
    const auto block = share.Claim(32);
    ASSERT_TRUE(block.has_value());
    EXPECT_EQ(block->begin, expected.begin);
    EXPECT_EQ(block->count, expected.count);
  }
  EXPECT_FALSE(share.Claim(32).has_value());
}

TEST(RowSharesTest, EachRowIsTakenOnceWhoeverHelps) {
  constexpr uint32_t kRows = 20'000;
  constexpr uint32_t kThreads = 3;
  RowShare shares[kThreads];
  RowProgress progress;
  progress.Reset(kRows);
  for (uint32_t t = 0; t < kThreads; ++t) {
    shares[t].Reset(ShareBegin(kRows, t, kThreads), ShareBegin(kRows, t + 1, kThreads));
  }
  std::vector<std::atomic<int>> taken(kRows);
  std::atomic<int> last{0};
  std::vector<std::thread> team;
  for (uint32_t t = 0; t < kThreads; ++t) {
    team.emplace_back([&, t] {
      for (uint32_t i = 0; i < kThreads; ++i) {
        while (const auto block = shares[(t + i) % kThreads].Claim(32)) {
          for (uint32_t row = block->begin; row < block->end(); ++row) ++taken[row];
          if (progress.Finish(block->count)) ++last;
        }
      }
    });
  }
  for (std::thread& thread : team) thread.join();
  for (const std::atomic<int>& times : taken) ASSERT_EQ(times, 1);
  EXPECT_TRUE(progress.is_done());
  EXPECT_EQ(last, 1);
}

}  // namespace
}  // namespace moestro
