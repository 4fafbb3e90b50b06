// SPDX-License-Identifier: MIT
// The simulator decides as the engine does: the same requests get the same answers and evict the
// same experts, in the same order, for every policy.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/distribution.h"
#include "base/text.h"
#include "core/random_tokens.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/policy.h"
#include "engine/append.h"
#include "learned/learned_tables.h"
#include "learned/path_counter.h"
#include "native/native_engine.h"
#include "sim/replay.h"
#include "tests/engine/agreement_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

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

// Tests that take policies alone have each of them.
class Agreement : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Policies, Agreement, testing::ValuesIn(Names()), TestName);

// The others are products of policies, predictors and what becomes of misses. Each policy is in the
// cover, with each of the ways to miss, and so is each predictor.
struct Cell {
  std::string policy;
  std::string predictor;
  Misses misses = Misses::kRead;
};
void PrintTo(const Cell& cell, std::ostream* out) { *out << cell.policy << " " << cell.predictor; }

std::vector<Cell> CellsWith(uint32_t part, const std::vector<std::string>& predictors,
                            const std::vector<Misses>& misses = {Misses::kRead}) {
  std::vector<Cell> cells;
  for (const std::string& policy : Names()) {
    for (const std::string& predictor : predictors) {
      for (const Misses m : misses) cells.push_back({policy, predictor, m});
    }
  }
  return CellsOfPart(part, cells, [](const Cell& cell) {
    return PairsOf({cell.policy, cell.predictor},
                   {Format("misses {}", static_cast<int>(cell.misses))});
  });
}

const auto kCellName = [](const auto& about) {
  std::string name = about.param.policy + "_" + about.param.predictor +
                     (about.param.misses == Misses::kDrop ? "_drop" : "");
  std::erase(name, '-');
  return name;
};

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

class AgreementOfSteps : public testing::TestWithParam<Cell> {};

TEST_P(AgreementOfSteps, FiveSequencesInOneStepWithPrefetch) {
  const auto& [policy, predictor, misses] = GetParam();
  Recorded recorded(OptionsFor(policy, predictor), 1);
  NativeEngine& engine = recorded.engine();
  DecodeTogether(engine, 5);
  if (HasFailure()) return;
  ExpectSame(recorded, policy, predictor, engine.memory().n_slots);
  if (HasFailure()) return;
  if (predictor != "none") {
    EXPECT_GT(engine.stats().decode.prefetches, 50U);
  }
}

std::vector<Cell> StepCells(uint32_t part) {
  return CellsWith(part, {"none", "next-router", "frequency"});
}
MOESTRO_INSTANTIATE_PARTS(AgreementOfSteps, StepCells, kCellName);

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
class AgreementOfSources : public testing::TestWithParam<Cell> {
 protected:
  // Whatever the engine did, the simulator does. Predictions by `paths` need what `path_file` has.
  void Check(const std::string& predictor, const std::string& path_file,
             const std::shared_ptr<const PathTable>& paths) {
    const std::string& policy = GetParam().policy;
    EngineOptions options = OptionsFor(policy, predictor, 50.0);
    if (paths != nullptr) options.paths = path_file;
    recorded_.emplace(options, 1, model_);
    NativeEngine& engine = recorded_->engine();
    for (uint32_t text = 0; text < 3; ++text) {
      recorded_->BeginSequence();
      Sequence sequence = engine.NewSequence();
      std::vector<Token> prompt = SeededTokens(40 + text, engine.spec().n_vocab, text);
      MakePrompt(engine.spec().encoder, prompt.size(), prompt);
      ASSERT_TRUE(Append(engine, sequence, prompt));
      for (const Token t : SeededTokens(40, engine.spec().n_vocab, text + 9)) {
        ASSERT_TRUE(Append(engine, sequence, {&t, 1}));
      }
    }
    EXPECT_EQ(recorded_->trace().tokens(), 3U * 80 + 3);
    EXPECT_TRUE(recorded_->trace().is_source(0));
    EXPECT_GT(engine.stats().decode.evictions, 20U);
    ExpectSame(*recorded_, {.slots = engine.memory().n_slots,
                            .policy = {.name = policy},
                            .predictor = {.name = predictor, .paths = paths}});
    if (HasFailure()) return;
    // The most frequent experts are those that some policies keep.
    if (predictor == "next-router" || predictor == "paths") {
      EXPECT_GT(engine.stats().decode.prefetches, 0U);
    }
  }

