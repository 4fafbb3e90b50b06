// SPDX-License-Identifier: MIT
// The server's scheduler over a real engine: a request's text is the same alone, beside others,
// from a kept prefix, after a restart, and when it had to give up its positions on the way.
#include "serve/scheduler.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "engine/engine.h"
#include "model/model_file.h"
#include "model/vocab.h"
#include "tests/support/fault_reader.h"
#include "tests/support/temp_folder.h"

namespace moestro {
namespace {

using namespace std::chrono_literals;

constexpr const char* kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";
constexpr int64_t kAnswer = 24;

const Vocab& DemoVocab() {
  static const Vocab vocab = *Vocab::Load(std::string(kDemo));
  return vocab;
}

struct Setting {
  uint32_t ctx = 200;
  uint32_t positions = 800;
  uint32_t chunk = 32;
  double percent = 25.0;
  std::function<std::unique_ptr<BlockReader>(std::unique_ptr<BlockReader>)> wrap = {};
};

std::unique_ptr<Engine> Open(const Setting& setting = {}) {
  EngineOptions options;
  options.threads = 2;
  options.ctx = setting.ctx;
  options.sequences = 8;
  options.positions = setting.positions;
  options.chunk = setting.chunk;
  options.cache = CacheSize{.percent = setting.percent};
  options.wrap_reader = setting.wrap;
  auto engine = Engine::Open(kDemo, options);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? *std::move(engine) : nullptr;
}

struct Wish {
  std::string prompt;
  uint32_t seed = 0;
  float temp = 0.0F;
  int64_t tokens = kAnswer;
  std::vector<std::string> stops = {};
  bool uses_prefixes = true;
};

std::shared_ptr<Job> Make(const Wish& wish) {
  const Vocab& vocab = DemoVocab();
  auto sampler = Sampler::Create({.temp = wish.temp, .seed = wish.seed}, vocab, vocab.size(), 200);
  EXPECT_TRUE(sampler);
  JobOptions options{.prompt = *vocab.Tokenize(wish.prompt, true, false),
                     .generate = {.max_tokens = wish.tokens, .stops = wish.stops},
                     .wants_logprobs = true,
                     .top_logprobs = 2,
                     .uses_prefixes = wish.uses_prefixes};
  return std::make_shared<Job>(std::move(options), *std::move(sampler));
}

struct Said {
  std::string text;
  std::vector<TokenLogprob> logprobs;
  std::optional<JobEnd> end;
  std::optional<ApiError> error;
};

Said Listen(Job& job) {
  Said said;
  while (std::optional<JobEvent> event = job.Next(0ms)) {
    if (auto* text = std::get_if<JobText>(&*event)) {
      said.text += text->text;
      said.logprobs.insert(said.logprobs.end(), text->logprobs.begin(), text->logprobs.end());
    }
    if (auto* end = std::get_if<JobEnd>(&*event)) said.end = *end;
    if (auto* error = std::get_if<ApiError>(&*event)) said.error = *error;
  }
  return said;
}

std::vector<Said> ServeAll(Scheduler& scheduler, const std::vector<Wish>& wishes) {
  std::vector<std::shared_ptr<Job>> jobs;
  for (const Wish& wish : wishes) {
    jobs.push_back(Make(wish));
    EXPECT_TRUE(scheduler.Submit(jobs.back()));
  }
  scheduler.Drain();
  scheduler.Run();
  std::vector<Said> said;
  for (const auto& job : jobs) said.push_back(Listen(*job));
  return said;
}

Said ServeOne(Engine& engine, const Wish& wish, SchedulerOptions options = {}) {
  Scheduler scheduler(engine, DemoVocab(), std::move(options));
  return ServeAll(scheduler, {wish}).front();
}

const std::vector<Wish> kWishes = {
    {.prompt = "Once upon a time"},
    {.prompt = "The little dog ran to the big tree and", .seed = 7, .temp = 0.9F},
    {.prompt = "Tom and Lily went to the park. They saw a bird. The bird said hello to them and "
               "asked if they wanted to fly over the trees with it. Tom said yes, but"},
    {.prompt = "One day", .seed = 3, .temp = 1.2F},
    {.prompt = "A cat", .tokens = 3},
    {.prompt = "Mom said", .seed = 9, .temp = 0.7F}};

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

TEST(SchedulerTest, AKeptPrefixIsNotComputedAgainAndChangesNothing) {
  const auto engine = Open();
  const Wish wish = kWishes[2];
  const Said cold = ServeOne(*engine, wish);
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 1});
  const Wish longer{.prompt = wish.prompt + " the bird was gone", .tokens = 5};
  const std::vector<Said> said = ServeAll(scheduler, {wish, wish, longer});
  const uint32_t n_prompt = cold.end->usage.prompt_tokens;
  EXPECT_EQ(said[0].end->usage.cached_tokens, 0U);
  EXPECT_EQ(said[1].end->usage.cached_tokens, n_prompt - 1);
  EXPECT_GE(said[2].end->usage.cached_tokens, n_prompt - 1);
  EXPECT_EQ(said[1].text, cold.text);
  const auto fresh = Open();
  EXPECT_EQ(said[2].text, ServeOne(*fresh, longer).text);
}

