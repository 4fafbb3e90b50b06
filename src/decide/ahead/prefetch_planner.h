// SPDX-License-Identifier: MIT
// Chooses experts to read before their router chooses them. Pure; LayerProtocol drives it.
//
// The planner keeps score: for every prediction of an absent expert it counts whether the router
// chose that expert, by distance and by rank (the first choice is right more often than the
// eighth), whether or not the expert was fetched. Only predictions of ranks that are right often
// enough are fetched; the threshold depends on the disk (PrefetchControl). Source: HOBBIT's
// adaptive prefetch (walk on while every predicted expert is present).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/counters.h"
#include "core/ids.h"
#include "decide/ahead/predictors.h"
#include "decide/layer/layer_planner.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// Decides whether prefetch pays and how much of it, from recent times of the disk. Pure.
//
// The disk is idle for some time between the last read that a layer waits for and the next layer's
// router. The part of a prefetch's reads that fits into that time is won if the prediction is
// right. A read under way cannot be called back, so the rest delays the next layer's own reads, and
// is lost if the prediction is wrong. A prefetch pays if p * won > (1 - p) * lost. For the same
// reason no more experts are on their way at a time than fit into the idle time.

// Costs of a decode step. Seconds may be measured or simulated.
struct StepCost {
  double seconds = 0.0;
  double demand_seconds = 0.0;      // while a read was under way that a layer waited for
  uint64_t demand_reads = 0;        // experts read in demand_seconds
  double look_ahead_seconds = 0.0;  // of evaluating later layers' routers; 0: not done
  double dense_seconds = 0.0;       // of the dense parts, in which no read is handed out
};

// Experts that may be on their way ahead of time at once: as many as are read in `idle` seconds at
// `read` seconds an expert, the last of them begun within that time; from 1 to kMostAhead. nullopt:
// `idle` is negative, `read` is not above zero, or either is not a number.
inline constexpr size_t kMostAhead = 64;
std::optional<size_t> MostAhead(double idle, double read);

// A mean of late that follows at once when its values change for good: a disk that is hot and slows
// itself down, a processor that does. Three values in a row, all above or all below by half,
// replace the mean; single ones move it by a tenth.
class RecentMean {
 public:
  void Add(double value);
  double value() const { return value_; }

 private:
  double value_ = 0.0;  // 0: none yet
  double odd_sum_ = 0.0;
  int odd_ = 0;  // values in a row that are far off: above zero if above
};

class PrefetchControl {
 public:
  // `layers` with experts of a decode step, at least one; `committed`: the most experts' worth of
  // reads under way that cannot be called back. `is_fixed`: costs of steps are ignored, so that
  // predictions depend on tokens alone.
  PrefetchControl(uint32_t layers, double committed, bool is_fixed = false)
      : layers_(layers), most_committed_(committed), is_fixed_(is_fixed) {}

  // `right`: right predictions of absent experts among those good enough to fetch.
  void StepDone(const StepCost& cost, double right);

  // Predictions that are right less often are not worth fetching; above 1: none is.
  double least_precision() const;
  // Experts that may be on their way ahead of time at once; nullopt: not known, or `is_fixed`.
  std::optional<size_t> most_ahead() const;
  // Experts' worth of reads that the disk does while a layer's dense part is computed; 0: not
  // known.
  double beside_dense() const;
  // False: evaluating routers ahead of time costs more than fetching their choices gains. Once in a
  // while the result is true nonetheless, to measure whether that has changed.
  bool is_on() const { return is_fixed_ || pays_ || step_ % kTryEvery == 0; }

 private:
  static constexpr uint64_t kTryEvery = 16;

  double committed() const;
  double won() const;
  double lost() const;

  uint32_t layers_;
  double most_committed_;
  bool is_fixed_;
  RecentMean idle_;      // seconds of a layer in which no layer waits for the disk
  RecentMean read_;      // seconds to read an expert; 0: none was read yet
  RecentMean dense_;     // seconds of a layer's dense part
  RecentMean cost_;      // of looking ahead, seconds per step
  double gained_ = 0.0;  // seconds per step
  uint64_t step_ = 0;
  bool pays_ = true;
};

struct PrefetchRequest {
  ExpertKey key;
  bool is_present = false;  // in memory or on its way: the request only pins it
};

