// SPDX-License-Identifier: MIT
// A second start reads first what the last one used. No result changes by it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kVocab = 512;

class RecallTest : public testing::Test {
 protected:
  RecallTest()
      : model_(WriteTinyModel(folder_.path(),
                              {.arch = "qwen3moe", .type = "Q8_0", .layers = 4, .experts = 32})) {}

  std::string cache() const { return folder_.File("cache"); }
  EngineOptions Options(double percent = 40.0) const {
    EngineOptions options;
    options.ctx = 96;
    options.threads = 2;
    options.cache = CacheSize{.percent = percent};
    options.recall.folder = cache();
    options.recall.bytes_at_a_time = 1;  // one expert, so that a start does not read all of them
    return options;
  }
  std::unique_ptr<NativeEngine> Open(const EngineOptions& options) const {
    auto engine = NativeEngine::Open(model_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  // A text of so many tokens, one by one -> the logits of all.
  static std::vector<float> Decode(NativeEngine& engine, uint32_t n, uint32_t prompt = 0) {
    Sequence sequence = engine.NewSequence();
    const std::vector<Token> tokens = SeededTokens(prompt + n, kVocab, 5);
    std::vector<float> all;
    if (prompt > 0) {
      EXPECT_TRUE(Append(engine, sequence, std::span(tokens).first(prompt)));
    }
    for (const Token& token : std::span(tokens).subspan(prompt)) {
      const auto logits = Append(engine, sequence, {&token, 1});
      EXPECT_TRUE(logits) << logits.error().message;
      if (!logits) return {};
      all.append_range(*logits);
    }
    return all;
  }
  static std::vector<ExpertKey> Experts(const NativeEngine& engine) {
    std::vector<ExpertKey> all;
    for (const SlotContents& pool : engine.slot_contents()) all.append_range(pool.experts);
    std::ranges::sort(all, {},
                      [](ExpertKey key) { return std::pair(key.layer.value, key.expert.value); });
    return all;
  }
  static void WorkUntilDone(NativeEngine& engine) {
    while (engine.WorkWhileIdle()) {
    }
    engine.FinishReads();
  }
  bool is_kept() const { return std::filesystem::exists(cache()); }

  TempFolder folder_;
  std::string model_;
};

TEST_F(RecallTest, ASecondStartHasWhatTheFirstUsed) {
  std::vector<ExpertKey> used;
  std::vector<float> first;
  uint64_t misses = 0;
  EngineOptions options = Options();
  options.prefetch = 0;  // reads ahead hit or miss by timing
  {
    const auto engine = Open(options);
    EXPECT_EQ(engine->facts().recalled, 0U);
    EXPECT_FALSE(engine->WorkWhileIdle());
    first = Decode(*engine, 30);
    engine->FinishReads();
    used = Experts(*engine);
    misses = engine->stats().decode.requests - engine->stats().decode.hits;
  }
  const auto engine = Open(options);
  EXPECT_GT(engine->facts().recalled, used.size() / 2);
  EXPECT_TRUE(engine->WorkWhileIdle());
  WorkUntilDone(*engine);
  const std::vector<ExpertKey> recalled = Experts(*engine);
  EXPECT_EQ(recalled.size(), engine->facts().recalled);
  EXPECT_TRUE(std::ranges::all_of(recalled,
                                  [&](ExpertKey key) { return std::ranges::contains(used, key); }));
  engine->stats() = {};
  EXPECT_EQ(Decode(*engine, 30), first);
  EXPECT_LT(engine->stats().decode.requests - engine->stats().decode.hits, misses);
}

TEST_F(RecallTest, StepsThatComeAtOnceHaveTheSameBits) {
  for (const uint32_t prompt : {0U, 40U}) {
    EngineOptions cold = Options();
    cold.recall = {};
    const auto alone = Open(cold);
    const std::vector<float> expected = Decode(*alone, 12, prompt);
    for (const double percent : {20.0, 40.0, 100.0}) {
      for (int start = 0; start < 3; ++start) {
        const auto engine = Open(Options(percent));
        EXPECT_EQ(Decode(*engine, 12, prompt), expected)
            << "start " << start << ", " << percent << " %, a prompt of " << prompt;
      }
    }
  }
}

TEST_F(RecallTest, FewerSlotsGetTheMostUsed) {
  Decode(*Open(Options(100.0)), 60);
  const auto engine = Open(Options(10.0));
  WorkUntilDone(*engine);
  uint64_t slots = 0;
  for (const SlotContents& pool : engine->slot_contents()) slots += pool.slots;
  EXPECT_EQ(Experts(*engine).size(), slots);
}

TEST_F(RecallTest, AReadThatFailsIsNoError) {
  const std::vector<float> expected = Decode(*Open(Options()), 20);
  FaultReader* disk = nullptr;
  EngineOptions options = Options();
  options.wrap_reader = [&disk](std::unique_ptr<BlockReader> inner) {
    auto faulty = std::make_unique<FaultReader>(std::move(inner));
    disk = faulty.get();
    return faulty;
  };
  const auto engine = Open(options);
  EXPECT_GT(engine->facts().recalled, 0U);
  const size_t before = Experts(*engine).size();
  disk->SetPlan(FaultScript().ErrorFrom(0, EIO));
  EXPECT_TRUE(engine->WorkWhileIdle());
  WorkUntilDone(*engine);
  EXPECT_LE(Experts(*engine).size(), before);
  disk->SetPlan({});
  EXPECT_EQ(Decode(*engine, 20), expected);
}

// Both rates are measured, and a text goes on as if they had not been.
TEST_F(RecallTest, ReadsAndComputationAreProbedAtOnce) {
  EngineOptions options = Options(100.0);
  options.recall = {};
  const auto probed = Open(options);
  const auto other = Open(options);
  std::vector<std::vector<float>> logits;
  for (NativeEngine* engine : {probed.get(), other.get()}) {
    Sequence sequence = engine->NewSequence();
    EXPECT_EQ(engine->ProbeTogether(std::vector<Sequence*>{&sequence})->has_value(), false);
    EXPECT_TRUE(Append(*engine, sequence, SeededTokens(20, kVocab, 1)));
    if (engine == probed.get()) {
      const auto both = engine->ProbeTogether(std::vector<Sequence*>{&sequence});
      ASSERT_TRUE(both) << both.error().message;
      ASSERT_TRUE(*both);
      EXPECT_GT((*both)->compute_seconds, 0.0);
      EXPECT_GT((*both)->disk_bandwidth, 0.0);
    }
    const auto next = Append(*engine, sequence, SeededTokens(1, kVocab, 2));
    ASSERT_TRUE(next);
    logits.emplace_back(next->begin(), next->end());
  }
  EXPECT_EQ(logits[0], logits[1]);
}

TEST_F(RecallTest, ColdStartsReadAndKeepNothing) {
  EngineOptions cold = Options();
  cold.recall.is_cold = true;
  Decode(*Open(cold), 10);
  EXPECT_FALSE(is_kept());
  Decode(*Open(Options()), 10);
  EXPECT_TRUE(is_kept());
  EXPECT_EQ(Open(cold)->facts().recalled, 0U);
}

TEST_F(RecallTest, WhatWasKeptCanStay) {
  Decode(*Open(Options()), 10);
  const auto file = std::filesystem::directory_iterator(cache())->path();
  const auto time = std::filesystem::last_write_time(file);
  EngineOptions same = Options();
  same.recall.keeps = false;
  Decode(*Open(same), 30);
  Open(Options());  // has decoded nothing
  EXPECT_EQ(std::filesystem::last_write_time(file), time);
}

// Lossy choices depend on which experts are in memory: the same text must come again.
TEST_F(RecallTest, LossyRunsAreCold) {
  Decode(*Open(Options()), 10);
  EngineOptions lossy = Options();
  lossy.lossy.drop_below = 0.2;
  for (const bool is_reproducible : {true, false}) {
    lossy.lossy.is_reproducible = is_reproducible;
    EXPECT_EQ(Open(lossy)->facts().recalled, 0U);
  }
}

// One token, or fewer slots, must not wash out what many tokens said.
TEST_F(RecallTest, AShortRunForgetsLittle) {
  Decode(*Open(Options(100.0)), 60);
  const uint64_t known = Open(Options(100.0))->facts().recalled;
  Decode(*Open(Options(10.0)), 1);
  EXPECT_GT(Open(Options(100.0))->facts().recalled, known / 2);
}

TEST_F(RecallTest, AHostileHintIsIgnored) {
  Decode(*Open(Options()), 10);
  const std::string file = std::filesystem::directory_iterator(cache())->path();
  std::filesystem::resize_file(file, 3);
  const auto engine = Open(Options());
  EXPECT_EQ(engine->facts().recalled, 0U);
  Decode(*engine, 5);
}

}  // namespace
}  // namespace moestro
