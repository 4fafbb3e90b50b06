// SPDX-License-Identifier: MIT
// The simulator decides as the engine does: the same requests get the same answers and evict the
// same experts, in the same order, for every policy.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/quantile.h"
#include "core/random_tokens.h"
#include "decide/layer/little_judge.h"
#include "decide/slots/policy.h"
#include "engine/append.h"
#include "learned/learn_paths.h"
#include "learned/path_counter.h"
#include "learned/path_file.h"
#include "native/native_engine.h"
#include "sim/replay.h"
#include "tests/engine/agreement_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class Agreement : public testing::TestWithParam<std::string> {};

TEST_P(Agreement, OneSequenceAfterTheOther) {
  Recorded recorded(OptionsFor(GetParam(), "none"), 0);
  NativeEngine& engine = recorded.engine();
  for (uint32_t s = 0; s < 2; ++s) {
    recorded.BeginSequence();
    Sequence sequence = engine.NewSequence();
    for (const Token t : SeededTokens(80, engine.spec().n_vocab, s + 1)) {
      ASSERT_TRUE(Append(engine, sequence, {&t, 1}));
    }
  }
  EXPECT_GT(engine.stats().decode.evictions, 100U);
  ExpectSame(recorded, GetParam(), "none", engine.memory().n_slots);
}

TEST_P(Agreement, FiveSequencesInOneStepWithPrefetch) {
  for (const char* predictor : {"none", "next-router", "frequency"}) {
    Recorded recorded(OptionsFor(GetParam(), predictor), 1);
    NativeEngine& engine = recorded.engine();
    DecodeTogether(engine, 5);
    if (HasFailure()) return;
    ExpectSame(recorded, GetParam(), predictor, engine.memory().n_slots);
    if (HasFailure()) return;
    if (std::string(predictor) != "none") {
      EXPECT_GT(engine.stats().decode.prefetches, 50U) << predictor;
    }
  }
}

// From 1 row in a step to 32, which need all the experts of a layer.
TEST_P(Agreement, ThirtyTwoSequencesInOneStep) {
  Recorded recorded(OptionsFor(GetParam(), "next-router"), 1);
  NativeEngine& engine = recorded.engine();
  DecodeTogether(engine, 32);
  if (HasFatalFailure()) return;
  EXPECT_GT(engine.stats().decode.evictions, 500U);
  ExpectSame(recorded, GetParam(), "next-router", engine.memory().n_slots);
}

// Room for fewer than two layers: the next layer is read ahead into what this one has left.
TEST_P(Agreement, PromptsBetweenDecodeSteps) {
  Recorded recorded(OptionsFor(GetParam(), "next-router", 30.0), 1);
  NativeEngine& engine = recorded.engine();
  for (uint32_t s = 0; s < 3; ++s) {
    recorded.BeginSequence();
    Sequence sequence = engine.NewSequence();
    ASSERT_TRUE(Append(engine, sequence, SeededTokens(30, engine.spec().n_vocab, s)));
    for (const Token t : SeededTokens(15, engine.spec().n_vocab, s + 9)) {
      ASSERT_TRUE(Append(engine, sequence, {&t, 1}));
    }
  }
  ExpectSame(recorded, GetParam(), "next-router", engine.memory().n_slots);
}

// A source is one step through the encoder's layers; then the target, and the next text.
TEST_P(Agreement, SourcesAndTargets) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(folder.path(), {.arch = "switch",
                                                           .type = "Q8_0",
                                                           .layers = 8,
                                                           .experts = 16,
                                                           .embd = 128,
                                                           .ff = 96,
                                                           .dense_ff = 160,
                                                           .heads = 4,
                                                           .head_dim = 32,
                                                           .vocab = 512});
  const std::string learned = folder.File("learned.paths");
  std::shared_ptr<const PathTable> table;
  for (const char* predictor : {"none", "next-router", "frequency", "paths"}) {
    EngineOptions options = OptionsFor(GetParam(), predictor, 50.0);
    if (table != nullptr) options.paths = learned;
    Recorded recorded(options, 1, model);
    NativeEngine& engine = recorded.engine();
    for (uint32_t text = 0; text < 3; ++text) {
      recorded.BeginSequence();
      Sequence sequence = engine.NewSequence();
      std::vector<Token> prompt = SeededTokens(40 + text, engine.spec().n_vocab, text);
      MakePrompt(engine.spec().encoder, prompt.size(), prompt);
      ASSERT_TRUE(Append(engine, sequence, prompt));
      for (const Token t : SeededTokens(40, engine.spec().n_vocab, text + 9)) {
        ASSERT_TRUE(Append(engine, sequence, {&t, 1}));
      }
    }
    EXPECT_EQ(recorded.trace().tokens(), 3U * 80 + 3);
    EXPECT_TRUE(recorded.trace().is_source(0));
    EXPECT_GT(engine.stats().decode.evictions, 20U);
    ExpectSame(recorded, {.slots = engine.memory().n_slots,
                          .policy = {.name = GetParam()},
                          .predictor = {.name = predictor, .paths = table}});
    if (HasFailure()) return;
    // The most frequent experts are those that some policies keep.
    if (std::string(predictor) == "next-router" || table != nullptr) {
      EXPECT_GT(engine.stats().decode.prefetches, 0U) << predictor;
    }
    if (std::string(predictor) != "frequency") continue;
    PathCounter counter(recorded.trace().info().shape());
    CountTrace(recorded.trace(), recorded.trace().tokens(), counter);
    table = std::make_shared<const PathTable>(counter.Learn());
    const PathFile file{.model = engine.id(), .tokens = recorded.trace().tokens(), .table = *table};
    ASSERT_TRUE(WritePaths(learned, file));
  }
}

