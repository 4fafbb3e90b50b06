// SPDX-License-Identifier: MIT
// An engine whose decisions are recorded, and the simulator that has to make the same ones.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/policy.h"
#include "engine/append.h"
#include "native/native_engine.h"
#include "sim/replay.h"
#include "tests/support/prompts_testing.h"

namespace moestro {

inline constexpr const char* kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";

inline const char* NameOf(Use use) {
  return use == Use::kDecode ? "decode" : use == Use::kPrefill ? "prefill" : "prefetch";
}

inline std::string Line(ExpertKey key, Use use, const Placement& placed) {
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
    auto engine = NativeEngine::Open(model, options);
    EXPECT_TRUE(engine) << engine.error().message;
    native_ = engine->get();
    finish_reads_ = [this] { native_->FinishReads(); };
    engine_ = *std::move(engine);
    Watch({.model = engine_->id(),
           .pools = engine_->facts().pools,
           .depth = depth,
           .little = options.little.n_used.value_or(0),
           .has_weights = true,
           .has_predicted_weights = true,
           .has_candidates = true,
           .has_prompt_steps = true,
           .token_layers = engine_->facts().token_layers});
  }
  // Of an engine that shows neither weights nor candidates.
  Recorded(std::unique_ptr<Engine> engine, std::function<void()> finish_reads, uint32_t depth)
      : engine_(std::move(engine)), finish_reads_(std::move(finish_reads)) {
    Watch({.model = engine_->id(),
           .pools = engine_->facts().pools,
           .depth = depth,
           .may_repeat = true,
           .has_prompt_steps = true,
           .reads_prompts_ahead = false});
  }

