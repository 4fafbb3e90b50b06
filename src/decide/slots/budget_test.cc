// SPDX-License-Identifier: MIT
#include "decide/slots/budget.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

BudgetRequest Typical() {
  return {.budget = 1000,
          .dense = 100,
          .kv = 50,
          .work = 30,
          .process = 20,
          .classes = {{.slot_bytes = 10, .experts = 100, .minimum = 4},
                      {.slot_bytes = 20, .experts = 50, .minimum = 4}}};
}

TEST(SplitBudget, GivesEveryClassTheSameShare) {
  const auto split = SplitBudget(Typical());
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->slots[0], 40U);  // 800 bytes for 2000 bytes of experts: 40 % of each
  EXPECT_EQ(split->slots[1], 20U);
  EXPECT_EQ(split->slot_bytes, 800U);
}

TEST(SplitBudget, NeverTakesMoreThanThereAreExperts) {
  BudgetRequest request = Typical();
  request.budget = 100000;
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->slots[0], 100U);
  EXPECT_EQ(split->slots[1], 50U);
}

TEST(SplitBudget, NamesTheSmallestThatWorksAndItDoes) {
  BudgetRequest request = Typical();
  request.budget = 319;
  const auto refused = SplitBudget(request);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  request.budget = 320;  // 200 fixed + 4 * 10 + 4 * 20
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split.has_value());
  EXPECT_EQ(split->smallest, 320U);
  EXPECT_EQ(split->slots[0], 4U);
}

// Whether or not the budget that was asked for is enough: its page tables are not those of the
// smallest.
TEST(SplitBudget, TheSmallestHasRoomForItsPageTables) {
  BudgetRequest request = Typical();
  request.bytes_per_table_byte = 8;
  for (const uint64_t budget : {1U, 319U, 364U, 365U, 100000U}) {
    request.budget = budget;
    EXPECT_EQ(SplitBudget(request).has_value(), budget >= 365) << budget;  // 320 and 45 of tables
  }
  request.budget = 365;
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split.has_value()) << split.error().message;
  EXPECT_EQ(split->smallest, 365U);
  EXPECT_EQ(split->table_bytes, 45U);
}

TEST(SplitBudget, FixedCacheIsKept) {
  BudgetRequest request = Typical();
  request.fixed_cache = 400;
  const auto split = SplitBudget(request);
  ASSERT_TRUE(split.has_value());
  EXPECT_LE(split->slot_bytes, 400U);
  EXPECT_GT(split->slot_bytes, 380U);
  request.fixed_cache = 119;
  EXPECT_FALSE(SplitBudget(request).has_value());
}

// Of 1000 bytes for slots a quarter goes to low copies, as far as they can use it.
TEST(SplitBudget, LowCopiesGetTheirShare) {
  BudgetRequest request{.fixed_cache = 1000, .low_share = 0.25};
  request.classes = {{.slot_bytes = 50, .experts = 100, .minimum = 2},
                     {.slot_bytes = 10, .experts = 100, .minimum = 2, .is_low = true}};
  request.budget = 10000;
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
