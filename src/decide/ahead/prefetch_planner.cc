// SPDX-License-Identifier: MIT
#include "decide/ahead/prefetch_planner.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <utility>

namespace moestro {
namespace {

// Even where a wrong prefetch delays nothing it takes a slot, power and memory bandwidth. By
// simulation over disks of 0.2 to 7 GiB/s the best limit is between 0.2 and 0.4 where it matters.
constexpr double kFloor = 0.3;

// Checks averages: steps of no length leave zeros, and a clock may return anything.
bool AreTimes(double some, double read) {
  return some >= 0.0 && read > 0.0 && read <= std::numeric_limits<double>::max();  // not for NaN
}

constexpr double kSmoothing = 0.1;  // weight of a step in means

}  // namespace

void RecentMean::Add(double value) {
  constexpr double kFar = 1.5;
  constexpr int kInARow = 3;
  if (!(value_ > 0.0)) {
    value_ = value;
    return;
  }
  const int side = value > kFar * value_ ? 1 : value * kFar < value_ ? -1 : 0;
  const bool goes_on = side * odd_ > 0;
  odd_ = goes_on ? odd_ + side : side;
  odd_sum_ = goes_on ? odd_sum_ + value : value;
  if (std::abs(odd_) == kInARow) {
    value_ = odd_sum_ / kInARow;
    odd_ = 0;
  } else {
    value_ += kSmoothing * (value - value_);
  }
}

std::optional<size_t> MostAhead(double idle, double read) {
  if (!AreTimes(idle, read)) return std::nullopt;
  constexpr auto kMost = static_cast<double>(kMostAhead);
  return static_cast<size_t>(std::ceil(std::clamp(idle / read, 1.0, kMost)));
}

std::optional<size_t> PrefetchControl::most_ahead() const {
  return is_fixed_ ? std::nullopt : MostAhead(idle_.value(), read_.value());
}

double PrefetchControl::beside_dense() const {
  if (is_fixed_ || !AreTimes(dense_.value(), read_.value())) return 0.0;
  return std::min(dense_.value() / read_.value(), static_cast<double>(kMostAhead));
}

double PrefetchControl::committed() const {
  const std::optional<size_t> ahead = most_ahead();
  return ahead ? std::min(most_committed_, static_cast<double>(*ahead)) : most_committed_;
}

double PrefetchControl::won() const { return std::min(idle_.value(), committed() * read_.value()); }
double PrefetchControl::lost() const {
  return std::max(0.0, committed() * read_.value() - idle_.value());
}

double PrefetchControl::least_precision() const {
  if (is_fixed_ || read_.value() <= 0.0) return kFloor;
  if (won() <= 0.0) return 2.0;
  return std::max(kFloor, lost() / (won() + lost()));
}

void PrefetchControl::StepDone(const StepCost& cost, double right) {
  ++step_;
  idle_.Add(std::max(0.0, cost.seconds - cost.demand_seconds) / layers_);
  dense_.Add(cost.dense_seconds / layers_);
  if (cost.demand_reads > 0) {
    read_.Add(cost.demand_seconds / static_cast<double>(cost.demand_reads));
  }
  if (cost.look_ahead_seconds <= 0.0) return;
  cost_.Add(cost.look_ahead_seconds);
  // An expert that has arrived in time saves its reading, as far as that fits into idle time.
  gained_ += kSmoothing * (right * std::min(read_.value(), idle_.value()) - gained_);
  pays_ = step_ < kTryEvery || gained_ > cost_.value();
}

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
      control_(std::max(shape.moe.decode_layers().size(), 1U),
               static_cast<double>(limits_.reads_at_device) / kMatrices, limits_.is_fixed),
      is_present_(std::move(is_present)),
      predictions_(size_t{shape.moe.n_layer} * shape.depth),
      cells_(size_t{shape.depth} * shape.moe.n_used),
      scores_(shape.depth),
      foreseen_cells_(shape.moe.n_used),
      held_(shape.moe.n_layer),
      n_held_(limits_.slots.size()) {
  predictor_->Reset(shape_);
  union_.Reset(shape_.moe.n_expert);
}

void PrefetchPlanner::Foresee(std::span<const std::vector<ExpertId>> by_layer, uint32_t rows,
                              const CopyChoice& copy_of) {
  rows_ = rows;
  step_rows_ = rows;
  foreseen_.assign(by_layer.size(), {});
  // Stage: [layer][row][K] experts of the first pass -> [layer][n_used] predictions by rank.
  for (size_t l = 0; l < by_layer.size(); ++l) {
    const ExpertLayerId layer{static_cast<uint16_t>(l)};
    for (const ExpertId expert : union_.ByRank(by_layer[l], shape_.moe.n_used)) {
      foreseen_[l].push_back(Predicted(layer, expert, foreseen_[l].size(), copy_of));
    }
  }
  next_layer_ = 0;
}

void PrefetchPlanner::Observe(const Predictor::Seen& seen, const CopyChoice& copy_of,
                              uint64_t step_rows) {
  rows_ = seen.rows;
  step_rows_ = std::max<uint64_t>(step_rows, seen.rows);
  // Stage: score earlier predictions by the routing, [rows][K].
  if (is_foreseen()) {
    ScoreForeseen(seen);
  } else {
    Score(seen);
  }
  // Stage: the predictor observes the choices.
  predictor_->Observe(seen);
  layer_ = seen.layer.value;
  // Stage: slots of the layer's prefetched experts no longer count as held.
  for (const ExpertKey key : held_[layer_]) --n_held_[limits_.pool_of(key)];
  held_[layer_].clear();
  // Stage: predict the next layers, or go on to the next foreseen layer.
  if (!is_foreseen()) {
    Predict(seen.chosen.size(), copy_of);
  } else {
    next_layer_ = layer_ + 1;
    if (next_layer_ == foreseen_.size()) foreseen_.clear();
  }
}

// Stage: predictions for the next layers, [depth][at most `most` experts]. `most` is the number
// that the layer's own routers chose.
void PrefetchPlanner::Predict(size_t most, const CopyChoice& copy_of) {
  for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.moe.n_layer; ++d) {
    std::vector<Prediction>& about = predictions(layer_ + d, d);
    about.clear();
    const ExpertLayerId target{static_cast<uint16_t>(layer_ + d)};
    for (const ExpertId expert : predictor_->Predict(d)) {
      if (about.size() == most) break;
      about.push_back(Predicted(target, expert, about.size(), copy_of));
    }
  }
}

