// SPDX-License-Identifier: MIT
#include "base/wait_word.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace moestro {
namespace {

TEST(WaitWord, AChangedValueDoesNotSleep) {
  WaitWord word(3);
  word.Add(1);
  word.Sleep(3);  // would never end
  word.Set(8);
  word.Sleep(4);
  EXPECT_EQ(word.load(), 12U);
}

// Two threads that take turns: each sleeps until the other one has changed the word. A wake-up that
// is lost hangs the test.
TEST(WaitWord, NoWakeUpIsLost) {
  constexpr uint32_t kTurns = 20'000;
  for (const bool spins : {false, true}) {
    WaitWord word;
    const auto play = [&](uint32_t side) {
      for (uint32_t turn = side; turn < kTurns; turn += 2) {
        if (spins) {
          word.WaitUntil([turn](uint32_t value) { return value == turn; });
        } else {
          for (uint32_t seen = word.load(); seen != turn; seen = word.load()) word.Sleep(seen);
        }
        word.Add(1);
      }
    };
    std::thread other(play, 1);
    play(0);
    other.join();
    EXPECT_EQ(word.load(), kTurns);
  }
}

TEST(WaitWord, EveryThreadWakes) {
  WaitWord word;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] { word.WaitUntil([](uint32_t value) { return value == 1; }); });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  word.Store(1);
  for (std::thread& thread : threads) thread.join();
}

// A thread that waits for long sleeps: it takes no processor's time.
TEST(WaitWord, ALongWaitSleeps) {
  WaitWord word;
  double busy = 0.0;
  std::thread waiting([&] {
    word.WaitUntil([](uint32_t value) { return value == 1; });
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    busy = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  word.Store(1);
  waiting.join();
  EXPECT_LT(busy, 0.1);
}

}  // namespace
}  // namespace moestro
