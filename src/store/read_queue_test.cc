// SPDX-License-Identifier: MIT
#include "store/read_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <numeric>
#include <random>

#include "store/files_testing.h"
#include "tests/support/memory_reader_testing.h"
#include "tests/support/queue_testing.h"

namespace moestro {
namespace {

using Blocks = std::vector<uint64_t>;

TEST(ReadQueue, RandomExtentsArriveWhateverTheOrder) {
  for (const Order order : {Order::kSubmitted, Order::kReversed}) {
    QueueFixture f(300'000, {.polls = 2, .order = order, .queue_depth = 5},
                   {.max_request = 2 * kBlock, .max_in_flight = 7, .max_speculative = 3});
    std::mt19937_64 random(3);
    for (uint64_t tag = 0; tag < 200; ++tag) {
      const uint64_t offset = random() % 299'999;
      const uint64_t length = 1 + random() % std::min<uint64_t>(300'000 - offset, 40'000);
      f.Ask(tag, offset, length, random() % 2 == 0 ? Urgency::kDemand : Urgency::kSpeculative);
    }
    const auto done = f.Drain();
    EXPECT_EQ(done.size(), 200U);
    for (const ExtentDone& d : done) {
      EXPECT_FALSE(d.error.has_value());
      EXPECT_TRUE(f.HasRightBytes(d.tag)) << d.tag;
    }
  }
}

TEST(ReadQueue, SplitsIntoEqualParts) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand}, {.max_request = 8 * kBlock});
  f.Ask(1, kBlock + 5, 9 * kBlock - 5);  // nine blocks: five and four, not eight and one
  f.Pump();
  ASSERT_EQ(f.AtDevice(), (Blocks{1, 6}));
  EXPECT_EQ(f.reader().waiting()[0].to.size(), 5 * kBlock);
  EXPECT_EQ(f.reader().waiting()[1].to.size(), 4 * kBlock);
  f.reader().LetGo(1);
  EXPECT_TRUE(f.Pump().empty());  // one part alone is not the extent
  f.reader().LetGo(0);
  EXPECT_EQ(Tags(f.Pump()), (Blocks{1}));
  EXPECT_TRUE(f.HasRightBytes(1));
  EXPECT_EQ(f.queue().stats().requests, 2U);
  EXPECT_EQ(f.queue().stats().bytes, 9 * kBlock);
  EXPECT_EQ(f.queue().stats().demand_bytes, 9 * kBlock - 5);
}

TEST(ReadQueue, BoundsWhatIsInFlight) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand},
                 {.max_request = kBlock, .max_in_flight = 3, .max_speculative = 2});
  f.Ask(1, 0, 10 * kBlock);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{0, 1, 2}));
  f.reader().LetGo(1);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{0, 2, 3}));
  f.Drain();
  EXPECT_TRUE(f.HasRightBytes(1));
}

TEST(ReadQueue, DemandOvertakesTheRestOfASpeculativeRead) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand},
                 {.max_request = kBlock, .max_in_flight = 3, .max_speculative = 2});
  f.Ask(1, 0, 4 * kBlock, Urgency::kSpeculative);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{0, 1}));  // max_speculative
  f.Ask(2, 20 * kBlock, 3 * kBlock);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{0, 1, 20}));
  f.reader().LetGo(0);
  f.reader().LetGo(0);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{20, 21, 22}));  // no speculation while demand waits
  f.reader().LetGo(0);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{21, 22, 2}));
  EXPECT_EQ(f.Drain().size(), 2U);
  EXPECT_TRUE(f.HasRightBytes(1));
  EXPECT_TRUE(f.HasRightBytes(2));
  EXPECT_EQ(f.queue().stats().speculative_bytes, 4 * kBlock);
}

TEST(ReadQueue, NoSpeculationWhileTheReaderHasNoRoomForDemand) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand, .queue_depth = 1}, {.max_request = kBlock});
  f.Ask(1, 0, kBlock, Urgency::kSpeculative);
  f.Ask(2, 10 * kBlock, 2 * kBlock);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{10}));
  f.reader().LetGo(0);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{11}));
  f.reader().LetGo(0);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{0}));
  f.Drain();
}

