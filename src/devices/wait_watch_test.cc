// SPDX-License-Identifier: MIT
#include "devices/wait_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace moestro {
namespace {

constexpr double kPatience = 0.02;

TEST(WaitWatch, TellsOnceOfAWaitThatLastsTooLong) {
  std::atomic<int> told = 0;
  WaitWatch watch(kPatience, [&] { ++told; });
  for (int wait = 1; wait <= 2; ++wait) {
    const int done = watch.During([&] {
      while (told < wait) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::duration<double>(4 * kPatience));
      return wait;
    });
    EXPECT_EQ(done, wait);
    EXPECT_EQ(told, wait);
  }
}

// A thousand short waits last as long together.
TEST(WaitWatch, SaysNothingOfShortWaits) {
  std::atomic<int> told = 0;
  WaitWatch watch(60.0, [&] { ++told; });
  for (int wait = 0; wait < 1000; ++wait) watch.During([] { std::this_thread::yield(); });
  EXPECT_EQ(told, 0);
}

// The time between waits is none.
TEST(WaitWatch, SaysNothingBetweenWaits) {
  std::atomic<int> told = 0;
  WaitWatch watch(kPatience, [&] { ++told; });
  watch.During([] {});
  std::this_thread::sleep_for(std::chrono::duration<double>(8 * kPatience));
  EXPECT_EQ(told, 0);
}

TEST(WaitWatch, EndsAtOnce) {
  const auto begun = std::chrono::steady_clock::now();
  {
    const WaitWatch watch(3600.0, [] {});
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::minutes(5));
}

}  // namespace
}  // namespace moestro
