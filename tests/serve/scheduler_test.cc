// SPDX-License-Identifier: MIT
// The server's scheduler over a real engine: a request's text is the same alone, beside others, and
// when it had to give up its positions on the way; jobs that leave, fail or come too late.
#include "serve/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/serve/scheduler_testing.h"
#include "tests/support/damage_testing.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/temp_folder_testing.h"

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
  EXPECT_EQ(said.end->usage.prompt_tokens + said.end->usage.completion_tokens, 64U);
}

// Whatever a request asks for, prompt and answer are never more than the context.
TEST(SchedulerTest, UsageNeverSaysMoreThanTheContext) {
  const auto engine = Open({.ctx = 64});
  std::string words;
  for (int n = 0; n < 70; ++n) {
    words += n % 2 == 0 ? "the dog " : "ran and ";
    const auto prompt = DemoVocab().Tokenize(words, true, false);
    if (prompt->size() > 64) break;
    if (prompt->size() > 4 && prompt->size() < 60) continue;
    const Said said = ServeOne(*engine, {.prompt = words, .temp = 1.0F, .tokens = -1});
    ASSERT_TRUE(said.end) << prompt->size();
    EXPECT_EQ(said.end->usage.prompt_tokens, prompt->size());
    EXPECT_LE(prompt->size() + said.end->usage.completion_tokens, 64U);
  }
}

Said ServeJob(NativeEngine& engine, const std::shared_ptr<Job>& job) {
  Scheduler scheduler(engine, DemoVocab(), {});
  EXPECT_TRUE(scheduler.Submit(job));
  scheduler.Drain();
  EXPECT_TRUE(scheduler.Run());
  return Listen(*job);
}

TEST(SchedulerTest, EndTokensEndATextButNotBeforeItsLeastTokens) {
  const auto engine = Open();
  const Said whole = ServeOne(*engine, kWishes[0]);
  ASSERT_GT(whole.logprobs.size(), 8U);
  const Token stop = whole.logprobs[4].chosen.token;
  size_t first = 0;
  while (whole.logprobs[first].chosen.token != stop) ++first;
  const Said stopped = ServeJob(
      *engine, Make(kWishes[0], [&](JobOptions& options) { options.text.end_tokens = {stop}; }));
  ASSERT_TRUE(stopped.end);
  EXPECT_EQ(stopped.end->reason, StopReason::kEndToken);
  EXPECT_EQ(stopped.end->usage.completion_tokens, first);
  const Said later = ServeJob(*engine, Make(kWishes[0], [&](JobOptions& options) {
    options.text.end_tokens = {stop};
    options.text.early_ends = {stop};
    options.text.min_tokens = static_cast<uint32_t>(first) + 3;
  }));
  ASSERT_TRUE(later.end);
  EXPECT_GE(later.end->usage.completion_tokens, first + 3);
  EXPECT_FALSE(std::ranges::contains(
      later.logprobs, stop, [](const TokenLogprob& logprob) { return logprob.chosen.token; }));
}

TEST(SchedulerTest, AStopStringCountsAfterTheLeastTokens) {
  const auto engine = Open();
  Wish wish = kWishes[0];
  wish.stops = {" "};
  const Said said =
      ServeJob(*engine, Make(wish, [](JobOptions& options) { options.text.min_tokens = 10; }));
  ASSERT_TRUE(said.end);
  EXPECT_EQ(said.end->reason, StopReason::kStopString);
  EXPECT_GT(said.end->usage.completion_tokens, 10U);
}

// The prompt's log-probabilities are those that the answer's tokens get where they are the prompt.
TEST(SchedulerTest, APromptIsScoredAsItsTextWouldBe) {
  const auto engine = Open();
  const Said whole = ServeOne(*engine, kWishes[0]);
  std::vector<Token> prompt = *DemoVocab().Tokenize(kWishes[0].prompt, true, false);
  const size_t n_asked = prompt.size();
  for (const TokenLogprob& logprob : whole.logprobs) prompt.push_back(logprob.chosen.token);
  // Twice: prefixes that are kept have no logits.
  Scheduler scheduler(*engine, DemoVocab(), {});
  std::vector<std::shared_ptr<Job>> jobs;
  for (const uint32_t from : {0U, 1U}) {
    Wish wish = kWishes[0];
    wish.tokens = 0;
    jobs.push_back(Make(wish, [&](JobOptions& options) {
      options.text.prompt = prompt;
      options.text.scored_from = from;
      options.text.wants_progress = true;
    }));
    ASSERT_TRUE(scheduler.Submit(jobs.back()));
  }
  scheduler.Drain();
  EXPECT_TRUE(scheduler.Run());
  for (const uint32_t from : {0U, 1U}) {
    const Said said = Listen(*jobs[from]);
    ASSERT_TRUE(said.end);
    ASSERT_EQ(said.scores.size(), prompt.size() - from);
    EXPECT_EQ(std::isnan(said.scores[0].chosen.logprob), from == 0);
    for (size_t i = 0; i < whole.logprobs.size(); ++i) {
      const TokenLogprob& scored = said.scores[n_asked + i - from];
      EXPECT_EQ(scored.chosen.token, whole.logprobs[i].chosen.token);
      EXPECT_EQ(scored.chosen.logprob, whole.logprobs[i].chosen.logprob) << i;
      ASSERT_EQ(scored.top.size(), 2U);
      EXPECT_EQ(scored.top[0].token, whole.logprobs[i].top[0].token);
    }
    ASSERT_FALSE(said.progress.empty());
    EXPECT_EQ(said.progress.front().processed, 0U);
    EXPECT_EQ(said.progress.back().processed, prompt.size());
    for (const PromptProgress& progress : said.progress) {
      EXPECT_EQ(progress.total, prompt.size());
      EXPECT_GE(progress.processed, progress.cached);
    }
  }
}

