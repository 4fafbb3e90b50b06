// SPDX-License-Identifier: MIT
// Several answers to one prompt: it is computed once, and each text is what it would be alone.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/serve/scheduler_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kAnswers = 5;

Wish TwinWish(uint32_t answer, bool uses_prefixes) {
  return {.prompt = kWishes[2].prompt,
          .seed = 40 + answer,
          .temp = 1.0F,
          .tokens = 12,
          .uses_prefixes = uses_prefixes};
}

std::vector<std::shared_ptr<Job>> Twins(bool uses_prefixes) {
  std::vector<std::shared_ptr<Job>> jobs;
  for (uint32_t i = 0; i < kAnswers; ++i) jobs.push_back(Make(TwinWish(i, uses_prefixes)));
  return jobs;
}

class SchedulerTwinsTest : public ::testing::TestWithParam<bool> {
 protected:
  const bool uses_prefixes_ = GetParam();
};

// Each of them computed it. More than run beside each other wait.
TEST_P(SchedulerTwinsTest, TheirPromptIsComputedOnce) {
  const auto engine = Open({.chunk = 8});  // several steps for the prompt
  std::vector<std::string> alone;
  for (uint32_t i = 0; i < kAnswers; ++i)
    alone.push_back(ServeOne(*engine, TwinWish(i, false)).text);
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 2});
  const auto jobs = Twins(uses_prefixes_);
  ASSERT_TRUE(scheduler.Submit(jobs));
  scheduler.Drain();
  ASSERT_TRUE(scheduler.Run());
  const auto n_prompt = static_cast<uint32_t>(jobs.front()->prompt().size());
  for (uint32_t i = 0; i < kAnswers; ++i) {
    const Said said = Listen(*jobs[i]);
    ASSERT_TRUE(said.end) << i;
    EXPECT_EQ(said.text, alone[i]) << i;
    EXPECT_EQ(said.end->usage.prompt_tokens, n_prompt);
    EXPECT_EQ(said.end->usage.cached_tokens, i == 0 ? 0 : n_prompt - 1) << i;
  }
  EXPECT_EQ(scheduler.status().totals.prompt_tokens, n_prompt + kAnswers - 1);
}

TEST_P(SchedulerTwinsTest, OneThatLeavesTakesNoOtherAlong) {
  const auto engine = Open({.chunk = 8});
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 2});
  const auto jobs = Twins(uses_prefixes_);
  ASSERT_TRUE(scheduler.Submit(jobs));
  scheduler.Withdraw(*jobs.front());
  scheduler.Drain();
  ASSERT_TRUE(scheduler.Run());
  EXPECT_FALSE(Listen(*jobs.front()).end);
  const auto fresh = Open();
  for (uint32_t i = 1; i < kAnswers; ++i) {
    EXPECT_EQ(Listen(*jobs[i]).text, ServeOne(*fresh, TwinWish(i, false)).text) << i;
  }
}

// Another request's prompts do not wait for this one's.
TEST_P(SchedulerTwinsTest, OthersAreNotHeldUp) {
  const auto engine = Open({.chunk = 8});
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 2});
  const auto twins = Twins(uses_prefixes_);
  const std::vector<std::shared_ptr<Job>> others = {Make(kWishes[0]), Make(kWishes[4])};
  ASSERT_TRUE(scheduler.Submit(twins));
  ASSERT_TRUE(scheduler.Submit(others));
  scheduler.Drain();
  ASSERT_TRUE(scheduler.Run());
  const auto fresh = Open();
  EXPECT_EQ(Listen(*others[0]).text, ServeOne(*fresh, kWishes[0]).text);
  EXPECT_EQ(Listen(*others[1]).text, ServeOne(*fresh, kWishes[4]).text);
  for (const auto& job : twins) EXPECT_TRUE(Listen(*job).end);
}

// The cache is too small for all: they give up positions and get them again.
TEST_P(SchedulerTwinsTest, TheyAreTheSameWhenTheCacheIsTight) {
  const auto roomy = Open();
  const auto tight = Open({.positions = 320, .chunk = 8});
  Scheduler scheduler(*tight, DemoVocab(), {.parallel = 4});
  const auto jobs = Twins(uses_prefixes_);
  ASSERT_TRUE(scheduler.Submit(jobs));
  scheduler.Drain();
  ASSERT_TRUE(scheduler.Run());
  for (uint32_t i = 0; i < kAnswers; ++i) {
    EXPECT_EQ(Listen(*jobs[i]).text, ServeOne(*roomy, TwinWish(i, false)).text) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Prefixes, SchedulerTwinsTest, ::testing::Bool());

}  // namespace
}  // namespace moestro
