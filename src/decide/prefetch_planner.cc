// SPDX-License-Identifier: MIT
#include "decide/prefetch_planner.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace moestro {

PrefetchLimits LimitsFor(std::span<const uint64_t> slots, std::vector<uint32_t> pool_of,
                         uint32_t used, unsigned reads_at_disk) {
  PrefetchLimits limits{
      .most_held = {}, .pool_of = std::move(pool_of), .reads_at_disk = reads_at_disk};
  const uint64_t own = 2 * uint64_t{used};
  for (const uint64_t n : slots) {
    limits.most_held.push_back(n > own ? static_cast<size_t>(n - own) / 2 : 0);
  }
  return limits;
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
      limits_(std::move(limits)),
      control_(shape.layers, static_cast<double>(limits_.reads_at_disk) / kMatrices),
      is_present_(std::move(is_present)),
      guesses_(size_t{shape.layers} * shape.depth),
      cells_(size_t{shape.depth} * shape.used),
      scores_(shape.depth),
      held_(shape.layers),
      n_held_(limits_.most_held.size()) {
  CHECK(limits_.pool_of.empty() || limits_.pool_of.size() == shape.layers);
  predictor_->Reset(shape_);
}

void PrefetchPlanner::Observe(const Predictor::Seen& seen) {
  Score(seen);
  predictor_->Observe(seen);
  layer_ = seen.layer.value;
  n_held_[pool_of(layer_)] -= held_[layer_].size();
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
  const size_t most = limits_.most_held[pool_of(target)];
  size_t& n_held = n_held_[pool_of(target)];
  for (size_t rank = 0; rank < about.size() && n_held < most; ++rank) {
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
    ++n_held;
  }
}

bool PrefetchPlanner::is_held(size_t layer, ExpertId expert) const {
  return std::ranges::find(held_[layer], expert) != held_[layer].end();
}

void PrefetchPlanner::Clear() {
  for (std::vector<ExpertId>& layer : held_) layer.clear();
  std::ranges::fill(n_held_, 0);
}

}  // namespace moestro