TEST(SchedulerTest, ATextWhoseTimeIsOverEndsWithWhatThereIs) {
  const auto engine = Open();
  const Said said =
      ServeJob(*engine, Make(kWishes[0], [](JobOptions& options) { options.seconds = 1e-9; }));
  ASSERT_TRUE(said.end);
  EXPECT_EQ(said.end->reason, StopReason::kTimeLimit);
  EXPECT_EQ(said.end->usage.completion_tokens, 1U);
  // Only a line that has ended ends the writing.
  Wish wish = kWishes[0];
  wish.tokens = 100;
  const Said written = ServeJob(
      *engine, Make(wish, [](JobOptions& options) { options.text.writing_seconds = 1e-9; }));
  ASSERT_TRUE(written.end);
  if (written.end->reason == StopReason::kTimeLimit) {
    EXPECT_TRUE(written.text.contains('\n'));
  } else {
    EXPECT_FALSE(written.text.contains('\n'));
  }
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
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 1, .queue = 1});
  EXPECT_TRUE(scheduler.Submit(Make(kWishes[0])));  // can begin
  EXPECT_TRUE(scheduler.Submit(Make(kWishes[0])));
  const auto third = scheduler.Submit(Make(kWishes[0]));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().status, 429);
  EXPECT_EQ(scheduler.status().totals.refused, 1U);
}

// All that can begin at once is taken, and it is known at once when a text has ended.
TEST(SchedulerTest, WithoutAQueueOnlyWhatCanBeginIsTaken) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 1, .queue = 0});
  ServeWhile(scheduler, [&] {
    for (int i = 0; i < 5; ++i) Answer(scheduler, {.prompt = "Once", .tokens = 2});
    const auto running = Make({.prompt = "Once upon a time", .temp = 1.0F, .tokens = 500});
    ASSERT_TRUE(scheduler.Submit(running));
    while (running->generated() == 0) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(scheduler.Submit(Make(kWishes[0])).error().status, 429);
    scheduler.Withdraw(*running);
    Answer(scheduler, {.prompt = "Once", .tokens = 2});
  });
  EXPECT_EQ(scheduler.status().totals.refused, 1U);
}

// A request of more prompts than the queue has places was refused for ever.
TEST(SchedulerTest, ARequestOfManyJobsTakesOnePlaceInTheQueue) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 2, .queue = 0});
  std::vector<std::shared_ptr<Job>> jobs;
  for (int i = 0; i < 6; ++i) jobs.push_back(Make({.prompt = "Once upon", .tokens = 2}));
  ASSERT_TRUE(scheduler.Submit(jobs));
  EXPECT_EQ(scheduler.status().waiting, 6U);
  const auto beside = Make({.prompt = "Once", .tokens = 2});
  EXPECT_TRUE(scheduler.Submit(beside)) << "it is the second that waits";
  const auto third = scheduler.Submit(Make(kWishes[0]));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().status, 429);
  scheduler.Drain();
  EXPECT_EQ(scheduler.Submit(jobs).error().status, 503);
  EXPECT_TRUE(scheduler.Run());
  for (const auto& job : jobs) EXPECT_TRUE(Listen(*job).end);
  EXPECT_TRUE(Listen(*beside).end);
}

TEST(SchedulerTest, AServerThatGoesDownFinishesWhatItHasAndRefusesTheRest) {
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), {});
  const auto job = Make(kWishes[0]);
  ASSERT_TRUE(scheduler.Submit(job));
  scheduler.Drain();
  EXPECT_EQ(scheduler.Submit(Make(kWishes[0])).error().status, 503);
  EXPECT_TRUE(scheduler.Run());
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
  EXPECT_TRUE(scheduler.Run());
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
  EXPECT_TRUE(scheduler.Run());
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
  EXPECT_TRUE(scheduler.Run());
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
  disk->SetPlan(FaultScript().ErrorFrom(disk->submitted(), EIO));
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

TEST(SchedulerTest, AModelThatChangesEndsTheServer) {
  const TempFolder folder;
  const std::string path = folder.File("model.gguf");
  std::filesystem::copy_file(kDemo, path);
  double now = 1.0;
  EngineOptions options;
  options.threads = 1;
  options.ctx = 128;
  options.cache = CacheSize{.percent = 25.0};
  options.clock = [&] { return now; };
  const auto engine = NativeEngine::Open(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  Scheduler scheduler(**engine, DemoVocab(), {});
  const auto job = Make(kWishes[0]);
  ASSERT_TRUE(scheduler.Submit(job));
  MakeNewer(path);
  now += 1.0;
  const Status ran = scheduler.Run();
  ASSERT_FALSE(ran);
  EXPECT_TRUE(ran.error().message.contains(path)) << ran.error().message;
  EXPECT_TRUE(Listen(*job).error);
}

}  // namespace
}  // namespace moestro
