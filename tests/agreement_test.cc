// SPDX-License-Identifier: MIT
// The simulator decides as the engine does: the same requests get the same answers and evict the
// same experts, in the same order, for every policy.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "base/quantile.h"
#include "decide/little_judge.h"
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
    auto empty = Trace::Create({.model = engine_->id(),
                                .depth = depth,
                                .little = options.little.n_used.value_or(0),
                                .has_weights = true,
                                .has_candidates = true});
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

  // A step of a recording with EngineOptions::little, all of whose rows want logits.
  void StepLittle(const Batch& batch) {
    confidences_.assign(batch.size(), 0.0F);  // of rows decoded again it is not shown
    rows_.clear();
    const Status done = engine_->Step(batch, [this](size_t row, std::span<const float> logits) {
      if (!rows_.empty()) return;
      confidences_[row] = static_cast<float>(Confidence(logits));
    });
    ASSERT_TRUE(done) << done.error().message;
    auto again = rows_.begin();
    for (size_t r = 0; r < batch.size(); ++r) {
      const Row& own = confidences_[r] > 0.0F ? OfKept(little_rows_[r]) : *again++;
      Add(own, r,
          {.experts = little_rows_[r].experts,
           .weights = little_rows_[r].weights,
           .predicted = little_rows_[r].predicted,
           .confidence = confidences_[r]});
    }
    EXPECT_TRUE(again == rows_.end());
  }

 private:
  struct Row {
    Phase phase = Phase::kDecode;
    std::vector<ExpertId> experts;
    std::vector<ExpertId> predicted;
    std::vector<float> weights;
    RoutingCandidates candidates;
  };

  static void Take(const SeenRouting& seen, std::vector<Row>& rows) {
    const size_t used = seen.routing.n_used;
    const size_t n = seen.kinds.size();
    if (seen.layer.value == 0) rows.assign(n, {});
    for (size_t r = 0; r < n; ++r) {
      rows[r].phase = seen.kinds[r] == RowKind::kPrompt ? Phase::kPrefill : Phase::kDecode;
      rows[r].weights.append_range(seen.routing.weights_of(r));
      rows[r].candidates.Append(seen.routing.candidates.row(r));
      for (size_t at = r; at * used < seen.ahead.size(); at += n) {
        rows[r].predicted.append_range(seen.ahead.subspan(at * used, used));
      }
    }
  }

  void See(const SeenRouting& seen) {
    engine_->FinishReads();
    std::vector<Row>& rows = seen.is_little ? little_rows_ : rows_;
    Take(seen, rows);
    const size_t k = trace_->info().shape().n_used;
    for (size_t r = 0; r < rows.size(); ++r) {
      rows[r].experts.append_range(seen.routing.candidates.row(r).experts.first(k));
    }
    if (trace_->info().little > 0 || seen.layer.value + 1U < trace_->info().shape().n_layer) return;
    for (size_t r = 0; r < rows.size(); ++r) Add(rows[r], r, {});
  }

  void Add(const Row& row, size_t at, const LittlePass& little) {
    const Status added = trace_->Add({.phase = row.phase,
                                      .starts_sequence = at == 0 && std::exchange(starts_, false),
                                      .joins_step = at > 0,
                                      .experts = row.experts,
                                      .weights = row.weights,
                                      .predicted = row.predicted,
                                      .candidates = row.candidates.all(),
                                      .little = little});
    EXPECT_TRUE(added) << added.error().message;
  }

  // Such a token's second pass is not played, so anything may stand there.
  const Row& OfKept(const Row& little) {
    const TraceInfo& info = trace_->info();
    const size_t k = info.shape().n_used;
    kept_ = little;
    kept_.weights.assign(info.shape().n_layer * k, 0.0F);
    kept_.predicted.clear();
    for (size_t i = 0; i < info.predicted_rows(); ++i) {
      kept_.predicted.append_range(std::span(little.experts).first(k));
    }
    return kept_;
  }

  std::unique_ptr<Engine> engine_;
  std::optional<Trace> trace_;
  std::vector<std::string> did_;
  std::vector<Row> rows_;
  std::vector<Row> little_rows_;
  std::vector<float> confidences_;
  Row kept_;
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

ReplayResult ExpectSame(const Recorded& recorded, ReplayOptions options) {
  std::vector<std::string> simulated;
  options.observer = [&](ExpertKey key, Use use, const Placement& placed) {
    simulated.push_back(Line(key, use, placed));
  };
  const auto result = Replay(recorded.trace(), options);
  EXPECT_TRUE(result) << result.error().message;
  const std::vector<std::string>& did = recorded.did();
  const auto [one, other] = std::ranges::mismatch(did, simulated);
  EXPECT_TRUE(one == did.end() && other == simulated.end())
      << "request " << one - did.begin() << ": " << (one == did.end() ? "none" : *one) << ", but "
      << (other == simulated.end() ? "none" : *other) << " in the simulator";
  return result.value_or(ReplayResult{});
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
void DecodeTwo(Engine& engine, const std::function<void(const Batch&)>& step) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < 2; ++i) sequences.push_back(engine.NewSequence());
  for (uint32_t at = 0; at < 40; ++at) {
    Batch batch;
    const std::vector<Token> tokens = RandomTokens(2, engine.spec().n_vocab, at);
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
  const auto engine = Engine::Open(model, options);
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
      Engine& engine = recorded.engine();
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
