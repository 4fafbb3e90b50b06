// SPDX-License-Identifier: MIT
// The scheduler over the hosted engine: layers with a state beside attention, and latent attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/work_limit.h"
#include "engine/append.h"
#include "load/open_engine.h"
#include "serve/prefix_cache.h"
#include "tests/serve/scheduler_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class HostedScheduler : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    path_ = WriteZooModel(folder_.path(), GetParam(), {.vocab_path = kDemo});
  }
  std::unique_ptr<Engine> OpenHosted(uint32_t sequences = 4) const {
    EngineOptions options;
    options.engine = "hosted";
    options.threads = 1;
    options.ctx = 200;
    options.sequences = sequences;
    options.positions = 800;
    options.cache = CacheSize{.percent = 25.0};
    auto engine = OpenEngine(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  // Of a job with these tokens as its prompt: its tokens, the prompt's first.
  static std::vector<Token> Converse(Scheduler& scheduler, const std::vector<Token>& prompt,
                                     uint32_t& cached) {
    const auto job = Make({.prompt = "x", .tokens = 12},
                          [&](JobOptions& options) { options.text.prompt = prompt; });
    EXPECT_TRUE(scheduler.Submit(job));
    scheduler.Drain();
    EXPECT_TRUE(scheduler.Run());
    const Said said = Listen(*job);
    EXPECT_TRUE(said.end) << (said.error ? said.error->message : "no end");
    cached = said.end ? static_cast<uint32_t>(said.end->usage.cached_tokens) : 0;
    std::vector<Token> all = prompt;
    for (const TokenLogprob& token : said.logprobs) all.push_back(token.chosen.token);
    return all;
  }

  TempFolder folder_;
  std::string path_;
};

// Texts that ended once held every place of libllama's memory, and others waited for good.
TEST_P(HostedScheduler, ManyTextsEnd) {
  const auto engine = OpenHosted();
  ASSERT_NE(engine, nullptr);
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 4});
  std::vector<Wish> wishes;
  for (int i = 0; i < 40; ++i) {
    Wish wish = kWishes[static_cast<size_t>(i) % kWishes.size()];
    wish.prompt = std::to_string(i) + wish.prompt;
    wishes.push_back(std::move(wish));
  }
  for (const Said& said : ServeAll(scheduler, wishes)) {
    EXPECT_TRUE(said.end) << (said.error ? said.error->message : "no end");
  }
}

// Four texts with six places paused each other for good once: after each pause they began anew.
TEST_P(HostedScheduler, TextsEndOnAnEngineWithPlacesForFewer) {
  const auto engine = OpenHosted(1);
  ASSERT_NE(engine, nullptr);
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 4});
  for (const Said& said : ServeAll(scheduler, {kWishes.begin(), kWishes.begin() + 4})) {
    EXPECT_TRUE(said.end) << (said.error ? said.error->message : "no end");
  }
}

TEST_P(HostedScheduler, ASecondTurnEvaluatesNewTokensAlone) {
  const std::vector<Token> first = *DemoVocab().Tokenize(kWishes[2].prompt, true, false);
  const std::vector<Token> more = *DemoVocab().Tokenize("and then they", false, false);
  const TempFolder kept;
  const SchedulerOptions options{
      .parallel = 2, .cache_folder = kept.path().string(), .cache_key = "k", .cache_disk = 1 << 30};
  uint32_t cached = 0;
  std::vector<Token> turn;
  const auto engine = OpenHosted();
  ASSERT_NE(engine, nullptr);
  {
    Scheduler scheduler(*engine, DemoVocab(), options);
    turn = Converse(scheduler, first, cached);
  }
  // Another scheduler, and later another engine, find the text on disk.
  for (int restart = 0; restart < 2; ++restart) {
    const auto later = restart == 0 ? nullptr : OpenHosted();
    Scheduler scheduler(later ? *later : *engine, DemoVocab(), options);
    std::vector<Token> next = turn;
    next.append_range(more);
    const size_t known = turn.size() - 1;  // the last token was told and not evaluated
    turn = Converse(scheduler, next, cached);
    EXPECT_EQ(cached, known) << restart;
  }
}

// Of a fork that found no place, nothing but its tokens was left, and the text that went on from
// there failed.
TEST_P(HostedScheduler, AHeldPromptIsEvaluatedAgainIfItsForkFindsNoPlace) {
  const auto engine = OpenHosted();
  ASSERT_NE(engine, nullptr);
  const Clock clock = SteadySeconds;
  PrefixCache prefixes(*engine, clock, {});
  const std::vector<Token> prompt = {5, 6, 7};
  Sequence held = engine->NewSequence();
  ASSERT_TRUE(Append(*engine, held, prompt));
  prefixes.Hold(std::move(held));
  std::vector<Sequence> others;
  while (engine->kv_room().places > 0) {
    others.push_back(engine->NewSequence());
    ASSERT_TRUE(Append(*engine, others.back(), prompt));
  }
  std::optional<Sequence> fork = prefixes.ForkHeld(prompt);
  ASSERT_TRUE(fork);
  others.clear();
  const std::vector<Token> again = {5, 6, 7, 8};
  const auto goes_on = Append(*engine, *fork, std::span(again).subspan(fork->position()));
  EXPECT_TRUE(goes_on) << goes_on.error().message;
}

// libllama rounds otherwise for several rows of a step, so that a tie may fall the other way.
void ExpectSameButForTies(const Said& drafted, const Said& plain) {
  constexpr float kTie = 1e-3F;
  const size_t n = std::min(drafted.logprobs.size(), plain.logprobs.size());
  ASSERT_GT(n, 0U);
  for (size_t i = 0; i < n; ++i) {
    const TokenLogprob& expected = plain.logprobs[i];
    EXPECT_NEAR(drafted.logprobs[i].chosen.logprob, expected.chosen.logprob, kTie) << i;
    if (drafted.logprobs[i].chosen.token == expected.chosen.token) continue;
    EXPECT_EQ(drafted.logprobs[i].chosen.token, expected.top[1].token) << i;
    return;
  }
  EXPECT_EQ(drafted.text, plain.text);
}

TEST_P(HostedScheduler, DraftsGiveTheSameTexts) {
  const auto engine = OpenHosted();
  ASSERT_NE(engine, nullptr);
  const std::vector<Wish> wishes = {
      {.prompt = "The dog ran. The dog ran. The dog ran. The", .tokens = 60},
      {.prompt = "A cat", .tokens = 60}};
  std::vector<Said> texts;
  for (const uint32_t most : {0U, 6U}) {
    double seconds = 0.0;  // each step takes as long, so drafts pay
    Scheduler scheduler(
        *engine, DemoVocab(),
        {.parallel = 2,
         .draft = {.kind = most > 0 ? DraftKind::kNgram : DraftKind::kNone, .most = most}},
        [&] { return seconds += 1e-3; });
    for (const Said& said : ServeAll(scheduler, wishes)) {
      ASSERT_TRUE(said.end) << (said.error ? said.error->message : "no end");
      texts.push_back(said);
    }
  }
  ExpectSameButForTies(texts[2], texts[0]);
  ExpectSameButForTies(texts[3], texts[1]);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostedScheduler, testing::Values("qwen35moe", "deepseek2"),
                         [](const auto& about) { return about.param; });

}  // namespace
}  // namespace moestro
