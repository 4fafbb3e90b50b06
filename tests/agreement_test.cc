// SPDX-License-Identifier: MIT
// The simulator decides as the engine does: the same requests get the same answers and evict the
// same experts, in the same order, for every policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "decide/policy.h"
#include "engine/append.h"
#include "engine/engine.h"
#include "sim/replay.h"
#include "tests/support/prompts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moestro {
namespace {

constexpr const char* kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

const char* NameOf(Use use) {
  return use == Use::kDecode ? "decode" : use == Use::kPrefill ? "prefill" : "prefetch";
}

std::string Line(ExpertKey key, Use use, const Placement& placed) {
  std::string line = Format("{}.{}.{} {} {}", key.layer.value, key.expert.value, key.copy,
                            NameOf(use), placed.was == Placement::Was::kAbsent ? "miss" : "hit");
  if (placed.evicted) {
    line += Format(" evicts {}.{}", placed.evicted->layer.value, placed.evicted->expert.value);
  }
  return line;
}

// An engine whose disk is infinitely fast and whose clock stands still, as far as decisions go: all
// reads are finished before each layer's routing is used. The simulator without a clock is the
// same.
class Recorded {
 public:
  explicit Recorded(const EngineOptions& options, uint32_t depth,
                    const std::string& model = kDemo) {
    auto engine = Engine::Open(model, options);
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    auto empty = Trace::Create(
        {.model = engine_->id(), .depth = depth, .has_weights = true, .has_candidates = true});
    EXPECT_TRUE(empty) << empty.error().message;
    trace_.emplace(*std::move(empty));
    engine_->SetRouteObserver([this](const SeenRouting& seen) { See(seen); }, depth, true);
    engine_->SetRequestObserver([this](ExpertKey key, Use use, const Placement& placed) {
      did_.push_back(Line(key, use, placed));
    });
  }

  Engine& engine() { return *engine_; }
  const Trace& trace() const { return *trace_; }
  const std::vector<std::string>& did() const { return did_; }

  // The next step begins a sequence while no other lives.
  void BeginSequence() { starts_ = true; }

 private:
  struct Row {
    Phase phase = Phase::kDecode;
    std::vector<ExpertId> experts;
    std::vector<ExpertId> predicted;
    std::vector<float> weights;
    RoutingCandidates candidates;
  };

  void See(const SeenRouting& seen) {
    engine_->FinishReads();
    const size_t used = seen.routing.n_used;
    const size_t n = seen.kinds.size();
    if (seen.layer.value == 0) rows_.assign(n, {});
    for (size_t r = 0; r < n; ++r) {
      rows_[r].phase = seen.kinds[r] == RowKind::kPrompt ? Phase::kPrefill : Phase::kDecode;
      rows_[r].experts.append_range(seen.routing.experts_of(r));
      rows_[r].weights.append_range(seen.routing.weights_of(r));
      rows_[r].candidates.Append(seen.routing.candidates.row(r));
      for (size_t at = r; at * used < seen.ahead.size(); at += n) {
        rows_[r].predicted.append_range(seen.ahead.subspan(at * used, used));
      }
    }
    if (seen.layer.value + 1U < trace_->info().shape().n_layer) return;
    for (size_t r = 0; r < n; ++r) {
      const Status added = trace_->Add({.phase = rows_[r].phase,
                                        .starts_sequence = r == 0 && std::exchange(starts_, false),
                                        .joins_step = r > 0,
                                        .experts = rows_[r].experts,
                                        .weights = rows_[r].weights,
                                        .predicted = rows_[r].predicted,
                                        .candidates = rows_[r].candidates.all()});
      EXPECT_TRUE(added) << added.error().message;
    }
  }

