// SPDX-License-Identifier: MIT
// A scheduler over the demo model, and jobs for it.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "model/vocab.h"
#include "native/native_engine.h"
#include "serve/scheduler.h"
#include "tests/support/demo_vocab_testing.h"

namespace moestro {

inline constexpr int64_t kAnswer = 24;

struct Setting {
  uint32_t ctx = 200;
  uint32_t positions = 800;
  uint32_t chunk = 32;
  double percent = 25.0;
  std::function<std::unique_ptr<BlockReader>(std::unique_ptr<BlockReader>)> wrap = {};
  std::string model = kDemo;
  std::function<void(EngineOptions&)> change = {};  // of everything else
};

inline std::unique_ptr<NativeEngine> Open(const Setting& setting = {}) {
  EngineOptions options;
  options.threads = 2;
  options.ctx = setting.ctx;
  options.sequences = 8;
  options.positions = setting.positions;
  options.chunk = setting.chunk;
  options.cache = CacheSize{.percent = setting.percent};
  options.wrap_reader = setting.wrap;
  if (setting.change) setting.change(options);
  auto engine = NativeEngine::Open(setting.model, options);
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
  std::string grammar = {};
};

// `change`: what a wish has no words for.
inline std::shared_ptr<Job> Make(const Wish& wish,
                                 const std::function<void(JobOptions&)>& change = {}) {
  const Vocab& vocab = DemoVocab();
  auto sampler = Sampler::Create({.temp = wish.temp, .seed = wish.seed}, vocab, vocab.size(), 200);
  EXPECT_TRUE(sampler);
  JobOptions options{
      .text = {.prompt = *vocab.Tokenize(wish.prompt, true, false),
               .generate = {.max_tokens = wish.tokens, .stops = wish.stops},
               .wants_logprobs = true,
               .top_logprobs = 2},
      .uses_prefixes = wish.uses_prefixes,
      .grammar = wish.grammar.empty() ? nullptr : std::make_shared<Grammar>(wish.grammar)};
  if (change) change(options);
  return std::make_shared<Job>(std::move(options), *std::move(sampler));
}

struct Said {
  std::string text;
  std::vector<TokenLogprob> logprobs;
  std::vector<TokenLogprob> scores;  // of the prompt
  std::vector<PromptProgress> progress;
  std::optional<TextEnd> end;
  std::optional<ApiError> error;
};

inline Said Listen(Job& job) {
  Said said;
  while (std::optional<JobEvent> event = job.Next(std::chrono::milliseconds(0))) {
    if (auto* text = std::get_if<TextPiece>(&*event)) {
      said.text += text->text;
      said.logprobs.insert(said.logprobs.end(), text->logprobs.begin(), text->logprobs.end());
    }
    if (auto* prompt = std::get_if<PromptScores>(&*event)) said.scores = prompt->logprobs;
    if (auto* progress = std::get_if<PromptProgress>(&*event)) said.progress.push_back(*progress);
    if (auto* end = std::get_if<TextEnd>(&*event)) said.end = *end;
    if (auto* error = std::get_if<ApiError>(&*event)) said.error = *error;
  }
  return said;
}

inline std::vector<Said> ServeAll(Scheduler& scheduler, const std::vector<Wish>& wishes) {
  std::vector<std::shared_ptr<Job>> jobs;
  for (const Wish& wish : wishes) {
    jobs.push_back(Make(wish));
    EXPECT_TRUE(scheduler.Submit(jobs.back()));
  }
  scheduler.Drain();
  EXPECT_TRUE(scheduler.Run());
  std::vector<Said> said;
  for (const auto& job : jobs) said.push_back(Listen(*job));
  return said;
}

inline Said ServeOne(NativeEngine& engine, const Wish& wish, SchedulerOptions options = {}) {
  Scheduler scheduler(engine, DemoVocab(), std::move(options));
  return ServeAll(scheduler, {wish}).front();
}

using Outcome = ApiResult<SaveFigures>;

// Lets `client` talk to the scheduler from a thread of its own.
inline void ServeWhile(Scheduler& scheduler, const std::function<void()>& client) {
  std::thread thread([&] {
    client();
    scheduler.Drain();
  });
  EXPECT_TRUE(scheduler.Run());
  thread.join();
}

inline std::shared_ptr<SaveTask> Order(Scheduler& scheduler, SaveAction action, uint32_t place,
                                       std::string file = {}) {
  auto task = std::make_shared<SaveTask>(action, place, std::move(file));
  EXPECT_TRUE(scheduler.Submit(task));
  return task;
}

inline Outcome ResultOf(SaveTask& task) {
  if (auto done = task.Wait(std::chrono::minutes(5))) return *std::move(done);
  ADD_FAILURE() << "no answer";
  return std::unexpected(ApiError{});
}

inline Outcome Do(Scheduler& scheduler, SaveAction action, uint32_t place, std::string file = {}) {
  return ResultOf(*Order(scheduler, action, place, std::move(file)));
}

inline TextEnd Answer(Scheduler& scheduler, const Wish& wish, std::string* said = nullptr) {
  const auto job = Make(wish);
  EXPECT_TRUE(scheduler.Submit(job));
  while (const std::optional<JobEvent> event = job->Next(std::chrono::minutes(5))) {
    if (const auto* text = std::get_if<TextPiece>(&*event); text != nullptr && said != nullptr) {
      *said += text->text;
    }
    if (const auto* end = std::get_if<TextEnd>(&*event)) return *end;
    if (std::holds_alternative<ApiError>(*event)) break;
  }
  ADD_FAILURE() << "no end";
  return {};
}

inline const std::vector<Wish> kWishes = {
    {.prompt = "Once upon a time"},
    {.prompt = "The little dog ran to the big tree and", .seed = 7, .temp = 0.9F},
    {.prompt = "Tom and Lily went to the park. They saw a bird. The bird said hello to them and "
               "asked if they wanted to fly over the trees with it. Tom said yes, but"},
    {.prompt = "One day", .seed = 3, .temp = 1.2F},
    {.prompt = "A cat", .tokens = 3},
    {.prompt = "Mom said", .seed = 9, .temp = 0.7F}};

}  // namespace moestro
