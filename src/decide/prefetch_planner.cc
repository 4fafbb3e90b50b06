// SPDX-License-Identifier: MIT
#include "decide/prefetch_planner.h"

#include <algorithm>
#include <utility>

namespace moestro {

void PrefetchPlanner::Cell::Learn(bool was_right) {
  constexpr double kKeep = 0.995;  // half of the experience is from the last 140 guesses
  seen = seen * kKeep + 1.0;
  right = right * kKeep + (was_right ? 1.0 : 0.0);
}

PrefetchPlanner::PrefetchPlanner(std::unique_ptr<Predictor> predictor, const PredictorShape& shape,
                                 PrefetchLimits limits, Presence is_present)
    : predictor_(std::move(predictor)),
      shape_(shape),
      limits_(limits),
      is_present_(std::move(is_present)),
      guesses_(size_t{shape.layers} * shape.depth),
      cells_(size_t{shape.depth} * shape.used),
      scores_(shape.depth) {
  predictor_->Reset(shape_);
}

void PrefetchPlanner::Observe(const Predictor::Seen& seen) {
  Score(seen);
  predictor_->Observe(seen);
  layer_ = seen.layer.value;
  for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.layers; ++d) {
    std::vector<Guess>& about = guesses(layer_ + d, d);
    about.clear();
    const LayerId target{static_cast<uint16_t>(layer_ + d)};
    for (const ExpertId expert : predictor_->Predict(d)) {
      about.push_back(
          {.expert = expert, .is_present = is_present_({.layer = target, .expert = expert})});
    }
  }
}

void PrefetchPlanner::Score(const Predictor::Seen& seen) {
  for (uint32_t d = 1; d <= shape_.depth && d <= seen.layer.value; ++d) {
    std::vector<Guess>& about = guesses(seen.layer.value, d);
    if (about.empty()) continue;
    PredictionScore& score = scores_[d - 1];
    score.asked += seen.chosen.size();
    for (size_t rank = 0; rank < about.size(); ++rank) {
      const bool was_right =
          std::ranges::find(seen.chosen, about[rank].expert) != seen.chosen.end();
      ++score.predicted;
      score.right += was_right;
      if (about[rank].is_present) continue;
      ++score.absent;
      score.absent_right += was_right;
      cell(d, rank).Learn(was_right);
    }
    about.clear();
  }
}

std::span<const PrefetchWish> PrefetchPlanner::Wishes() {
  wishes_.clear();
  bool fetches = false;
  for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.layers && !fetches; ++d) {
    const LayerId target{static_cast<uint16_t>(layer_ + d)};
    const std::vector<Guess>& about = guesses(layer_ + d, d);
    for (size_t rank = 0; rank < about.size(); ++rank) {
      const bool is_worth_it = cell(d, rank).precision() >= limits_.least_precision;
      if (!about[rank].is_present && !is_worth_it) continue;
      fetches = fetches || !about[rank].is_present;
      wishes_.push_back({.key = {.layer = target, .expert = about[rank].expert},
                         .is_present = about[rank].is_present});
    }
  }
  return wishes_;
}

}  // namespace moestro
