// SPDX-License-Identifier: MIT
#include "sim/replay.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "core/ids.h"
#include "decide/predictor.h"
#include "sim/belady.h"
#include "sim/machine.h"
#include "sim/oracle.h"

namespace moestro {
namespace {

Machine::Speeds SpeedsOf(const ReplayOptions& options, const TraceInfo& info, uint64_t bytes) {
  const double expert_seconds = options.compute_seconds * options.expert_share;
  const double read =
      options.bandwidth > 0.0 ? static_cast<double>(bytes) / options.bandwidth : 0.0;
  return {.dense = (options.compute_seconds - expert_seconds) / info.n_layer,
          .expert = expert_seconds / info.n_layer / info.n_used,
          .part = read / kMatrices};
}

// An expert that was asked for before its router did. Pinned until then.
struct Guess {
  ExpertKey key;
  SlotId slot;
  bool is_ready = true;
  size_t parts_left = 0;  // not handed to the disk
  double since = 0.0;     // when it was asked for
  double arrives = 0.0;   // the last part handed out
};

class Player {
 public:
  Player(const Trace& trace, SlotTable table, const ReplayOptions& options, uint64_t expert_bytes)
      : trace_(trace),
        info_(trace.info()),
        options_(options),
        table_(std::move(table)),
        expert_bytes_(expert_bytes),
        machine_(SpeedsOf(options, trace.info(), expert_bytes)),
        chunk_(std::max<size_t>(options.prefill_chunk, 1)) {
    table_.SetObserver(options.observer);
  }

  ReplayResult Play(std::unique_ptr<Predictor> predictor) {
    const PredictorShape shape{
        .layers = info_.n_layer, .experts = info_.n_expert, .used = info_.n_used, .depth = depth()};
    const std::array<uint64_t, 1> slots = {table_.slots()};
    PrefetchPlanner planner(std::move(predictor), shape,
                            LimitsFor(slots, {}, info_.n_used, Machine::kInFlight),
                            [this](ExpertKey key) { return table_.contains(key); });
    planner_ = &planner;
    for (size_t t = 0; t < trace_.tokens();) {
      if (t == 0 || trace_.starts_sequence(t)) BeginSequence();
      if (trace_.phase(t) == Phase::kPrefill) {
        t += Prefill(t);
      } else {
        Decode(t);
        ++t;
      }
    }
    result_.predictions.assign(planner.scores().begin(), planner.scores().end());
    for (size_t i = 0; i < uncounted_.size(); ++i) {
      result_.predictions[i] = result_.predictions[i] - uncounted_[i];
    }
    return result_;
  }

 private:
  uint32_t depth() const {
    const uint32_t wanted = options_.depth > 0 ? options_.depth : std::max(info_.depth, 1U);
    return std::clamp(wanted, 1U, std::max(info_.n_layer - 1, 1U));
  }
  void BeginSequence() {
    table_.BeginSequence();
    planner_->BeginSequence();
  }

  // The tokens of one chunk: what is left of this prefill, at most chunk_.
  size_t Prefill(size_t first) {
    size_t n = 1;
    while (n < chunk_ && first + n < trace_.tokens() && !trace_.starts_sequence(first + n) &&
           trace_.phase(first + n) == Phase::kPrefill) {
      ++n;
    }
    for (uint32_t l = 0; l < info_.n_layer; ++l) {
      std::vector<bool> is_read(info_.n_expert);
      for (size_t t = first; t < first + n; ++t) {
        for (const ExpertId expert : trace_.experts(t, l)) {
          if (is_read[expert.value]) continue;
          is_read[expert.value] = true;
          Finish(*table_.Request(Key(l, expert), Use::kPrefill));
        }
      }
    }
    return n;
  }