  std::unique_ptr<Engine> engine_;
  std::optional<Trace> trace_;
  std::vector<std::string> did_;
  std::vector<Row> rows_;
  bool starts_ = true;
};

EngineOptions OptionsFor(const std::string& policy, const std::string& predictor,
                         double percent = 30.0) {
  EngineOptions options;
  options.ctx = 128;
  options.sequences = 32;
  options.threads = 2;
  options.policy = {.name = policy};
  options.predictor = predictor;
  options.cache = CacheSize{.percent = percent};
  options.clock = [] { return 0.0; };
  return options;
}

void ExpectSame(const Recorded& recorded, ReplayOptions options) {
  std::vector<std::string> simulated;
  options.observer = [&](ExpertKey key, Use use, const Placement& placed) {
    simulated.push_back(Line(key, use, placed));
  };
  const auto result = Replay(recorded.trace(), options);
  ASSERT_TRUE(result) << result.error().message;
  const std::vector<std::string>& did = recorded.did();
  for (size_t i = 0; i < std::min(did.size(), simulated.size()); ++i) {
    ASSERT_EQ(did[i], simulated[i]) << "request " << i;
  }
  EXPECT_EQ(did.size(), simulated.size());
}

void ExpectSame(const Recorded& recorded, const std::string& policy, const std::string& predictor,
                uint64_t slots) {
  ExpectSame(
      recorded,
      {.slots = slots, .policy = {.name = policy}, .predictor = {.name = predictor, .paths = {}}});
}

// 40 steps of 1, 2, ..., `most`, 1, ... sequences.
void DecodeTogether(Engine& engine, size_t most) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < most; ++i) sequences.push_back(engine.NewSequence());
  for (uint32_t step = 0; step < 40; ++step) {
    Batch batch;
    const std::vector<Token> tokens = RandomTokens(most, engine.spec().n_vocab, step);
    for (size_t i = 0; i < 1 + step % most; ++i) {
      batch.rows.push_back(
          {.sequence = sequences[i].id(), .position = sequences[i].position(), .token = tokens[i]});
    }
    const auto done = engine.Step(batch);
    ASSERT_TRUE(done) << done.error().message;
  }
}

class Agreement : public testing::TestWithParam<std::string> {};

TEST_P(Agreement, OneSequenceAfterTheOther) {
  Recorded recorded(OptionsFor(GetParam(), "none"), 0);
  Engine& engine = recorded.engine();
  for (uint32_t s = 0; s < 2; ++s) {
    recorded.BeginSequence();
    Sequence sequence = engine.NewSequence();
    for (const Token t : RandomTokens(80, engine.spec().n_vocab, s + 1)) {
      ASSERT_TRUE(Append(engine, sequence, {&t, 1}));
    }
  }
  EXPECT_GT(engine.stats().decode.evictions, 100U);
  ExpectSame(recorded, GetParam(), "none", engine.memory().n_slots);
}

TEST_P(Agreement, FiveSequencesInOneStepWithPrefetch) {
  for (const char* predictor : {"none", "next-router", "frequency"}) {
    Recorded recorded(OptionsFor(GetParam(), predictor), 1);
    Engine& engine = recorded.engine();
    DecodeTogether(engine, 5);
    if (HasFatalFailure()) return;
    ExpectSame(recorded, GetParam(), predictor, engine.memory().n_slots);
    if (HasFatalFailure()) return;
    if (std::string(predictor) != "none") {
      EXPECT_GT(engine.stats().decode.prefetches, 50U) << predictor;
    }
  }
}

// From 1 row in a step to 32, which need all the experts of a layer.
TEST_P(Agreement, ThirtyTwoSequencesInOneStep) {
  Recorded recorded(OptionsFor(GetParam(), "next-router"), 1);
  Engine& engine = recorded.engine();
  DecodeTogether(engine, 32);
  if (HasFatalFailure()) return;
  EXPECT_GT(engine.stats().decode.evictions, 500U);
  ExpectSame(recorded, GetParam(), "next-router", engine.memory().n_slots);
}

// Room for two layers, so that what is read ahead does not depend on what is computed first.
TEST_P(Agreement, PromptsBetweenDecodeSteps) {
  Recorded recorded(OptionsFor(GetParam(), "next-router", 50.0), 1);
  Engine& engine = recorded.engine();
  for (uint32_t s = 0; s < 3; ++s) {
    recorded.BeginSequence();
    Sequence sequence = engine.NewSequence();
    ASSERT_TRUE(Append(engine, sequence, RandomTokens(30, engine.spec().n_vocab, s)));
    for (const Token t : RandomTokens(15, engine.spec().n_vocab, s + 9)) {
      ASSERT_TRUE(Append(engine, sequence, {&t, 1}));
    }
  }
  ExpectSame(recorded, GetParam(), "next-router", engine.memory().n_slots);
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
    Engine& engine = recorded.engine();
    // Three rows may need more experts of a layer than there are slots for either copy.
    DecodeTogether(engine, 2);
    if (HasFatalFailure()) return;
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
    if (HasFatalFailure()) return;
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
