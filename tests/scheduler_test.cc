// SPDX-License-Identifier: MIT
// The server's scheduler over a real engine: a request's text is the same alone, beside others, and
// when it had to give up its positions on the way; jobs that leave, fail or come too late.
#include "serve/scheduler.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/scheduler_fixture.h"
#include "tests/support/fault_reader.h"

namespace moestro {
namespace {

using namespace std::chrono_literals;

TEST(SchedulerTest, TextsAreTheSameAloneAndBesideOthers) {
  const auto engine = Open();
  std::vector<Said> alone;
  for (const Wish& wish : kWishes) alone.push_back(ServeOne(*engine, wish));
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 4});
  const std::vector<Said> beside = ServeAll(scheduler, kWishes);
  for (size_t i = 0; i < kWishes.size(); ++i) {
    ASSERT_TRUE(alone[i].end && beside[i].end) << i;
    EXPECT_FALSE(alone[i].text.empty());
    EXPECT_EQ(beside[i].text, alone[i].text) << i;
    ASSERT_EQ(beside[i].logprobs.size(), alone[i].logprobs.size()) << i;
    for (size_t n = 0; n < alone[i].logprobs.size(); ++n) {
      EXPECT_EQ(beside[i].logprobs[n].chosen.logprob, alone[i].logprobs[n].chosen.logprob);
    }
  }
  const SchedulerStatus status = scheduler.status();
  EXPECT_EQ(status.totals.finished, kWishes.size());
  EXPECT_LT(status.totals.steps, status.totals.generated);
}

TEST(SchedulerTest, TextsThatGrowOutOfTheCacheAreTheSame) {
  const auto roomy = Open();
  std::vector<Said> alone;
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 4; ++i) {
    wishes.push_back({.prompt = kWishes[i].prompt, .seed = i, .temp = 1.0F, .tokens = 100});
    alone.push_back(ServeOne(*roomy, wishes.back()));
  }
  const auto tight = Open({.positions = 320});
  Scheduler scheduler(*tight, DemoVocab(), {.parallel = 4});
  const std::vector<Said> said = ServeAll(scheduler, wishes);
  for (size_t i = 0; i < said.size(); ++i) {
    EXPECT_EQ(said[i].text, alone[i].text) << i;
    ASSERT_TRUE(said[i].end) << i;
    EXPECT_EQ(said[i].end->reason, alone[i].end->reason) << i;
  }
  // Somebody gave up: prompts were computed again.
  uint64_t prompts = 0;
  for (const Said& s : said) prompts += s.end->usage.prompt_tokens;
  EXPECT_GT(scheduler.status().totals.prompt_tokens, prompts);
}

TEST(SchedulerTest, AFullContextEndsATextWithAllThatWasWritten) {
  const auto engine = Open({.ctx = 64});
  const Said said = ServeOne(*engine, {.prompt = "Once upon a time", .temp = 1.0F, .tokens = -1});
  ASSERT_TRUE(said.end);
  if (said.end->reason == StopReason::kEndToken) GTEST_SKIP() << "the story ended by itself";
  EXPECT_EQ(said.end->reason, StopReason::kContextFull);
  EXPECT_EQ(said.end->usage.prompt_tokens + said.end->usage.completion_tokens, 65U);
}

TEST(SchedulerTest, AStopStringEndsTheTextBeforeIt) {
  const auto engine = Open();
  const Said whole = ServeOne(*engine, kWishes[0]);
  const std::string stop = whole.text.substr(whole.text.size() / 2, 4);
  Wish wish = kWishes[0];
  wish.stops = {stop};
  const Said said = ServeOne(*engine, wish);
  EXPECT_EQ(said.end->reason, StopReason::kStopString);
  EXPECT_EQ(said.end->stop, stop);
  EXPECT_EQ(said.text, whole.text.substr(0, whole.text.find(stop)));
}

TEST(SchedulerTest, NoTokensMeansThePromptAlone) {
  const auto engine = Open();
  const Said said = ServeOne(*engine, {.prompt = "Once", .tokens = 0});
  ASSERT_TRUE(said.end);
  EXPECT_EQ(said.end->reason, StopReason::kLimit);
  EXPECT_EQ(said.end->usage.completion_tokens, 0U);
  EXPECT_EQ(said.text, "");
}

TEST(SchedulerTest, TheLikeliestTokenComesFirstAndGreedyTakesIt) {
  const auto engine = Open();
  const Said said = ServeOne(*engine, kWishes[0]);
  ASSERT_EQ(said.logprobs.size(), static_cast<size_t>(kAnswer));
  for (const TokenLogprob& logprob : said.logprobs) {
    ASSERT_EQ(logprob.top.size(), 2U);
    EXPECT_EQ(logprob.chosen.token, logprob.top[0].token);
    EXPECT_LE(logprob.top[1].logprob, logprob.top[0].logprob);
    EXPECT_LE(logprob.top[0].logprob, 0.0F);
  }
}