TEST(SchedulerTest, AJobThatUsesNoPrefixesLeavesNone) {
  const auto engine = Open();
  Wish wish = kWishes[2];
  wish.uses_prefixes = false;
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 1});
  const std::vector<Said> said = ServeAll(scheduler, {wish, wish});
  EXPECT_EQ(said[1].end->usage.cached_tokens, 0U);
  EXPECT_EQ(scheduler.status().kept_prefixes, 0U);
}

TEST(SchedulerTest, PrefixesOutliveTheServer) {
  const TempFolder folder;
  const SchedulerOptions options{
      .cache_folder = folder.path().string(), .cache_key = "k", .cache_disk = 1 << 30};
  const Wish wish = kWishes[2];
  Said first;
  {
    const auto engine = Open();
    first = ServeOne(*engine, wish, options);
  }
  const auto engine = Open();
  Scheduler scheduler(*engine, DemoVocab(), options);
  EXPECT_EQ(scheduler.status().saved_prefixes, 1U);
  const Said second = ServeAll(scheduler, {wish}).front();
  EXPECT_EQ(second.end->usage.cached_tokens, first.end->usage.prompt_tokens - 1);
  EXPECT_EQ(second.text, first.text);
}

TEST(SchedulerTest, PrefixesOfAnotherTemplateAreNotUsed) {
  const TempFolder folder;
  SchedulerOptions options{
      .cache_folder = folder.path().string(), .cache_key = "a", .cache_disk = 1 << 30};
  const auto engine = Open();
  ServeOne(*engine, kWishes[2], options);
  options.cache_key = "b";
  EXPECT_EQ(ServeOne(*engine, kWishes[2], options).end->usage.cached_tokens, 0U);
}

std::vector<std::filesystem::path> FilesIn(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    files.push_back(entry.path());
  return files;
}

TEST(SchedulerTest, ADamagedFileIsRemovedAndTheTextIsTheSame) {
  const TempFolder folder;
  const SchedulerOptions options{
      .cache_folder = folder.path().string(), .cache_key = "k", .cache_disk = 1 << 30};
  const auto engine = Open();
  const Said first = ServeOne(*engine, kWishes[2], options);
  ASSERT_EQ(FilesIn(folder.path().string()).size(), 1U);
  const std::filesystem::path file = FilesIn(folder.path().string()).front();
  {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(static_cast<std::streamoff>(std::filesystem::file_size(file)) / 2);
    bytes.put('\x55').put('\xAA').put('\x12');
  }
  Scheduler scheduler(*engine, DemoVocab(), options);
  const Said second = ServeAll(scheduler, {kWishes[2]}).front();
  EXPECT_EQ(second.end->usage.cached_tokens, 0U);
  EXPECT_EQ(second.text, first.text);
}

TEST(SchedulerTest, TheFolderHoldsNoMoreThanItMay) {
  const TempFolder folder;
  const auto engine = Open();
  SchedulerOptions options{.parallel = 1,
                           .cache_folder = folder.path().string(),
                           .cache_key = "k",
                           .cache_disk = 1 << 30};
  ServeOne(*engine, kWishes[2], options);
  const uint64_t one = std::filesystem::file_size(FilesIn(folder.path().string()).front());
  options.cache_disk = one * 3 / 2;
  Scheduler scheduler(*engine, DemoVocab(), options);
  ServeAll(scheduler,
           {{.prompt = "Max was a very big and very happy dog who liked to play with all of the "
                       "other dogs in the park near the house of"}});
  uint64_t bytes = 0;
  for (const auto& file : FilesIn(folder.path().string()))
    bytes += std::filesystem::file_size(file);
  EXPECT_LE(bytes, options.cache_disk);
  EXPECT_GT(bytes, 0U);
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
  EXPECT_TRUE(ServeOne(*engine, kWishes[0]).error);
  disk->SetPlan({});
  const auto fresh = Open();
  EXPECT_EQ(ServeOne(*engine, kWishes[0]).text, ServeOne(*fresh, kWishes[0]).text);
}

}  // namespace
}  // namespace moestro