  void Decode(size_t t) {
    const double before = machine_.now();
    const double waited = machine_.waited();
    const TableStats stats = table_.stats();
    const uint64_t parts = machine_.parts_read();
    look_ahead_ = planner_->look_ahead();
    TokenCost cost;
    for (uint32_t l = 0; l < info_.n_layer; ++l) DecodeLayer(t, l, cost);
    CHECK(guesses_.empty());
    const TableStats& now = table_.stats();
    cost.seconds = machine_.now() - before;
    planner_->TokenDone(cost);
    if (t < options_.count_from) {
      uncounted_.assign(planner_->scores().begin(), planner_->scores().end());
      return;
    }
    ++result_.tokens;
    result_.requests += now.requests - stats.requests;
    result_.hits += now.hits - stats.hits;
    result_.misses += now.misses + now.late - stats.misses - stats.late;
    result_.late += now.late - stats.late;
    result_.evictions += now.evictions - stats.evictions;
    result_.guesses += now.guesses - stats.guesses;
    result_.good_guesses += now.good_guesses - stats.good_guesses;
    result_.bytes += (machine_.parts_read() - parts) * expert_bytes_ / kMatrices;
    result_.seconds += machine_.now() - before;
    const uint64_t needed = now.misses + now.good_guesses - stats.misses - stats.good_guesses;
    result_.bound_seconds +=
        std::max(options_.compute_seconds, machine_.SecondsToRead(needed * kMatrices));
    result_.stall_seconds += machine_.waited() - waited;
  }

  void DecodeLayer(size_t t, uint32_t layer, TokenCost& cost) {
    const auto chosen = trace_.experts(t, layer);
    machine_.ComputeDense();
    table_.BeginLayer(LayerId{static_cast<uint16_t>(layer)});
    RouterSpoke(t, layer);
    std::vector<ExpertKey> keys;
    for (const ExpertId expert : chosen) keys.push_back(Key(layer, expert));
    std::ranges::stable_partition(keys, [this](const ExpertKey& k) { return table_.contains(k); });
    std::vector<Placement> placements;
    std::vector<double> arrivals;
    for (const ExpertKey& key : keys) {
      const std::optional<Placement> placed = table_.Request(key, Use::kDecode);
      CHECK(placed.has_value());
      placements.push_back(*placed);
      arrivals.push_back(ArrivalOf(key, *placed));
    }
    EndGuesses(layer);
    LookAhead();
    std::ranges::sort(arrivals);
    cost.demand_seconds += std::max(0.0, arrivals.back() - machine_.now());
    cost.demand_reads += static_cast<uint64_t>(
        std::ranges::count_if(arrivals, [this](double a) { return a > machine_.now(); }));
    for (const double arrival : arrivals) machine_.ComputeExpert(arrival);
    for (const Placement& placed : placements) Finish(placed);
    ReadGuesses();
  }

  // What was guessed of this layer is there, late, or wrong and dropped.
  void RouterSpoke(size_t t, uint32_t layer) {
    const auto chosen = trace_.experts(t, layer);
    std::erase_if(guesses_, [&](Guess& guess) {
      if (guess.key.layer.value != layer) return false;
      const bool is_read = guess.parts_left == 0;
      const bool is_wrong = std::ranges::find(chosen, guess.key.expert) == chosen.end();
      if (!guess.is_ready && is_read && (is_wrong || guess.arrives <= machine_.now())) {
        table_.Landed(guess.slot);
        guess.is_ready = true;
      }
      if (!is_wrong) return false;
      if (!is_read) table_.Failed(guess.slot);
      table_.Unpin(guess.slot);
      return true;
    });
    std::vector<ExpertId> ahead;
    for (uint32_t d = 1; d <= look_ahead_; ++d) ahead.append_range(trace_.predicted(t, layer, d));
    planner_->Observe(
        {.layer = LayerId{static_cast<uint16_t>(layer)}, .chosen = chosen, .ahead = ahead});
    planner_->ForEachPrediction([this](LayerId later, std::span<const ExpertId> experts) {
      table_.Predict(later, experts);
    });
  }