PrefetchPlanner::Prediction PrefetchPlanner::Predicted(ExpertLayerId layer, ExpertId expert,
                                                       size_t i, const CopyChoice& copy_of) const {
  const std::optional<CopyId> copy = copy_of(layer, expert, static_cast<uint32_t>(rank_of(i)));
  const ExpertKey key{.layer = layer, .expert = expert, .copy = copy.value_or(CopyId{0})};
  return {.key = key, .is_left_out = !copy.has_value(), .is_present = is_present_(key)};
}

void PrefetchPlanner::Score(const Predictor::Seen& seen) {
  const uint64_t asked = CountDistinct(seen.chosen);
  for (uint32_t d = 1; d <= shape_.depth && d <= seen.layer.value; ++d) {
    std::vector<Prediction>& about = predictions(seen.layer.value, d);
    if (about.empty()) continue;
    // Stage: score the predictions of distance d, and teach each cell [d - 1][rank].
    PredictionScore& score = scores_[d - 1];
    score.asked += asked;
    for (size_t i = 0; i < about.size(); ++i) {
      const bool was_right = std::ranges::contains(seen.chosen, about[i].key.expert);
      ++score.predicted;
      score.right += was_right;
      if (about[i].is_present || about[i].is_left_out) continue;
      ++score.absent;
      score.absent_right += was_right;
      right_ += was_right && is_worth_fetching(cell(d, i));
      cell(d, i).Learn(was_right);
    }
    about.clear();
  }
}

