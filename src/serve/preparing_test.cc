// SPDX-License-Identifier: MIT
#include "serve/preparing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>

namespace moestro {
namespace {

constexpr size_t kLarge = size_t{16} << 20;

// Both turns begin on one thread: a turn that waited for the other would wait for ever.
TEST(PreparingTest, SmallBodiesDoNotWaitForLargeOnes) {
  Preparing preparing({});
  const Preparing::Turn large = preparing.Begin(kLarge);
  const Preparing::Turn small = preparing.Begin(Preparing::kSmallBody);
  EXPECT_EQ(preparing.working(), 2U);
  EXPECT_TRUE(large.limit().Look());
  EXPECT_TRUE(small.limit().Look());
}

TEST(PreparingTest, ALaneTakesOneAtATime) {
  Preparing preparing({});
  std::unique_ptr<Preparing::Turn> first(new Preparing::Turn(preparing.Begin(kLarge)));
  std::atomic<bool> is_over = false;
  std::promise<bool> saw_end;
  std::jthread second([&] {
    const Preparing::Turn turn = preparing.Begin(Preparing::kSmallBody + 1);
    saw_end.set_value(is_over.load());
  });
  while (preparing.waiting() == 0) std::this_thread::yield();
  EXPECT_EQ(preparing.working(), 1U);
  is_over = true;
  first.reset();
  EXPECT_TRUE(saw_end.get_future().get());
}

TEST(PreparingTest, WhoFreesTheLaneIsStillBeingPrepared) {
  Preparing preparing({});
  {
    Preparing::Turn first = preparing.Begin(kLarge);
    first.FreeLane();
    const Preparing::Turn second = preparing.Begin(kLarge);
    EXPECT_EQ(preparing.working(), 2U);
    EXPECT_EQ(preparing.waiting(), 0U);
  }
  EXPECT_EQ(preparing.working(), 0U);
}

TEST(PreparingTest, ATurnsTimeIsItsLanesAndBeginsWithIt) {
  double now = 1000.0;
  Preparing preparing({.small_seconds = 2.0, .large_seconds = 10.0, .clock = [&] { return now; }});
  const Preparing::Turn large = preparing.Begin(kLarge);
  const Preparing::Turn small = preparing.Begin(1);
  now += 5.0;
  EXPECT_TRUE(large.limit().Look());
  EXPECT_FALSE(small.limit().Look());
  now += 5.5;
  EXPECT_EQ(large.limit().Look().error().code, Errc::kInvalidRequest);
}

TEST(PreparingTest, TurnsEndWhenTheServerDoes) {
  bool is_over = false;
  Preparing preparing({.is_over = [&] { return is_over; }});
  {
    const Preparing::Turn turn = preparing.Begin(kLarge);
    EXPECT_TRUE(turn.limit().Look());
    is_over = true;
    EXPECT_EQ(turn.limit().Look().error().code, Errc::kInterrupted);
  }
  EXPECT_FALSE(preparing.Begin(1).limit().Look()) << "and no other one begins";
}

}  // namespace
}  // namespace moestro