// Score of the predictions of one distance. An absent expert is one that was not in memory when it
// was predicted.
struct PredictionScore {
  uint64_t asked = 0;      // experts that routers chose
  uint64_t predicted = 0;  // experts that were predicted for them
  uint64_t right = 0;      // predicted experts that the router chose
  uint64_t absent = 0;     // predicted and absent
  uint64_t absent_right = 0;

  double recall() const { return Share(right, asked); }
  double precision() const { return Share(right, predicted); }
  double absent_precision() const { return Share(absent_right, absent); }

  static constexpr void Visit(auto&& visit) {
    using S = PredictionScore;
    visit(&S::asked, CounterText{});
    visit(&S::predicted, CounterText{});
    visit(&S::right, CounterText{});
    visit(&S::absent, CounterText{});
    visit(&S::absent_right, CounterText{});
    visit(&S::recall, CounterText{.json = "recall", .sim = "recall"});
    visit(&S::precision, CounterText{.json = "precision"});
    visit(&S::absent_precision, CounterText{.json = "absent_precision"});
  }
};
static_assert(CountsAllOf<PredictionScore>());

struct PrefetchLimits {
  // [pool]: slots that prefetched experts share with the layers' own.
  std::vector<uint64_t> slots = {0};
  std::function<uint32_t(ExpertKey)> pool_of = [](ExpertKey) { return 0U; };
  // Prefetches on their way at a time, until PrefetchControl has a number from the disk's speed.
  size_t most_unfinished = 2;
  size_t most_foreseen = 4;  // fewest prefetches on their way in a step that was foreseen
  // Reads of one matrix each for prefetches at the device, which cannot be called back.
  unsigned reads_at_device = 4;
  double expert_bytes = 0.0;  // of the mean expert; 0: nothing is handed out before dense parts
  bool is_fixed = false;      // see PrefetchControl
};

// The copy of an expert that a layer will request, if its router makes the expert the rank-th
// choice of a row; nullopt: the expert would be left out.
using CopyChoice =
    std::function<std::optional<CopyId>(ExpertLayerId layer, ExpertId expert, uint32_t rank)>;

class PrefetchPlanner {
 public:
  PrefetchPlanner(std::unique_ptr<Predictor> predictor, const PredictorShape& shape,
                  PrefetchLimits limits, ExpertPresence is_present);