  NativeEngine& engine() { return *native_; }
  Engine& any_engine() { return *engine_; }
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
           .predicted_weights = little_rows_[r].predicted_weights,
           .confidence = confidences_[r]});
    }
    EXPECT_TRUE(again == rows_.end());
  }

 private:
  struct Row {
    Phase phase = Phase::kDecode;
    std::vector<ExpertId> experts;
    std::vector<ExpertId> predicted;
    std::vector<float> predicted_weights;
    std::vector<float> weights;
    RoutingCandidates candidates;
  };

  static void Take(const SeenRouting& seen, bool has_details, bool begins, std::vector<Row>& rows) {
    const size_t used = seen.routing.n_used;
    const size_t n = seen.kinds.size();
    if (begins) rows.assign(n, {});
    for (size_t r = 0; r < n; ++r) {
      rows[r].phase = seen.kinds[r] == RowKind::kPrompt ? Phase::kPrefill : Phase::kDecode;
      if (has_details) {
        rows[r].weights.append_range(seen.routing.weights_of(r));
        rows[r].candidates.Append(seen.routing.candidates.row(r));
      }
      for (size_t at = r; at * used < seen.ahead.size(); at += n) {
        rows[r].predicted.append_range(seen.ahead.subspan(at * used, used));
        if (!has_details) continue;
        rows[r].predicted_weights.append_range(seen.ahead_weights.subspan(at * used, used));
      }
    }
  }

  void Watch(const TraceInfo& info) {
    auto empty = Trace::Create(info);
    EXPECT_TRUE(empty) << empty.error().message;
    trace_.emplace(*std::move(empty));
    engine_->SetRouteObserver([this](const SeenRouting& seen) { See(seen); }, info.depth,
                              info.has_candidates);
    engine_->SetRequestObserver([this](ExpertKey key, Use use, const Placement& placed) {
      did_.push_back(Line(key, use, placed));
    });
  }

  void See(const SeenRouting& seen) {
    finish_reads_();
    std::vector<Row>& rows = seen.is_little ? little_rows_ : rows_;
    const bool has_details = trace_->info().has_candidates;
    const MoeShape& shape = trace_->info().shape();
    const bool is_source = seen.layer.value < shape.n_encoder;
    const ExpertLayers layers = shape.layers_of(is_source);
    Take(seen, has_details, seen.layer.value == layers.begin, rows);
    const size_t k = shape.n_used;
    for (size_t r = 0; r < rows.size(); ++r) {
      rows[r].experts.append_range(has_details ? seen.routing.candidates.row(r).experts.first(k)
                                               : seen.routing.experts_of(r));
    }
    if (trace_->info().little > 0 || seen.layer.value + 1U < layers.end) return;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (shape.n_encoder > 0) WidenToModel(layers, rows[r]);
      Add(rows[r], r, {}, is_source);
    }
  }

  // Zeros where the row goes through no layer.
  void WidenToModel(ExpertLayers layers, Row& row) const {
    const TraceInfo& info = trace_->info();
    const auto widen = [](auto& values, size_t front, size_t all) {
      values.insert(values.begin(), front, {});
      values.resize(all);
    };
    const size_t begin = layers.begin;
    const size_t all = info.shape().n_layer;
    const size_t k = info.shape().n_used;
    const size_t ahead = info.predicted_rows_before(begin) * k;
    widen(row.experts, begin * k, all * k);
    widen(row.weights, begin * k, all * k);
    widen(row.predicted, ahead, info.predicted_rows() * k);
    widen(row.predicted_weights, ahead, info.predicted_rows() * k);
    widen(row.candidates.experts, begin * info.candidates(), all * info.candidates());
    widen(row.candidates.scores, begin * info.candidates(), all * info.candidates());
    widen(row.candidates.raw, begin * info.candidates(), all * info.candidates());
    widen(row.candidates.ranges, begin, all);
  }

  void Add(const Row& row, size_t at, const LittlePass& little, bool is_source = false) {
    const Status added = trace_->Add({.phase = row.phase,
                                      .starts_sequence = at == 0 && std::exchange(starts_, false),
                                      .joins_step = at > 0,
                                      .is_source = is_source,
                                      .experts = row.experts,
                                      .weights = row.weights,
                                      .predicted = row.predicted,
                                      .predicted_weights = row.predicted_weights,
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
    kept_.predicted_weights.clear();
    for (size_t i = 0; i < info.predicted_rows(); ++i) {
      kept_.predicted.append_range(std::span(little.experts).first(k));
      kept_.predicted_weights.append_range(std::vector<float>(k));
    }
    return kept_;
  }

  std::unique_ptr<Engine> engine_;
  NativeEngine* native_ = nullptr;
  std::function<void()> finish_reads_;
  std::optional<Trace> trace_;
  std::vector<std::string> did_;
  std::vector<Row> rows_;
  std::vector<Row> little_rows_;
  std::vector<float> confidences_;
  Row kept_;
  bool starts_ = true;
};

inline EngineOptions OptionsFor(const std::string& policy, const std::string& predictor,
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

inline std::vector<uint64_t> SlotsOf(const Engine& engine) {
  std::vector<uint64_t> slots;
  for (const SlotContents& pool : engine.slot_contents()) slots.push_back(pool.slots);
  return slots;
}

inline void ExpectSameLines(const std::vector<std::string>& did,
                            const std::vector<std::string>& simulated) {
  const auto [one, other] = std::ranges::mismatch(did, simulated);
  EXPECT_TRUE(one == did.end() && other == simulated.end())
      << "request " << one - did.begin() << ": " << (one == did.end() ? "none" : *one) << ", but "
      << (other == simulated.end() ? "none" : *other) << " in the simulator";
}

inline ReplayResult ExpectSame(const Recorded& recorded, ReplayOptions options) {
  std::vector<std::string> simulated;
  options.observer = [&](ExpertKey key, Use use, const Placement& placed) {
    simulated.push_back(Line(key, use, placed));
  };
  const auto result = Replay(recorded.trace(), options);
  EXPECT_TRUE(result) << result.error().message;
  ExpectSameLines(recorded.did(), simulated);
  return result.value_or(ReplayResult{});
}

inline void ExpectSame(const Recorded& recorded, const std::string& policy,
                       const std::string& predictor, uint64_t slots) {
  ExpectSame(
      recorded,
      {.slots = slots, .policy = {.name = policy}, .predictor = {.name = predictor, .paths = {}}});
}

// 40 steps of 1, 2, ..., `most`, 1, ... sequences.
inline void DecodeTogether(Engine& engine, size_t most) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < most; ++i) sequences.push_back(engine.NewSequence());
  for (uint32_t step = 0; step < 40; ++step) {
    Batch batch;
    const std::vector<Token> tokens = SeededTokens(most, engine.facts().n_vocab, step);
    for (size_t i = 0; i < 1 + step % most; ++i) {
      batch.rows.push_back(
          {.sequence = sequences[i].id(), .position = sequences[i].position(), .token = tokens[i]});
    }
    const auto done = engine.Step(batch);
    ASSERT_TRUE(done) << done.error().message;
  }
}

}  // namespace moestro