  TempFolder folder_;
  std::string model_ = WriteTinyModel(folder_.path(), {.arch = "switch",
                                                       .type = "Q8_0",
                                                       .layers = 8,
                                                       .experts = 16,
                                                       .embd = 128,
                                                       .ff = 96,
                                                       .dense_ff = 160,
                                                       .heads = 4,
                                                       .head_dim = 32,
                                                       .vocab = 512});
  std::optional<Recorded> recorded_;
};

TEST_P(AgreementOfSources, SourcesAndTargets) {
  const std::string& predictor = GetParam().predictor;
  if (predictor != "paths") return Check(predictor, "", nullptr);
  Check("frequency", "", nullptr);
  if (HasFailure()) return;
  const Trace& trace = recorded_->trace();
  PathCounter counter(trace.info().shape());
  CountTrace(trace, trace.tokens(), counter);
  const auto table = std::make_shared<const PathTable>(counter.Learn());
  const std::string learned = folder_.File("learned.paths");
  ASSERT_TRUE(WritePaths(
      learned, {.model = recorded_->engine().id(), .tokens = trace.tokens(), .table = *table}));
  Check(predictor, learned, table);
}

std::vector<Cell> SourceCells(uint32_t part) {
  return CellsWith(part, {"none", "next-router", "frequency", "paths"});
}
MOESTRO_INSTANTIATE_PARTS(AgreementOfSources, SourceCells, kCellName);

// Two copies, skipping, dropping and giving way to residents, for one row in a step and for two.
class AgreementOfCopies : public testing::TestWithParam<Cell> {};

TEST_P(AgreementOfCopies, LossyChoices) {
  const auto& [policy, predictor, misses] = GetParam();
  const TempFolder folder;
  TinySpec spec{.arch = "qwen3moe", .type = "Q8_0", .layers = 4, .experts = 16, .used = 4};
  const std::string model = WriteTinyModel(folder.path(), spec);
  spec.type = "Q2_K";
  const std::string low = WriteTinyModel(folder.path(), spec);
  EngineOptions options = OptionsFor(policy, predictor, 40.0);
  options.low = low;
  options.low_share = 0.3;
  options.lossy = {.t1 = 0.4,
                   .t2 = 0.8,
                   .drop_below = 0.05,
                   .prefer_resident = 0.05,
                   .upgrades = predictor == "none"};
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
                        .policy = {.name = policy},
                        .predictor = {.name = predictor, .paths = {}},
                        .lossy = options.lossy,
                        .low_slots = engine.memory().n_low_slots,
                        .low_bytes = 1,
                        .router = engine.spec().router});
}

std::vector<Cell> CopyCells(uint32_t part) { return CellsWith(part, {"none", "next-router"}); }
MOESTRO_INSTANTIATE_PARTS(AgreementOfCopies, CopyCells, kCellName);

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

class AgreementOfPasses : public testing::TestWithParam<Cell> {};

TEST_P(AgreementOfPasses, FewerExpertsFirst) {
  const auto& [policy, predictor, misses] = GetParam();
  const TempFolder folder;
  const std::string model = WriteTinyModel(
      folder.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = 4, .experts = 16, .used = 4});
  EngineOptions options = OptionsFor(policy, predictor, 40.0);
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
  const ReplayResult result = ExpectSame(recorded, {.slots = engine.memory().n_slots,
                                                    .policy = {.name = policy},
                                                    .predictor = {.name = predictor, .paths = {}},
                                                    .router = engine.spec().router,
                                                    .little = options.little});
  if (HasFailure()) return;
  EXPECT_EQ(result.again, little.again);
  EXPECT_EQ(result.kept + result.again, little.tokens);
  EXPECT_EQ(result.losses, losses);
  EXPECT_EQ(result.foreseen.right, little.foreseen.right);
}

std::vector<Cell> PassCells(uint32_t part) {
  return CellsWith(part, {"none", "next-router"}, {Misses::kRead, Misses::kDrop});
}
MOESTRO_INSTANTIATE_PARTS(AgreementOfPasses, PassCells, kCellName);

}  // namespace
}  // namespace moestro