TEST(ReadQueue, PromoteMovesAWaitingReadAheadOfSpeculation) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand},
                 {.max_request = kBlock, .max_in_flight = 1, .max_speculative = 1});
  f.Ask(1, 1 * kBlock, kBlock, Urgency::kSpeculative);
  f.Ask(2, 2 * kBlock, kBlock, Urgency::kSpeculative);
  f.Ask(3, 3 * kBlock, kBlock, Urgency::kSpeculative);
  f.Pump();
  f.queue().Promote(3);
  f.queue().Promote(77);  // unknown: nothing happens
  f.reader().LetGo(0);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{3}));
  f.Drain();
  EXPECT_EQ(f.queue().stats().demand_bytes, kBlock);
  EXPECT_EQ(f.queue().stats().speculative_bytes, 2 * kBlock);
}

TEST(ReadQueue, PromotedInFlightIsRetriedAheadOfSpeculation) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand, .faults = FaultScript().ErrorAt(0, EIO)},
                 {.max_request = kBlock, .max_in_flight = 1, .max_speculative = 1});
  f.Ask(1, 1 * kBlock, kBlock, Urgency::kSpeculative);
  f.Pump();
  f.queue().Promote(1);
  f.Ask(2, 2 * kBlock, kBlock, Urgency::kDemand);
  f.reader().LetGo(0);
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{1}));
  EXPECT_EQ(Tags(f.Drain()), (Blocks{1, 2}));
}

TEST(ReadQueue, CancelOnlyBeforeTheDeviceHasAPart) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand},
                 {.max_request = kBlock, .max_in_flight = 1, .max_speculative = 1});
  f.Ask(1, 1 * kBlock, 2 * kBlock);
  f.Ask(2, 5 * kBlock, kBlock, Urgency::kSpeculative);
  f.Ask(3, 6 * kBlock, kBlock);
  f.Pump();
  EXPECT_FALSE(f.queue().Cancel(1));
  EXPECT_TRUE(f.queue().Cancel(2));
  EXPECT_FALSE(f.queue().Cancel(2));
  EXPECT_TRUE(f.queue().Cancel(3));
  EXPECT_EQ(Tags(f.Drain()), (Blocks{1}));
  EXPECT_TRUE(f.queue().idle());
  f.Ask(2, 5 * kBlock, kBlock);  // the tag is free again
  EXPECT_EQ(Tags(f.Drain()), (Blocks{2}));
  EXPECT_TRUE(f.HasRightBytes(2));
}

// A long prompt's late experts: thousands wait, and each is promoted or given up by its tag.
TEST(ReadQueue, ThousandsArePromotedAndCancelledInAnyOrder) {
  constexpr uint64_t kReads = 20'000;
  MemoryReader reader({RandomBytes(4 * kBlock, 7)}, {.order = Order::kByHand});
  ReadQueue queue(reader, {"model.gguf"}, {.max_in_flight = 1, .max_speculative = 1});
  const AlignedMemory memory(2 * kBlock);
  for (uint64_t tag = 0; tag < kReads; ++tag) {
    queue.Enqueue({.from = {.file = 0, .offset = 0, .length = kBlock},
                   .landing = memory.span(),
                   .tag = tag,
                   .urgency = Urgency::kSpeculative});
  }
  std::vector<uint64_t> tags(kReads);
  std::iota(tags.begin(), tags.end(), uint64_t{0});
  std::ranges::shuffle(tags, std::mt19937_64(5));
  std::vector<uint64_t> promoted;
  std::vector<uint64_t> rest;  // speculative still, in order of their tags
  for (const uint64_t tag : tags) {
    if (tag % 3 == 0) {
      queue.Promote(tag);
      promoted.push_back(tag);
    } else if (tag % 3 == 1) {
      EXPECT_TRUE(queue.Cancel(tag));
      EXPECT_FALSE(queue.Cancel(tag));
    }
  }
  for (uint64_t tag = 2; tag < kReads; tag += 3) rest.push_back(tag);
  std::vector<ExtentDone> done;
  while (!queue.idle()) queue.Wait(done);
  promoted.insert(promoted.end(), rest.begin(), rest.end());
  EXPECT_EQ(Tags(done), promoted);
}

TEST(ReadQueue, RetriesOnce) {
  QueueFixture f(40 * kBlock, {.faults = FaultScript().ErrorAt(1, EIO)}, {.max_request = kBlock});
  f.Ask(1, 0, 3 * kBlock);
  const auto done = f.Drain();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_FALSE(done[0].error.has_value());
  EXPECT_TRUE(f.HasRightBytes(1));
  EXPECT_EQ(f.queue().stats().retries, 1U);
  EXPECT_EQ(f.queue().stats().requests, 4U);
}

