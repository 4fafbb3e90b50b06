// SPDX-License-Identifier: MIT
// Drops reads for which no caller waits any more while the device has parts of them.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "store/read_queue.h"
#include "tests/support/memory_reader_testing.h"
#include "tests/support/queue_testing.h"

namespace moestro {
namespace {

using Dropped = ReadQueue::Dropped;
using Order = MemoryScript::Order;

constexpr ReadQueueOptions kTwoAtATime = {
    .max_request = kBlock, .max_in_flight = 2, .max_speculative = 2};

TEST(ReadQueueDrop, WhatTheDeviceHasNotBeenGivenIsGoneAtOnce) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand}, kTwoAtATime);
  f.Ask(1, 0, 2 * kBlock);
  f.Ask(2, 4 * kBlock, kBlock);
  f.Pump();
  EXPECT_EQ(f.queue().Drop(2), Dropped::kGone);
  EXPECT_EQ(f.queue().Drop(2), Dropped::kUnknown);
  EXPECT_EQ(f.queue().Drop(7), Dropped::kUnknown);
  EXPECT_EQ(Tags(f.Drain()), (std::vector<uint64_t>{1}));
  EXPECT_TRUE(f.HasRightBytes(1));
}

TEST(ReadQueueDrop, WhatIsAtTheDeviceLandsAndIsToldOnce) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand}, kTwoAtATime);
  f.Ask(1, 0, 2 * kBlock);
  f.Ask(2, 8 * kBlock, 6 * kBlock);
  f.Pump();
  EXPECT_EQ(f.queue().Drop(1), Dropped::kEnds);  // all parts are at the device
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (std::vector<uint64_t>{0, 1, 8, 9})) << "others need not wait for it";
  EXPECT_EQ(f.queue().Drop(2), Dropped::kEnds);  // two of six parts are at the device
  EXPECT_FALSE(f.queue().idle());
  const std::vector<ExtentDone> done = f.Drain();
  ASSERT_EQ(Tags(done), (std::vector<uint64_t>{1, 2}));
  EXPECT_FALSE(done[0].error);
  EXPECT_TRUE(f.HasRightBytes(1));
  ASSERT_TRUE(done[1].error);
  EXPECT_EQ(done[1].error->code, Errc::kInterrupted);
}

// The read was short or failed: the remaining parts are not read.
TEST(ReadQueueDrop, NothingIsTriedAgain) {
  MemoryScript script{.order = Order::kByHand};
  script.faults.ErrorAt(0, EIO).ErrorAt(1, EIO);
  QueueFixture f(40 * kBlock, script, kTwoAtATime);
  f.Ask(1, 0, 2 * kBlock);
  f.Pump();
  f.reader().LetGo(0);
  f.Pump();  // the first part has failed and been given to the device again
  EXPECT_EQ(f.queue().Drop(1), Dropped::kEnds);
  const std::vector<ExtentDone> done = f.Drain();
  ASSERT_EQ(Tags(done), (std::vector<uint64_t>{1}));
  ASSERT_TRUE(done[0].error);
  EXPECT_EQ(f.queue().stats().retries, 1U);
}

TEST(ReadQueueDrop, TheDestructorWaitsForThem) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand}, kTwoAtATime);
  f.Ask(1, 0, 2 * kBlock);
  f.Pump();
  f.queue().Drop(1);
  f.DestroyQueue();
  EXPECT_TRUE(f.reader().waiting().empty());
}

TEST(ReadQueueDrop, ThousandsAreDroppedInAnyOrder) {
  std::mt19937 random(3);
  QueueFixture f(4000 * kBlock, {.polls = 3, .order = Order::kReversed},
                 {.max_request = kBlock, .max_in_flight = 8, .max_ahead = 30});
  std::set<uint64_t> expected;
  std::vector<ExtentDone> done;
  uint64_t tag = 0;
  for (int round = 0; round < 400; ++round) {
    for (int i = 0; i < 5; ++i, ++tag) {
      const bool is_demand = random() % 2 == 0;
      f.Ask(tag, random() % 3900 * kBlock + random() % kBlock, 1 + random() % (5 * kBlock),
            is_demand ? Urgency::kDemand : Urgency::kSpeculative);
      expected.insert(tag);
    }
    random() % 3 == 0 ? f.queue().PumpAhead(done) : f.queue().Pump(done);
    for (int i = 0; i < 4; ++i) {
      const uint64_t dropped = random() % (tag + 1);
      if (f.queue().Drop(dropped) == Dropped::kGone) expected.erase(dropped);
    }
  }
  while (!f.queue().idle()) f.queue().WaitBriefly(done);
  std::set<uint64_t> told;
  for (const ExtentDone& d : done) {
    EXPECT_TRUE(told.insert(d.tag).second) << "told twice";
    if (!d.error) {
      EXPECT_TRUE(f.HasRightBytes(d.tag)) << d.tag;
    } else {
      EXPECT_EQ(d.error->code, Errc::kInterrupted);
    }
  }
  EXPECT_EQ(told, expected);
}

}  // namespace
}  // namespace moestro