// Two copies, skipping, dropping and giving way to residents, for one row in a step and for two.
TEST_P(Agreement, LossyChoices) {
  const TempFolder folder;
  TinySpec spec{.arch = "qwen3moe", .type = "Q8_0", .layers = 4, .experts = 16, .used = 4};
  const std::string model = WriteTinyModel(folder.path(), spec);
  spec.type = "Q2_K";
  const std::string low = WriteTinyModel(folder.path(), spec);
  for (const char* predictor : {"none", "next-router"}) {
    EngineOptions options = OptionsFor(GetParam(), predictor, 40.0);
    options.low = low;
    options.low_share = 0.3;
    options.lossy = {.t1 = 0.4,
                     .t2 = 0.8,
                     .drop_below = 0.05,
                     .prefer_resident = 0.05,
                     .upgrades = std::string(predictor) == "none"};
    Recorded recorded(options, 1, model);
    NativeEngine& engine = recorded.engine();
    // Three rows may need more experts of a layer than there are slots for either copy.
    DecodeTogether(engine, 2);
    if (HasFailure()) return;
    const LossCounts& losses = engine.stats().decode.losses;
    EXPECT_GT(losses.low, 20U);
    EXPECT_GT(losses.skipped, 5U);
    EXPECT_GT(losses.replaced, 5U);
    ExpectSame(recorded, {.slots = engine.memory().n_slots,
                          .policy = {.name = GetParam()},
                          .predictor = {.name = predictor, .paths = {}},
                          .lossy = options.lossy,
                          .low_slots = engine.memory().n_low_slots,
                          .low_bytes = 1,
                          .router = engine.spec().router});
    if (HasFailure()) return;
  }
}

// 40 steps of up to two rows, all of which want logits.
void DecodeTwo(NativeEngine& engine, const std::function<void(const Batch&)>& step) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < 2; ++i) sequences.push_back(engine.NewSequence());
  for (uint32_t at = 0; at < 40; ++at) {
    Batch batch;
    const std::vector<Token> tokens = SeededTokens(2, engine.spec().n_vocab, at);
    for (size_t i = 0; i < 1 + at % 2; ++i) {
      batch.rows.push_back({.sequence = sequences[i].id(),
                            .position = sequences[i].position(),
                            .token = tokens[i],
                            .wants_logits = true});
    }
    step(batch);
  }
}

// Half of the tokens are surer than this.
double MiddleConfidence(EngineOptions options, const std::string& model) {
  options.little.gamma = 0.0;
  const auto engine = NativeEngine::Open(model, options);
  EXPECT_TRUE(engine) << engine.error().message;
  std::vector<double> seen;
  DecodeTwo(**engine, [&](const Batch& batch) {
    EXPECT_TRUE((*engine)->Step(
        batch, [&](size_t, std::span<const float> logits) { seen.push_back(Confidence(logits)); }));
  });
  return Median(seen);
}

TEST_P(Agreement, FewerExpertsFirst) {
  const TempFolder folder;
  const std::string model = WriteTinyModel(
      folder.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = 4, .experts = 16, .used = 4});
  for (const char* predictor : {"none", "next-router"}) {
    for (const Misses misses : {Misses::kRead, Misses::kDrop}) {
      EngineOptions options = OptionsFor(GetParam(), predictor, 40.0);
      options.little = {.n_used = 2, .misses = misses};
      options.little.gamma = MiddleConfidence(options, model);
      Recorded recorded(options, 1, model);
      NativeEngine& engine = recorded.engine();
      DecodeTwo(engine, [&](const Batch& batch) { recorded.StepLittle(batch); });
      if (HasFailure()) return;
      const LittleStats& little = engine.stats().little;
      EXPECT_EQ(little.tokens, 60U);
      EXPECT_GT(little.again, 10U);
      EXPECT_LT(little.again, 50U);
      EXPECT_GT(little.prefetches, 5U);
      const LossCounts& losses = engine.stats().decode.losses;
      EXPECT_EQ(losses.dropped > 0, misses == Misses::kDrop);
      const ReplayResult result =
          ExpectSame(recorded, {.slots = engine.memory().n_slots,
                                .policy = {.name = GetParam()},
                                .predictor = {.name = predictor, .paths = {}},
                                .router = engine.spec().router,
                                .little = options.little});
      if (HasFailure()) return;
      EXPECT_EQ(result.again, little.again);
      EXPECT_EQ(result.kept + result.again, little.tokens);
      EXPECT_EQ(result.losses, losses);
      EXPECT_EQ(result.foreseen.right, little.foreseen.right);
    }
  }
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const PolicyInfo& info : KnownPolicies()) names.emplace_back(info.name);
  return names;
}

std::string TestName(const testing::TestParamInfo<std::string>& policy) {
  std::string name = policy.param;
  std::erase(name, '-');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Policies, Agreement, testing::ValuesIn(Names()), TestName);

}  // namespace
}  // namespace moestro