  void BeginSequence() { predictor_->SequenceBegun(); }
  // Number of layers ahead whose routers the caller should evaluate in the decode step that begins.
  uint32_t look_ahead() const {
    const bool is_wanted = predictor_->wants_ahead() && control_.is_on() && !is_foreseen();
    return is_wanted ? shape_.depth : 0;
  }
  // Whether the predictor uses the choices of routers that are evaluated ahead.
  bool wants_ahead() const { return predictor_->wants_ahead(); }
  // Takes the experts that every layer of the next step will probably need: [layer][row][K], in
  // router order. In that step they replace the predictor, whose reach is `depth` layers.
  // Requests() may be called at once.
  void Foresee(std::span<const std::vector<ExpertId>> by_layer, uint32_t rows,
               const CopyChoice& copy_of);
  // Bytes that may be handed to the disk before a layer's dense part, in which no read is handed
  // out: as many as are read meanwhile, so that they are done when the layer's own reads come.
  uint64_t bytes_beside_dense() const {
    return static_cast<uint64_t>(control_.beside_dense() * limits_.expert_bytes);
  }
  // Call after a decode step's last layer.
  void StepDone(const StepCost& cost);
  // A layer's router has chosen. Scores the predictions for it and predicts later layers. All
  // prefetches for the layer end. `step_rows`: rows of the step, those of prompts included; 0:
  // `seen.rows`.
  void Observe(const Predictor::Seen& seen, const CopyChoice& copy_of = OwnCopy,
               uint64_t step_rows = 0);
  // Whether an expert beside all prefetches may keep a slot of its pool.
  bool may_upgrade(ExpertKey key) const { return RoomIn(limits_.pool_of(key)).may_upgrade(); }
  // After Observe(): calls visit(layer, experts) with the predicted experts of each layer within
  // `depth`.
  template <class Visit>
  void ForEachPrediction(Visit visit) {
    for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.moe.n_layer; ++d) {
      predicted_.clear();
      const std::vector<Prediction>& about =
          is_foreseen() ? foreseen_[layer_ + d] : predictions(layer_ + d, d);
      for (const Prediction& one : about) predicted_.push_back(one.key.expert);
      if (!predicted_.empty()) visit(ExpertLayerId{static_cast<uint16_t>(layer_ + d)}, predicted_);
    }
  }
  // After Observe(): experts that the next layers will need and that were not requested before, the
  // nearest layer first, ending with the first layer that has an expert to fetch; in a step that
  // was foreseen, as many layers as have room. `unfinished`: earlier prefetches that are not
  // complete. The span lives until the next call.
  std::span<const PrefetchRequest> Requests(size_t unfinished);
  // Ends all prefetches: the step ended early.
  void Clear();
  // While paused, Requests() returns nothing: for measurements without prefetch.
  void Pause(bool is_paused) { is_paused_ = is_paused; }

  // Scores by distance: [0] is the next layer.
  std::span<const PredictionScore> scores() const { return scores_; }
  // Score of the foreseen experts.
  const PredictionScore& foreseen_score() const { return foreseen_score_; }

 private:
  struct Prediction {
    ExpertKey key;
    bool is_left_out = false;  // the layer would request no copy if the prediction
    bool is_present = false;
    bool is_settled = false;  // a foreseen expert that was requested, or is not worth a request
  };
  static std::optional<CopyId> OwnCopy(ExpertLayerId, ExpertId, uint32_t) { return CopyId{0}; }
  bool is_foreseen() const { return !foreseen_.empty(); }
  // Experience with absent experts, decayed.
  struct Cell {
    double seen = 2.0;
    double right = 1.0;
    double precision() const { return right / seen; }
    void Learn(bool was_right);
  };

  std::vector<Prediction>& predictions(size_t layer, uint32_t distance) {
    return predictions_[layer * shape_.depth + distance - 1];
  }
  // Rank of the i-th prediction; several rows have that many first choices, second choices, and so
  // on.
  size_t rank_of(size_t i) const { return std::min<size_t>(i / rows_, shape_.moe.n_used - 1); }
  Cell& cell(uint32_t distance, size_t i) {
    return cells_[(distance - 1) * shape_.moe.n_used + rank_of(i)];
  }
  bool is_worth_fetching(const Cell& cell) const {
    return cell.precision() >= control_.least_precision();
  }
  size_t most_ahead() const { return control_.most_ahead().value_or(limits_.most_unfinished); }
  void Predict(size_t most, const CopyChoice& copy_of);
  Prediction Predicted(ExpertLayerId layer, ExpertId expert, size_t i,
                       const CopyChoice& copy_of) const;
  void Score(const Predictor::Seen& seen);
  void ScoreForeseen(const Predictor::Seen& seen);
  uint64_t CountDistinct(std::span<const ExpertId> experts);
  PoolRoom RoomIn(uint32_t pool) const;
  void RequestFor(uint32_t distance, size_t& unfinished);
  void RequestForeseen(size_t unfinished);
  void Request(const Prediction& one);

  std::unique_ptr<Predictor> predictor_;
  PredictorShape shape_;
  PrefetchLimits limits_;
  PrefetchControl control_;
  ExpertPresence is_present_;
  std::vector<std::vector<Prediction>> predictions_;  // [layer][distance - 1], best first
  std::vector<Cell> cells_;                           // [distance - 1][rank]
  std::vector<PredictionScore> scores_;               // [distance - 1]
  // Predictions of a step that was foreseen; else empty.
  std::vector<std::vector<Prediction>> foreseen_;  // [layer], best first
  size_t next_layer_ = 0;             // the first layer of foreseen_ that has not been observed
  std::vector<Cell> foreseen_cells_;  // [rank]
  PredictionScore foreseen_score_;
  ExpertUnion union_;                         // scratch
  std::vector<std::vector<ExpertKey>> held_;  // [layer]: requested
  std::vector<size_t> n_held_;                // [pool]
  std::vector<PrefetchRequest> requests_;
  std::vector<ExpertId> predicted_;  // scratch
  std::vector<bool> is_counted_;     // scratch
  size_t layer_ = 0;                 // the last observed
  uint32_t rows_ = 1;                // rows of the step that decode
  uint64_t step_rows_ = 1;           // rows of the step, those of prompts included
  bool is_paused_ = false;
  // This step's right predictions of absent experts, among those good enough to fetch.
  uint64_t right_ = 0;
};

}  // namespace moestro
