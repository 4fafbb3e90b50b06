// SPDX-License-Identifier: MIT
#include "decide/prefetch_planner.h"

#include <algorithm>
#include <utility>

namespace moestro {

PrefetchLimits LimitsFor(uint64_t slots, uint32_t used, unsigned reads_at_disk) {
  const uint64_t own = 2 * uint64_t{used};
  return {.most_held = slots > own ? static_cast<size_t>(slots - own) / 2 : 0,
          .reads_at_disk = reads_at_disk};
}

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
      control_(shape.layers, static_cast<double>(limits.reads_at_disk) / kMatrices),
      is_present_(std::move(is_present)),
      guesses_(size_t{shape.layers} * shape.depth),
      cells_(size_t{shape.depth} * shape.used),
      scores_(shape.depth),
      held_(shape.layers) {
  predictor_->Reset(shape_);
}

void PrefetchPlanner::Observe(const Predictor::Seen& seen) {
  Score(seen);
  predictor_->Observe(seen);
  layer_ = seen.layer.value;
  n_held_ -= held_[layer_].size();
  held_[layer_].clear();
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
      right_ += was_right && is_worth_fetching(d, rank);
      cell(d, rank).Learn(was_right);
    }
    about.clear();
  }
}

void PrefetchPlanner::TokenDone(const TokenCost& cost) {
  control_.TokenDone(cost, static_cast<double>(std::exchange(right_, 0)));
}

bool PrefetchPlanner::is_worth_fetching(uint32_t distance, size_t rank) {
  return cell(distance, rank).precision() >= control_.least_precision();
}

std::span<const PrefetchWish> PrefetchPlanner::Wishes(size_t unfinished) {
  wishes_.clear();
  const size_t before = unfinished;
  for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.layers; ++d) {
    WishFor(d, unfinished);
    if (unfinished > before) break;
  }
  return wishes_;
}

void PrefetchPlanner::WishFor(uint32_t distance, size_t& unfinished) {
  const size_t target = layer_ + distance;
  const std::vector<Guess>& about = guesses(target, distance);
  for (size_t rank = 0; rank < about.size() && n_held_ < limits_.most_held; ++rank) {
    const Guess& guess = about[rank];
    if (is_held(target, guess.expert)) continue;
    if (!guess.is_present) {
      const bool is_worth_it = is_worth_fetching(distance, rank);
      if (!is_worth_it || unfinished >= limits_.most_unfinished) continue;
      ++unfinished;
    }
    const LayerId layer{static_cast<uint16_t>(target)};
    wishes_.push_back(
        {.key = {.layer = layer, .expert = guess.expert}, .is_present = guess.is_present});
    held_[target].push_back(guess.expert);
    ++n_held_;
  }
}

bool PrefetchPlanner::is_held(size_t layer, ExpertId expert) const {
  return std::ranges::find(held_[layer], expert) != held_[layer].end();
}

void PrefetchPlanner::Clear() {
  for (std::vector<ExpertId>& layer : held_) layer.clear();
  n_held_ = 0;
}

}  // namespace moestro
