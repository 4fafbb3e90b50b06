// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "store/files_testing.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/memory_reader_testing.h"

namespace moestro {
namespace {

constexpr uint64_t kBlock = 4096;
using Order = MemoryScript::Order;

std::vector<uint64_t> Tags(std::span<const BlockDone> done) {
  std::vector<uint64_t> tags;
  for (const BlockDone& d : done) tags.push_back(d.tag);
  return tags;
}

// Submits one-block reads of consecutive blocks with tags 0, 1, 2, ...
void SubmitBlocks(BlockReader& reader, const AlignedMemory& memory, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) {
    ASSERT_TRUE(reader.Submit({.file = 0,
                               .offset = i * kBlock,
                               .to = memory.span().subspan(i * kBlock, kBlock),
                               .tag = i}));
  }
}

TEST(MemoryReader, BytesArriveAfterThePollsOfTheScript) {
  const auto bytes = RandomBytes(3 * kBlock, 1);
  MemoryReader reader({bytes}, {.polls = 2});
  const AlignedMemory memory(3 * kBlock);
  SubmitBlocks(reader, memory, 3);
  std::array<BlockDone, 8> done;
  EXPECT_EQ(reader.Poll(done), 0U);
  EXPECT_EQ(reader.Poll(done), 0U);
  EXPECT_EQ(memory.span()[0], MemoryReader::kPoison);
  EXPECT_EQ(reader.Poll(done), 3U);
  EXPECT_TRUE(std::ranges::equal(memory.span(), bytes));
}

TEST(MemoryReader, OrderOfTheScript) {
  const auto bytes = RandomBytes(3 * kBlock, 1);
  const AlignedMemory memory(3 * kBlock);
  std::array<BlockDone, 8> done;
  MemoryReader reversed({bytes}, {.order = Order::kReversed});
  SubmitBlocks(reversed, memory, 3);
  EXPECT_EQ(Tags(std::span(done).first(reversed.Poll(done))), (std::vector<uint64_t>{2, 1, 0}));

  MemoryReader by_hand({bytes}, {.order = Order::kByHand});
  SubmitBlocks(by_hand, memory, 3);
  EXPECT_EQ(by_hand.Poll(done), 0U);
  by_hand.LetGo(1);
  EXPECT_EQ(Tags(std::span(done).first(by_hand.Poll(done))), (std::vector<uint64_t>{1}));
  EXPECT_EQ(by_hand.waiting().size(), 2U);
  by_hand.LetGo(1);
  EXPECT_EQ(Tags(std::span(done).first(by_hand.Wait(done))), (std::vector<uint64_t>{2}));
  EXPECT_EQ(Tags(std::span(done).first(by_hand.Wait(done))), (std::vector<uint64_t>{0}));
  EXPECT_EQ(by_hand.Wait(done), 0U);
}

TEST(MemoryReader, EndOfFileAndFullQueue) {
  MemoryReader reader({RandomBytes(kBlock + 10, 1)}, {.queue_depth = 2});
  const AlignedMemory memory(3 * kBlock);
  SubmitBlocks(reader, memory, 2);
  EXPECT_FALSE(reader.Submit(
      {.file = 0, .offset = 2 * kBlock, .to = memory.span().subspan(2 * kBlock), .tag = 2}));
  std::array<BlockDone, 8> done;
  ASSERT_EQ(reader.Wait(done), 2U);
  EXPECT_EQ(done[0].bytes, kBlock);
  EXPECT_EQ(done[1].bytes, 10U);
  EXPECT_TRUE(reader.Submit({.file = 0, .offset = 2 * kBlock, .to = memory.span(), .tag = 2}));
  ASSERT_EQ(reader.Wait(done), 1U);
  EXPECT_EQ(done[0].bytes, 0U);
}

TEST(FaultReader, ChangesTheResultsOfThePlanAndKeepsTags) {
  const std::vector<std::vector<std::byte>> files{RandomBytes(6 * kBlock, 1)};
  auto inner =
      std::make_unique<MemoryReader>(files, MemoryScript{.order = Order::kReversed, .faults = {}});
  FaultReader reader(std::move(inner),
                     FaultScript().ErrorAt(0, EIO).ShortAt(2, 100).ErrorFrom(4, ENODEV));
  const AlignedMemory memory(6 * kBlock);
  SubmitBlocks(reader, memory, 6);
  EXPECT_EQ(reader.submitted(), 6U);
  std::array<BlockDone, 8> done;
  ASSERT_EQ(reader.Poll(done), 6U);
  std::ranges::sort(std::span(done).first(6), {}, &BlockDone::tag);
  const std::array errors{EIO, 0, 0, 0, ENODEV, ENODEV};
  const std::array<uint64_t, 6> bytes{0, kBlock, 100, kBlock, 0, 0};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(done[i].tag, i);
    EXPECT_EQ(done[i].error, errors[i]) << i;
    EXPECT_EQ(done[i].bytes, bytes[i]) << i;
  }
  reader.SetPlan({});
  SubmitBlocks(reader, memory, 1);
  ASSERT_EQ(reader.Wait(done), 1U);
  EXPECT_EQ(done[0].error, 0);
}

}  // namespace
}  // namespace moestro