  // When an expert that has just been asked for is there.
  double ArrivalOf(const ExpertKey& key, const Placement& placed) {
    if (placed.was == Placement::Was::kReady) return 0.0;
    size_t parts = kMatrices;
    double arrives = 0.0;
    if (placed.was == Placement::Was::kLoading) {
      const auto guess = std::ranges::find(guesses_, key, &Guess::key);
      CHECK(guess != guesses_.end());
      parts = std::exchange(guess->parts_left, 0);
      arrives = guess->arrives;
    }
    for (; parts > 0; --parts) arrives = machine_.Read();
    return arrives;
  }

  void EndGuesses(uint32_t layer) {
    std::erase_if(guesses_, [&](const Guess& guess) {
      if (guess.key.layer.value != layer) return false;
      if (!guess.is_ready) table_.Landed(guess.slot);
      table_.Unpin(guess.slot);
      return true;
    });
  }

  void LookAhead() {
    if (!options_.fetches) return;
    const auto unfinished = std::ranges::count_if(guesses_, [this](const Guess& g) {
      return g.parts_left > 0 || g.arrives > machine_.now();
    });
    for (const PrefetchWish& wish : planner_->Wishes(static_cast<size_t>(unfinished))) {
      const std::optional<Placement> placed = table_.Request(wish.key, Use::kGuess);
      if (!placed) continue;
      const bool is_absent = placed->was == Placement::Was::kAbsent;
      guesses_.push_back({.key = wish.key,
                          .slot = placed->slot,
                          .is_ready = !is_absent,
                          .parts_left = is_absent ? kMatrices : 0,
                          .since = machine_.now()});
    }
  }

  // What the disk did for guesses since it had nothing urgent to do.
  void ReadGuesses() {
    for (Guess& guess : guesses_) {
      while (guess.parts_left > 0 && machine_.has_room()) {
        guess.arrives = machine_.ReadWaiting(guess.since);
        --guess.parts_left;
      }
    }
  }

  void Finish(const Placement& placed) {
    if (placed.was == Placement::Was::kAbsent) table_.Landed(placed.slot);
    table_.Unpin(placed.slot);
  }
  static ExpertKey Key(uint32_t layer, ExpertId expert) {
    return {.layer = LayerId{static_cast<uint16_t>(layer)}, .expert = expert};
  }

  const Trace& trace_;
  const TraceInfo& info_;
  const ReplayOptions& options_;
  SlotTable table_;
  uint64_t expert_bytes_;
  Machine machine_;
  size_t chunk_;
  PrefetchPlanner* planner_ = nullptr;
  std::vector<Guess> guesses_;  // oldest first
  std::vector<PredictionScore> uncounted_;
  uint32_t look_ahead_ = 0;  // layers whose routers are evaluated in this token
  ReplayResult result_;
};

}  // namespace

Result<ReplayResult> Replay(const Trace& trace, const ReplayOptions& options) {
  const TraceInfo& info = trace.info();
  if (options.slots < info.n_used) {
    return Fail(Errc::kUsage, "{} slots do not hold the {} experts that a token uses in one layer",
                options.slots, info.n_used);
  }
  std::unique_ptr<Policy> policy;
  if (options.policy.name == "belady") {
    policy = std::make_unique<BeladyPolicy>(trace);
  } else {
    TRY(policy, MakePolicy(options.policy));
  }
  std::unique_ptr<Predictor> predictor;
  if (options.predictor.name == "oracle") {
    predictor = std::make_unique<OraclePredictor>(trace);
  } else {
    TRY(predictor, MakePredictor(options.predictor));
  }
  const bool needs_more = options.depth > info.depth || info.depth == 0;
  if (predictor->wants_ahead() && needs_more) {
    return Fail(Errc::kUsage,
                "the trace predicts {} layers ahead, '{}' needs {}: record it with 'moestro trace "
                "--prefetch {}'",
                info.depth, options.predictor.name, std::max(options.depth, 1U),
                std::max(options.depth, 1U));
  }
  const PolicyShape shape{.slots = options.slots, .layers = info.n_layer, .experts = info.n_expert};
  const uint64_t bytes = options.expert_bytes > 0 ? options.expert_bytes : info.expert_bytes;
  return Player(trace, SlotTable(shape, std::move(policy)), options, bytes)
      .Play(std::move(predictor));
}

}  // namespace moestro