TEST(ReadQueue, SecondFailureNamesFileOffsetAndCause) {
  const FaultScript faults = FaultScript().ErrorAt(1, EIO).ErrorAt(3, EIO);
  QueueFixture f(40 * kBlock, {.faults = faults},
                 {.max_request = kBlock, .max_in_flight = 3, .max_speculative = 1});
  f.Ask(1, 2 * kBlock, 3 * kBlock);
  f.Ask(2, 20 * kBlock, kBlock);
  const auto done = f.Drain();
  ASSERT_EQ(done.size(), 2U);
  const auto failed = std::ranges::find(done, 1U, &ExtentDone::tag);
  ASSERT_TRUE(failed->error.has_value());
  EXPECT_EQ(failed->error->code, Errc::kIo);
  EXPECT_EQ(failed->error->message,
            "cannot read model.gguf at offset 12288: Input/output error (tried twice)");
  const auto other = std::ranges::find(done, 2U, &ExtentDone::tag);
  EXPECT_FALSE(other->error.has_value());
  EXPECT_TRUE(f.HasRightBytes(2));
  f.Ask(1, 2 * kBlock, 3 * kBlock);  // the queue works on
  EXPECT_FALSE(f.Drain()[0].error.has_value());
  EXPECT_TRUE(f.HasRightBytes(1));
}

TEST(ReadQueue, FailureIsReportedOnlyWhenNoPartIsInFlight) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand, .faults = FaultScript().ErrorFrom(1, EIO)},
                 {.max_request = kBlock, .max_in_flight = 2, .max_speculative = 1});
  f.Ask(1, 0, 10 * kBlock);
  f.Pump();
  f.reader().LetGo(1);  // fails, goes in again
  EXPECT_TRUE(f.Pump().empty());
  ASSERT_EQ(f.AtDevice(), (Blocks{0, 1}));
  f.reader().LetGo(1);  // fails for good
  EXPECT_TRUE(f.Pump().empty());
  EXPECT_EQ(f.AtDevice(), (Blocks{0}));  // no further part is handed out
  f.reader().LetGo(0);
  const auto done = f.Pump();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_TRUE(done[0].error.has_value());
  EXPECT_TRUE(f.queue().idle());
}

TEST(ReadQueue, FailureWithdrawsPartsThatWaitForTheirRetry) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand, .faults = FaultScript().ErrorFrom(0, EIO)},
                 {.max_request = kBlock, .max_in_flight = 4, .max_speculative = 1});
  f.Ask(1, 0, 4 * kBlock);
  const auto done = f.Drain();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_TRUE(done[0].error.has_value());
  EXPECT_TRUE(f.AtDevice().empty());
}

TEST(ReadQueue, ContinuesAShortReadWhereItStopped) {
  // Stops inside the third block: goes on at its start. Not a retry.
  QueueFixture f(40 * kBlock, {.faults = FaultScript().ShortAt(0, 2 * kBlock + 100)},
                 {.max_request = 8 * kBlock});
  f.Ask(1, 10, 5 * kBlock);
  const auto done = f.Drain();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_FALSE(done[0].error.has_value());
  EXPECT_TRUE(f.HasRightBytes(1));
  EXPECT_EQ(f.queue().stats().requests, 2U);
  EXPECT_EQ(f.queue().stats().retries, 0U);
  EXPECT_EQ(f.queue().stats().bytes, 2 * kBlock + 100 + 4 * kBlock);
}

TEST(ReadQueue, EndOfFileInsideTheWindowIsComplete) {
  QueueFixture f(3 * kBlock + 17);
  f.Ask(1, 2 * kBlock + 5, kBlock + 12);
  const auto done = f.Drain();
  ASSERT_EQ(done.size(), 1U);
  EXPECT_FALSE(done[0].error.has_value());
  EXPECT_TRUE(f.HasRightBytes(1));
  EXPECT_EQ(f.queue().stats().requests, 1U);
}

TEST(ReadQueue, MissingBytesAreAnErrorNotAHang) {
  std::vector<std::byte> bytes(3 * kBlock + 17);
  MemoryReader reader({bytes});
  ReadQueue queue(reader, {"model.gguf"}, {.max_request = 2 * kBlock});
  const AlignedMemory memory(6 * kBlock);
  queue.Enqueue({.from = {.file = 0, .offset = kBlock, .length = 4 * kBlock},
                 .landing = memory.span(),
                 .tag = 9});
  std::vector<ExtentDone> done;
  while (!queue.idle()) queue.Wait(done);
  ASSERT_EQ(done.size(), 1U);
  ASSERT_TRUE(done[0].error.has_value());
  EXPECT_EQ(done[0].error->message,
            "model.gguf ends at byte 12305, before byte 20480 that is needed: was it cut off while "
            "in use?");
}

