// SPDX-License-Identifier: MIT
// Which experts to read before their router chooses them. Pure; LayerProtocol drives it.
//
// It keeps score: of every prediction of an absent expert it learns whether the router chose that
// expert, by distance and by rank (the first choice is right more often than the eighth), whether
// or not the expert was fetched. Only predictions that are right often enough are fetched; how
// often that is depends on the disk (PrefetchControl). Source: HOBBIT's adaptive prefetch (walk on
// while everything predicted is there).
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/counters.h"
#include "base/share.h"
#include "core/ids.h"
#include "decide/ahead/predictor.h"
#include "decide/ahead/predictors/expert_union.h"
#include "decide/ahead/prefetch_control.h"
#include "decide/layer/layer_planner.h"
#include "decide/slots/pool_room.h"

namespace moestro {

struct PrefetchRequest {
  ExpertKey key;
  bool is_present = false;  // or on its way: it only has to be kept
};

// How good the predictions of one distance were. An absent expert is one that was not in memory
// when it was predicted.
struct PredictionScore {
  uint64_t asked = 0;      // experts that routers chose
  uint64_t predicted = 0;  // experts that were predicted for them
  uint64_t right = 0;      // of these, chosen
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
  // By pool of slots: slots that prefetched experts share with the layers' own.
  std::vector<uint64_t> slots = {0};
  std::function<uint32_t(ExpertKey)> pool_of = [](ExpertKey) { return 0U; };
  // Prefetches on their way at a time, until the disk's speed says how many (PrefetchControl).
  size_t most_unfinished = 2;
  size_t most_foreseen = 4;      // at least so many in a step that was foreseen
  unsigned reads_at_device = 4;  // of a matrix each, for prefetches: these cannot be called back
  double expert_bytes = 0.0;     // of the mean expert; 0: nothing is handed out before dense parts
  bool is_fixed = false;         // see PrefetchControl
};

// Which copy of an expert a layer will ask for, if its router makes it the rank-th choice of a row;
// nullopt: it would be left out.
using CopyChoice =
    std::function<std::optional<CopyId>(ExpertLayerId layer, ExpertId expert, uint32_t rank)>;

class PrefetchPlanner {
 public:
  PrefetchPlanner(std::unique_ptr<Predictor> predictor, const PredictorShape& shape,
                  PrefetchLimits limits, ExpertPresence is_present);

  void BeginSequence() { predictor_->SequenceBegun(); }
  // For how many layers ahead routers should be evaluated in the decode step that begins.
  uint32_t look_ahead() const {
    const bool is_wanted = predictor_->wants_ahead() && control_.is_on() && !is_foreseen();
    return is_wanted ? shape_.depth : 0;
  }
  // Whether it goes by what routers evaluated ahead say.
  bool wants_ahead() const { return predictor_->wants_ahead(); }
  // What every layer of the next step will probably ask for: [layer][row][K], in router order. In
  // that step it takes the place of the predictor, whose reach is `depth` layers. Requests() may
  // be called at once.
  void Foresee(std::span<const std::vector<ExpertId>> by_layer, uint32_t rows,
               const CopyChoice& copy_of);
  // Before a layer's dense part, in which nobody hands out reads: so many bytes are read meanwhile,
  // and may be at the disk. What is handed out so is done when the layer's own reads come.
  uint64_t bytes_beside_dense() const {
    return static_cast<uint64_t>(control_.beside_dense() * limits_.expert_bytes);
  }
  // After a decode step's last layer.
  void StepDone(const StepCost& cost);
  // A layer's router has chosen. Scores what was predicted of it and predicts later layers. All
  // prefetches for the layer end. `step_rows`: of the step, those of prompts included; 0: as seen.
  void Observe(const Predictor::Seen& seen, const CopyChoice& copy_of = OwnCopy,
               uint64_t step_rows = 0);
  // Whether an expert beside all prefetches may keep a slot of its pool.
  bool may_upgrade(ExpertKey key) const { return RoomIn(limits_.pool_of(key)).may_upgrade(); }
  // After Observe(): visit(layer, experts) for what it predicted of each layer within `depth`.
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
  // After Observe(): what the next layers will need and was not requested before, the nearest layer
  // first, ending with the first of which something is to be fetched; in a step that was foreseen,
  // as many layers as there is room for. `unfinished`: earlier prefetches that are not complete.
  // The span lives until the next call.
  std::span<const PrefetchRequest> Requests(size_t unfinished);
  // Ends all prefetches: the step ended early.
  void Clear();
  // Requests() says nothing, until it is told otherwise: for measurements of what is missing.
  void Pause(bool is_paused) { is_paused_ = is_paused; }

  // By distance: [0] is the next layer.
  std::span<const PredictionScore> scores() const { return scores_; }
  // Of what was foreseen.
  const PredictionScore& foreseen_score() const { return foreseen_score_; }

 private:
  struct Prediction {
    ExpertKey key;
    bool is_left_out = false;  // if it comes true, no layer will ask for a copy
    bool is_present = false;
    bool is_settled = false;  // of what was foreseen: requested, or not worth it
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
  // Of the i-th prediction; several rows have that many first choices, second choices, and so on.
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
  // Of a step that was foreseen; else empty.
  std::vector<std::vector<Prediction>> foreseen_;  // [layer], best first
  size_t next_layer_ = 0;                          // of them, the first that has not been observed
  std::vector<Cell> foreseen_cells_;               // [rank]
  PredictionScore foreseen_score_;
  ExpertUnion union_;                         // scratch
  std::vector<std::vector<ExpertKey>> held_;  // [layer]: requested
  std::vector<size_t> n_held_;                // [pool]
  std::vector<PrefetchRequest> requests_;
  std::vector<ExpertId> predicted_;  // scratch
  std::vector<bool> is_counted_;     // scratch
  size_t layer_ = 0;                 // the last observed
  uint32_t rows_ = 1;                // of the step, that decode
  uint64_t step_rows_ = 1;           // all of them
  bool is_paused_ = false;
  uint64_t right_ = 0;  // of this step's predictions of absent experts that were good enough
};

}  // namespace moestro
