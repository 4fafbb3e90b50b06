// SPDX-License-Identifier: MIT
// Which experts to fetch before their router has asked for them. Pure; the engine and the simulator
// drive it alike.
//
// It keeps score: of every guess about an absent expert it learns whether the router chose that
// expert, by distance and by rank (the router's first guess is better than its eighth), whether or
// not the expert was fetched. Only guesses that are right often enough are fetched; how often that
// is depends on the disk (PrefetchControl).
// Source: HOBBIT's adaptive prefetch (walk on while everything predicted is there).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/ids.h"
#include "decide/predictor.h"
#include "decide/prefetch_control.h"

namespace moestro {

struct PrefetchWish {
  ExpertKey key;
  bool is_present = false;  // or under way: it only has to be kept
};

// How good the predictions of one distance were. An absent expert is one that was not in memory
// when it was predicted.
struct PredictionScore {
  uint64_t asked = 0;      // experts that routers chose
  uint64_t predicted = 0;  // experts that were predicted for them
  uint64_t right = 0;      // of these, chosen
  uint64_t absent = 0;     // predicted and absent
  uint64_t absent_right = 0;

  // Since `earlier`.
  PredictionScore operator-(const PredictionScore& earlier) const {
    return {.asked = asked - earlier.asked,
            .predicted = predicted - earlier.predicted,
            .right = right - earlier.right,
            .absent = absent - earlier.absent,
            .absent_right = absent_right - earlier.absent_right};
  }

  double recall() const { return Share(right, asked); }
  double precision() const { return Share(right, predicted); }
  double absent_precision() const { return Share(absent_right, absent); }

 private:
  static double Share(uint64_t part, uint64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  }
};

struct PrefetchLimits {
  // By pool of slots: experts kept or on their way at a time; a layer's own need room.
  std::vector<size_t> most_held = {0};
  std::vector<uint32_t> pool_of = {};  // [layer]; empty: one pool for all
  size_t most_unfinished = 2;          // guesses on their way at a time
  unsigned reads_at_disk = 4;          // of a matrix each, for guesses: these cannot be called back
};

// With `slots` by pool for experts of which a layer takes `used` at a time: its own always find
// room, and what they replace is chosen from at least half of the pool.
PrefetchLimits LimitsFor(std::span<const uint64_t> slots, std::vector<uint32_t> pool_of,
                         uint32_t used, unsigned reads_at_disk);

class PrefetchPlanner {
 public:
  using Presence = std::function<bool(ExpertKey)>;
  // `is_present`: in memory or on its way there.
  PrefetchPlanner(std::unique_ptr<Predictor> predictor, const PredictorShape& shape,
                  PrefetchLimits limits, Presence is_present);

  void BeginSequence() { predictor_->SequenceBegun(); }
  // For how many layers ahead routers should be evaluated in the token that begins.
  uint32_t look_ahead() const {
    return predictor_->wants_ahead() && control_.is_on() ? shape_.depth : 0;
  }
  // After a token's last layer.
  void TokenDone(const TokenCost& cost);
  // A layer's router has chosen. Scores what was predicted of it and predicts later layers. All
  // wishes about the layer end: right ones have become its own requests, wrong ones are dropped.
  void Observe(const Predictor::Seen& seen);
  // After Observe(): visit(layer, experts) for what it predicted of each later layer.
  template <class Visit>
  void ForEachPrediction(Visit visit) {
    for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.layers; ++d) {
      predicted_.clear();
      for (const Guess& guess : guesses(layer_ + d, d)) predicted_.push_back(guess.expert);
      if (!predicted_.empty()) visit(LayerId{static_cast<uint16_t>(layer_ + d)}, predicted_);
    }
  }
  // After Observe(): what the next layers will need and what was not wished for before, the nearest
  // layer first, ending with the first of which something is to be fetched. `unfinished`: earlier
  // wishes that are not there yet. The span lives until the next call.
  std::span<const PrefetchWish> Wishes(size_t unfinished);
  // Ends all wishes: the token ended early.
  void Clear();

  // By distance: [0] is the next layer.
  std::span<const PredictionScore> scores() const { return scores_; }

 private:
  struct Guess {
    ExpertId expert;
    bool is_present = false;
  };
  // Experience with absent experts, decayed.
  struct Cell {
    double seen = 2.0;
    double right = 1.0;
    double precision() const { return right / seen; }
    void Learn(bool was_right);
  };

  std::vector<Guess>& guesses(size_t layer, uint32_t distance) {
    return guesses_[layer * shape_.depth + distance - 1];
  }
  Cell& cell(uint32_t distance, size_t rank) { return cells_[(distance - 1) * shape_.used + rank]; }
  bool is_worth_fetching(uint32_t distance, size_t rank);
  void Score(const Predictor::Seen& seen);
  void WishFor(uint32_t distance, size_t& unfinished);
  bool is_held(size_t layer, ExpertId expert) const;
  size_t pool_of(size_t layer) const {
    return limits_.pool_of.empty() ? 0 : limits_.pool_of[layer];
  }

  std::unique_ptr<Predictor> predictor_;
  PredictorShape shape_;
  PrefetchLimits limits_;
  PrefetchControl control_;
  Presence is_present_;
  std::vector<std::vector<Guess>> guesses_;  // [layer][distance - 1], best first
  std::vector<Cell> cells_;                  // [distance - 1][rank]
  std::vector<PredictionScore> scores_;      // [distance - 1]
  std::vector<std::vector<ExpertId>> held_;  // [layer]: wished for
  std::vector<size_t> n_held_;               // [pool]
  std::vector<PrefetchWish> wishes_;
  std::vector<ExpertId> predicted_;  // scratch
  size_t layer_ = 0;                 // the last observed
  uint64_t right_ = 0;  // of this token's guesses about absent experts that were good enough
};

}  // namespace moestro