void PrefetchPlanner::ScoreForeseen(const Predictor::Seen& seen) {
  foreseen_score_.asked += CountDistinct(seen.chosen);
  const std::vector<Prediction>& about = foreseen_[seen.layer.value];
  for (size_t i = 0; i < about.size(); ++i) {
    const bool was_right = std::ranges::contains(seen.chosen, about[i].key.expert);
    ++foreseen_score_.predicted;
    foreseen_score_.right += was_right;
    if (about[i].is_present || about[i].is_left_out) continue;
    ++foreseen_score_.absent;
    foreseen_score_.absent_right += was_right;
    foreseen_cells_[rank_of(i)].Learn(was_right);
  }
}

uint64_t PrefetchPlanner::CountDistinct(std::span<const ExpertId> experts) {
  if (experts.size() <= shape_.moe.n_used) return experts.size();  // one row has no expert twice
  is_counted_.assign(shape_.moe.n_expert, false);
  for (const ExpertId expert : experts) is_counted_[expert.value] = true;
  return static_cast<uint64_t>(std::ranges::count(is_counted_, true));
}

void PrefetchPlanner::StepDone(const StepCost& cost) {
  control_.StepDone(cost, static_cast<double>(std::exchange(right_, 0)));
}

std::span<const PrefetchRequest> PrefetchPlanner::Requests(size_t unfinished) {
  requests_.clear();
  if (is_paused_) return requests_;
  if (is_foreseen()) {
    RequestForeseen(unfinished);
    return requests_;
  }
  // Stage: requests by distance, the nearest layer first, until a layer needs a read.
  const size_t before = unfinished;
  for (uint32_t d = 1; d <= shape_.depth && layer_ + d < shape_.moe.n_layer; ++d) {
    RequestFor(d, unfinished);
    if (unfinished > before) break;
  }
  return requests_;
}

PoolRoom PrefetchPlanner::RoomIn(uint32_t pool) const {
  return {.slots = limits_.slots[pool],
          .own = MostOwn(shape_.moe.n_expert, shape_.moe.n_used, step_rows_)};
}

void PrefetchPlanner::RequestFor(uint32_t distance, size_t& unfinished) {
  const size_t target = layer_ + distance;
  const std::vector<Prediction>& about = predictions(target, distance);
  for (size_t i = 0; i < about.size(); ++i) {
    const Prediction& one = about[i];
    const uint32_t pool = limits_.pool_of(one.key);
    if (n_held_[pool] >= RoomIn(pool).prefetches()) continue;
    if (one.is_left_out || std::ranges::contains(held_[target], one.key)) continue;
    if (!one.is_present) {
      const bool is_worth_it = is_worth_fetching(cell(distance, i));
      if (!is_worth_it || unfinished >= most_ahead()) continue;
      ++unfinished;
    }
    Request(one);
  }
}

// Stage: requests for the foreseen experts of all later layers. An expert without room in its pool
// is tried again in the next layer.
void PrefetchPlanner::RequestForeseen(size_t unfinished) {
  for (size_t layer = next_layer_; layer < foreseen_.size(); ++layer) {
    std::vector<Prediction>& about = foreseen_[layer];
    for (size_t i = 0; i < about.size(); ++i) {
      Prediction& one = about[i];
      const uint32_t pool = limits_.pool_of(one.key);
      if (one.is_settled || one.is_left_out || n_held_[pool] >= RoomIn(pool).prefetches()) {
        continue;
      }
      one.is_present = is_present_(one.key);
      const bool is_worth_it = one.is_present || is_worth_fetching(foreseen_cells_[rank_of(i)]);
      if (is_worth_it && !one.is_present) {
        if (unfinished >= std::max(limits_.most_foreseen, most_ahead())) return;
        ++unfinished;
      }
      one.is_settled = true;
      if (is_worth_it) Request(one);
    }
  }
}

void PrefetchPlanner::Request(const Prediction& one) {
  requests_.push_back({.key = one.key, .is_present = one.is_present});
  held_[one.key.layer.value].push_back(one.key);
  ++n_held_[limits_.pool_of(one.key)];
}

void PrefetchPlanner::Clear() {
  foreseen_.clear();
  for (std::vector<ExpertKey>& layer : held_) layer.clear();
  std::ranges::fill(n_held_, 0);
}

}  // namespace moestro