TEST(SchedulerTest, AFullQueueRefuses) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), {.queue = 2});
  EXPECT_TRUE(scheduler.Submit(Make(kWishes[0])));
  EXPECT_TRUE(scheduler.Submit(Make(kWishes[0])));
  const auto third = scheduler.Submit(Make(kWishes[0]));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().status, 429);
  EXPECT_EQ(scheduler.status().totals.refused, 1U);
}

TEST(SchedulerTest, AServerThatGoesDownFinishesWhatItHasAndRefusesTheRest) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), {});
  const auto job = Make(kWishes[0]);
  ASSERT_TRUE(scheduler.Submit(job));
  scheduler.Drain();
  EXPECT_EQ(scheduler.Submit(Make(kWishes[0])).error().status, 503);
  scheduler.Run();
  EXPECT_TRUE(Listen(*job).end);
}

TEST(SchedulerTest, AServerThatIsStoppedTellsEverybody) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 1});
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(Make({.prompt = "Once upon a time", .temp = 1.0F, .tokens = 150}));
    ASSERT_TRUE(scheduler.Submit(jobs.back()));
  }
  std::thread stopper([&] {
    while (scheduler.status().totals.generated == 0) std::this_thread::sleep_for(1ms);
    scheduler.Stop();
  });
  scheduler.Run();
  stopper.join();
  int failed = 0;
  for (const auto& job : jobs) {
    const Said said = Listen(*job);
    EXPECT_TRUE(said.end || said.error);
    if (said.error) {
      EXPECT_EQ(said.error->status, 503);
    }
    failed += said.error ? 1 : 0;
  }
  EXPECT_GT(failed, 0);
}

// The room that a prompt will take is taken when it begins, or a later one would have to give up.
TEST(SchedulerTest, PromptsThatDoNotFitTogetherAreComputedOnce) {
  const auto engine = Open({.ctx = 200, .positions = 400});
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 4});
  std::vector<Wish> wishes;
  uint64_t tokens = 0;
  for (int i = 0; i < 4; ++i) {
    std::string prompt = std::to_string(i);
    for (int word = 0; word < 140; ++word) prompt += " the";
    tokens += DemoVocab().Tokenize(prompt, true, false)->size();
    wishes.push_back({.prompt = prompt, .tokens = 2, .uses_prefixes = false});
  }
  for (const Said& said : ServeAll(scheduler, wishes)) EXPECT_TRUE(said.end);
  EXPECT_EQ(scheduler.status().totals.prompt_tokens, tokens);
}

TEST(SchedulerTest, AWithdrawnJobIsLeftAndItsPrefixStays) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 2});
  const auto leaving = Make({.prompt = kWishes[2].prompt, .temp = 1.0F, .tokens = 150});
  const auto staying = Make(kWishes[0]);
  ASSERT_TRUE(scheduler.Submit(leaving));
  ASSERT_TRUE(scheduler.Submit(staying));
  std::thread client([&] {
    while (!leaving->Next(1ms)) {
    }
    scheduler.Withdraw(*leaving);
    while (scheduler.status().totals.cancelled == 0) std::this_thread::sleep_for(1ms);
    scheduler.Drain();
  });
  scheduler.Run();
  client.join();
  EXPECT_FALSE(Listen(*leaving).end);
  const auto fresh = Open();
  EXPECT_EQ(Listen(*staying).text, ServeOne(*fresh, kWishes[0]).text);
  EXPECT_GE(scheduler.status().kept_tokens, 30U);
}

TEST(SchedulerTest, AJobWithdrawnBeforeItsTurnCostsNothing) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), {});
  const auto job = Make(kWishes[0]);
  ASSERT_TRUE(scheduler.Submit(job));
  scheduler.Withdraw(*job);
  scheduler.Drain();
  scheduler.Run();
  EXPECT_EQ(scheduler.status().totals.cancelled, 1U);
  EXPECT_EQ(scheduler.status().totals.steps, 0U);
}

TEST(SchedulerTest, AFailedReadEndsThatRequestAndTheServerGoesOn) {
  FaultReader* disk = nullptr;
  const auto engine = Open({.percent = 10.0, .wrap = [&](std::unique_ptr<BlockReader> inner) {
                              auto reader = std::make_unique<FaultReader>(std::move(inner));
                              disk = reader.get();
                              return reader;
                            }});
  disk->SetPlan(FaultPlan().ErrorFrom(disk->submitted(), EIO));
  {
    Scheduler scheduler(*engine, DemoVocab(), {});
    EXPECT_TRUE(ServeAll(scheduler, {kWishes[0]}).front().error);
    EXPECT_EQ(scheduler.status().totals.failed, 1U);
    EXPECT_EQ(scheduler.status().totals.finished, 0U);
  }
  disk->SetPlan({});
  const auto fresh = Open();
  EXPECT_EQ(ServeOne(*engine, kWishes[0]).text, ServeOne(*fresh, kWishes[0]).text);
}

}  // namespace
}  // namespace moestro
