// SPDX-License-Identifier: MIT
#include "decide/slots/budget.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/number.h"

namespace moestro {
namespace {

// Sizes in MiB: the smallest budget is a whole number of these.
BudgetRequest Typical() {
  return {.budget = 1000 * kMiB,
          .dense = 100 * kMiB,
          .kv = 50 * kMiB,
          .work = 30 * kMiB,
          .process = 20 * kMiB,
          .classes = {{.slot_bytes = 10 * kMiB, .experts = 100, .minimum = 4},
                      {.slot_bytes = 20 * kMiB, .experts = 50, .minimum = 4}}};
}

TEST(SplitBudget, GivesEveryClassTheSameShare) {
  const auto split = SplitBudget(Typical());
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->slots[0], 40U);  // 800 MiB for 2000 MiB of experts: 40 % of each
  EXPECT_EQ(split->slots[1], 20U);
  EXPECT_EQ(split->slot_bytes, 800 * kMiB);
}

TEST(SplitBudget, NeverTakesMoreThanThereAreExperts) {
  BudgetRequest request = Typical();
  request.budget = 100000 * kMiB;
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->slots[0], 100U);
  EXPECT_EQ(split->slots[1], 50U);
}

TEST(SplitBudget, NamesTheSmallestThatWorksAndItDoes) {
  BudgetRequest request = Typical();
  request.dense += 1;  // whole MiB are named
  request.budget = 321 * kMiB - 1;
  const auto refused = SplitBudget(request);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_NE(refused.error().message.find("--ram 321M"), std::string::npos)
      << refused.error().message;
  request.budget = 321 * kMiB;  // 200 fixed + 4 * 10 + 4 * 20
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->smallest, request.budget);
  EXPECT_EQ(SmallestBudget(request), request.budget);
  EXPECT_EQ(split->slots[0], 4U);
}

// Whether or not the budget that was asked for is enough: its page tables are not those of the
// smallest.
TEST(SplitBudget, TheSmallestHasRoomForItsPageTables) {
  BudgetRequest request = Typical();
  request.bytes_per_table_byte = 8;
  for (const uint64_t budget : {1U, 319U, 365U, 366U, 100000U}) {
    request.budget = budget * kMiB;
    // 320 and 45.7 of tables
    EXPECT_EQ(SplitBudget(request).has_value(), budget >= 366) << budget;
  }
  request.budget = 366 * kMiB;
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split.has_value()) << split.error().message;
  EXPECT_EQ(split->smallest, 366 * kMiB);
  EXPECT_EQ(split->table_bytes, 366 * kMiB / 8);
}

// What loading takes for a while is in the smallest budget, and is the slots' afterwards.
TEST(SplitBudget, WhatLoadingTakesIsGivenBack) {
  BudgetRequest request = Typical();
  request.staging = 350 * kMiB;  // 200 more than work and the fewest slots
  EXPECT_EQ(SmallestBudget(request), 520 * kMiB);
  request.budget = 519 * kMiB;
  const auto refused = SplitBudget(request);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("while loading 350.0 MiB"), std::string::npos)
      << refused.error().message;
  request.budget = 520 * kMiB;
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split) << split.error().message;
  EXPECT_EQ(split->slots, (std::vector<uint64_t>{16, 8}));  // 320 of 2000
  request.staging = 150 * kMiB;                             // no more than these
  EXPECT_EQ(SmallestBudget(request), 320 * kMiB);
}

// All commands name the same budget, what each has taken by then notwithstanding; one that has
// taken more names more.
TEST(SplitBudget, TheSmallestHoldsTheUsualProcess) {
  BudgetRequest request = Typical();
  request.usual_process = 25 * kMiB;
  EXPECT_EQ(SmallestBudget(request), 325 * kMiB);
  request.process = 24 * kMiB;
  EXPECT_EQ(SmallestBudget(request), 325 * kMiB);
  request.budget = 325 * kMiB;
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split) << split.error().message;
  EXPECT_EQ(split->room, 121 * kMiB);  // what is not taken is there for slots
  request.process = 40 * kMiB;
  EXPECT_EQ(SmallestBudget(request), 340 * kMiB);
}

TEST(SplitBudget, FixedCacheIsKept) {
  BudgetRequest request = Typical();
  request.fixed_cache = 400 * kMiB;
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split.has_value());
  EXPECT_LE(split->slot_bytes, 400 * kMiB);
  EXPECT_GT(split->slot_bytes, 380 * kMiB);
  request.fixed_cache = 119 * kMiB;
  EXPECT_FALSE(SplitBudget(request).has_value());
}

// Of 1000 bytes for slots a quarter goes to low copies, as far as they can use it.
TEST(SplitBudget, LowCopiesGetTheirShare) {
  BudgetRequest request{.fixed_cache = 1000, .low_share = 0.25};
  request.classes = {{.slot_bytes = 50, .experts = 100, .minimum = 2},
                     {.slot_bytes = 10, .experts = 100, .minimum = 2, .is_low = true}};
  request.budget = kMiB;
  auto split = SplitBudget(request);
  ASSERT_TRUE(split) << split.error().message;
  EXPECT_EQ(split->slots, (std::vector<uint64_t>{15, 25}));
  request.classes[1].experts = 5;  // all of them fit
  split = SplitBudget(request);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->slots, (std::vector<uint64_t>{19, 5}));
  request.low_share = 0.999;  // the own copies keep what one token needs
  request.classes[1].experts = 1000;
  split = SplitBudget(request);
  ASSERT_TRUE(split);
  EXPECT_EQ(split->slots, (std::vector<uint64_t>{2, 90}));
}

}  // namespace
}  // namespace moestro
