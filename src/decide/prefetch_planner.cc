// SPDX-License-Identifier: MIT
#include "decide/prefetch_planner.h"

#include <algorithm>
#include <utility>

namespace moestro {

void PrefetchPlanner::Cell::Learn(bool was_right) {
  constexpr double kKeep = 0.995;  // half of the experience is from the last 140 predictions
  seen = seen * kKeep + 1.0;
  right = right * kKeep + (was_right ? 1.0 : 0.0);
}

PrefetchPlanner::PrefetchPlanner(std::unique_ptr<Predictor> predictor, const PredictorShape& shape,
                                 PrefetchLimits limits, ExpertPresence is_present)
    : predictor_(std::move(predictor)),
      shape_(shape),
      limits_(std::move(limits)),
      control_(shape.moe.n_layer, static_cast<double>(limits_.reads_at_device) / kMatrices,
               limits_.is_fixed),
      is_present_(std::move(is_present)),
      predictions_(size_t{shape.moe.n_layer} * shape.depth),
      cells_(size_t{shape.depth} * shape.moe.n_used),
      scores_(shape.depth),
      held_(shape.moe.n_layer),
      n_held_(limits_.slots.size()) {
  predictor_->Reset(shape_);
}

void PrefetchPlanner::Observe(const Predictor::Seen& seen, const CopyChoice& copy_of) {
  rows_ = seen.rows;
  Score(seen);
  predictor_->Observe(seen);
  layer_ = seen.layer.value;
  for (const ExpertKey key : held_[layer_]) --n_held_[limits_.pool_of(key)];
  held_[layer_].clear();
  for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.moe.n_layer; ++d) {
    std::vector<Prediction>& about = predictions(layer_ + d, d);
    about.clear();
    const LayerId target{static_cast<uint16_t>(layer_ + d)};
    for (const ExpertId expert : predictor_->Predict(d)) {
      const auto rank = std::min<size_t>(about.size() / rows_, shape_.moe.n_used - 1);
      const std::optional<CopyId> copy = copy_of(target, expert, static_cast<uint32_t>(rank));
      const ExpertKey key{.layer = target, .expert = expert, .copy = copy.value_or(CopyId{0})};
      about.push_back(
          {.key = key, .is_left_out = !copy.has_value(), .is_present = is_present_(key)});
    }
  }
}

void PrefetchPlanner::Score(const Predictor::Seen& seen) {
  const uint64_t asked = CountDistinct(seen.chosen);
  for (uint32_t d = 1; d <= shape_.depth && d <= seen.layer.value; ++d) {
    std::vector<Prediction>& about = predictions(seen.layer.value, d);
    if (about.empty()) continue;
    PredictionScore& score = scores_[d - 1];
    score.asked += asked;
    for (size_t i = 0; i < about.size(); ++i) {
      const bool was_right = std::ranges::contains(seen.chosen, about[i].key.expert);
      ++score.predicted;
      score.right += was_right;
      if (about[i].is_present || about[i].is_left_out) continue;
      ++score.absent;
      score.absent_right += was_right;
      right_ += was_right && is_worth_fetching(d, i);
      cell(d, i).Learn(was_right);
    }
    about.clear();
  }
}

uint64_t PrefetchPlanner::CountDistinct(std::span<const ExpertId> experts) {
  if (experts.size() <= shape_.moe.n_used) return experts.size();  // one row repeats none
  is_counted_.assign(shape_.moe.n_expert, false);
  for (const ExpertId expert : experts) is_counted_[expert.value] = true;
  return static_cast<uint64_t>(std::ranges::count(is_counted_, true));
}

void PrefetchPlanner::StepDone(const StepCost& cost) {
  control_.StepDone(cost, static_cast<double>(std::exchange(right_, 0)));
}

bool PrefetchPlanner::is_worth_fetching(uint32_t distance, size_t i) {
  return cell(distance, i).precision() >= control_.least_precision();
}

std::span<const PrefetchRequest> PrefetchPlanner::Requests(size_t unfinished) {
  requests_.clear();
  const size_t before = unfinished;
  for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.moe.n_layer; ++d) {
    RequestFor(d, unfinished);
    if (unfinished > before) break;
  }
  return requests_;
}

void PrefetchPlanner::RequestFor(uint32_t distance, size_t& unfinished) {
  const size_t target = layer_ + distance;
  const std::vector<Prediction>& about = predictions(target, distance);
  const uint64_t own = std::min<uint64_t>(shape_.moe.n_expert, uint64_t{shape_.moe.n_used} * rows_);
  for (size_t i = 0; i < about.size(); ++i) {
    const Prediction& one = about[i];
    const uint32_t pool = limits_.pool_of(one.key);
    if (n_held_[pool] >= limits_.most_held(pool, own)) continue;
    if (one.is_left_out || std::ranges::contains(held_[target], one.key)) continue;
    if (!one.is_present) {
      const bool is_worth_it = is_worth_fetching(distance, i);
      if (!is_worth_it || unfinished >= limits_.most_unfinished) continue;
      ++unfinished;
    }
    requests_.push_back({.key = one.key, .is_present = one.is_present});
    held_[target].push_back(one.key);
    ++n_held_[pool];
  }
}

void PrefetchPlanner::Clear() {
  for (std::vector<ExpertKey>& layer : held_) layer.clear();
  std::ranges::fill(n_held_, 0);
}

}  // namespace moestro