TEST(ReadQueue, AlwaysShortByOneBlockStillFinishes) {
  QueueFixture f(40 * kBlock, {.faults = FaultScript().ShortFrom(0, kBlock)},
                 {.max_request = 8 * kBlock});
  f.Ask(1, 0, 20 * kBlock);
  EXPECT_FALSE(f.Drain()[0].error.has_value());
  EXPECT_TRUE(f.HasRightBytes(1));
}

TEST(ReadQueue, DestructorWaitsForTheDevice) {
  QueueFixture f(40 * kBlock, {.order = Order::kByHand},
                 {.max_request = kBlock, .max_in_flight = 8});
  f.Ask(1, 0, 8 * kBlock);
  f.Pump();
  EXPECT_EQ(f.AtDevice().size(), 8U);
  f.DestroyQueue();
  EXPECT_TRUE(f.AtDevice().empty());
}

TEST(ReadQueue, WaitWithNothingToDoReturns) {
  QueueFixture f(kBlock);
  std::vector<ExtentDone> done;
  f.queue().Wait(done);
  EXPECT_TRUE(done.empty());
}

// While no caller pumps, the device works on the reads that it has.
TEST(ReadQueue, PumpAheadGivesTheDeviceAllThatWaits) {
  QueueFixture f(64 * kBlock, {.order = Order::kByHand},
                 {.max_request = kBlock, .max_in_flight = 2, .max_speculative = 1, .max_ahead = 6});
  for (uint64_t tag = 0; tag < 8; ++tag) {
    f.Ask(tag, tag * kBlock, kBlock, tag < 5 ? Urgency::kSpeculative : Urgency::kDemand);
  }
  f.Pump();
  EXPECT_EQ(f.AtDevice(), (Blocks{5, 6}));
  std::vector<ExtentDone> done;
  f.queue().PumpAhead(done);
  EXPECT_EQ(f.AtDevice(), (Blocks{5, 6, 7, 0, 1, 2}));  // demand first
  f.reader().LetGo(0);
  EXPECT_EQ(f.Pump().size(), 1U);
  EXPECT_EQ(f.AtDevice().size(), 5U);  // no more until fewer than two are at the device
  EXPECT_EQ(f.Drain().size(), 7U);
  for (uint64_t tag = 0; tag < 8; ++tag) EXPECT_TRUE(f.HasRightBytes(tag)) << tag;
}

// Before a dense part: as much as the device reads meanwhile, but never less than usual.
TEST(ReadQueue, PumpAheadStopsAtTheBytesItIsTold) {
  QueueFixture f(64 * kBlock, {.order = Order::kByHand},
                 {.max_request = kBlock, .max_in_flight = 2, .max_speculative = 1, .max_ahead = 6});
  for (uint64_t tag = 0; tag < 10; ++tag) {
    f.Ask(tag, tag * kBlock, kBlock, Urgency::kSpeculative);
  }
  std::vector<ExtentDone> done;
  f.queue().PumpAhead(done, 0);
  EXPECT_EQ(f.AtDevice(), (Blocks{0}));  // as Pump() does
  f.queue().PumpAhead(done, 3 * kBlock + 1);
  EXPECT_EQ(f.AtDevice(), (Blocks{0, 1, 2, 3}));  // a read that is begun is read whole
  f.queue().PumpAhead(done, 3 * kBlock);
  EXPECT_EQ(f.AtDevice().size(), 4U);
  f.queue().Drop(0);  // no longer counts
  f.queue().PumpAhead(done, 4 * kBlock);
  EXPECT_EQ(f.AtDevice(), (Blocks{0, 1, 2, 3, 4}));
  f.queue().PumpAhead(done, 100 * kBlock);
  EXPECT_EQ(f.AtDevice().size(), 7U);  // max_ahead, and the dropped one
  EXPECT_EQ(f.Drain().size(), 10U);
  for (uint64_t tag = 1; tag < 10; ++tag) EXPECT_TRUE(f.HasRightBytes(tag)) << tag;
}

}  // namespace
}  // namespace moestro
