// SPDX-License-Identifier: MIT
#include "base/work_limit.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

constexpr size_t kMany = size_t{1} << 20;

TEST(WorkLimitTest, WithoutRulesEverythingPasses) {
  const WorkLimit limit;
  EXPECT_TRUE(limit.Spend(kMany));
  EXPECT_TRUE(limit.Look());
  EXPECT_TRUE(limit.status());
}

TEST(WorkLimitTest, TheTimeCountsFromTheBeginningAndAnErrorStays) {
  double now = 100.0;
  const WorkLimit limit({.processor_seconds = 2.0, .clock = [&] { return now; }});
  EXPECT_TRUE(limit.Spend(kMany));
  now = 101.9;
  EXPECT_TRUE(limit.Spend(kMany));
  now = 102.1;
  const Status status = limit.Spend(kMany);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(status.error().message.contains("2 s")) << status.error().message;
  now = 100.0;
  EXPECT_FALSE(limit.Spend(1));
  EXPECT_FALSE(limit.Look());
  EXPECT_FALSE(limit.status());
}

TEST(WorkLimitTest, SmallStepsLookSeldomAndInTheEnd) {
  int looks = 0;
  const WorkLimit limit({.processor_seconds = 1.0, .clock = [&] {
                           ++looks;
                           return 0.0;
                         }});
  for (size_t i = 0; i < kMany; ++i) EXPECT_TRUE(limit.Spend(1));
  EXPECT_EQ(limit.steps(), kMany);
  EXPECT_GT(looks, 4);
  EXPECT_LT(looks, 100);
}

TEST(WorkLimitTest, CopiesCountTogether) {
  const WorkLimit limit({.processor_seconds = 1.0, .clock = [] { return 0.0; }});
  const WorkLimit copy = limit;  // NOLINT(performance-unnecessary-copy-initialization)
  EXPECT_TRUE(copy.Spend(7));
  EXPECT_EQ(limit.steps(), 7U);
}

TEST(WorkLimitTest, WorkThatShallEndIsInterrupted) {
  bool is_over = false;
  const WorkLimit limit(
      {.processor_seconds = 1.0, .clock = [] { return 0.0; }, .is_over = [&] { return is_over; }});
  EXPECT_TRUE(limit.Look());
  is_over = true;
  const Status status = limit.Look();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kInterrupted);
}

TEST(WorkLimitTest, TheThreadsOwnTimeGrowsWithItsWork) {
  const double before = ThreadProcessorSeconds();
  double sum = 0.0;
  for (int i = 0; i < 100'000; ++i) sum += static_cast<double>(i);
  EXPECT_GT(sum, 0.0);
  EXPECT_GT(ThreadProcessorSeconds(), before);
}

}  // namespace
}  // namespace moestro
