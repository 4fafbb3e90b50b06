// SPDX-License-Identifier: MIT
#include "decide/ahead/prefetch_control.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace moestro {
namespace {

// Even where a wrong prefetch delays nothing it takes a slot, power and memory bandwidth. By
// simulation over disks of 0.2 to 7 GiB/s the best limit is between 0.2 and 0.4 where it matters.
constexpr double kFloor = 0.3;

// Checks averages: steps of no length leave zeros, and a clock may return anything.
bool AreTimes(double some, double read) {
  return some >= 0.0 && read > 0.0 && read <= std::numeric_limits<double>::max();  // not for NaN
}

}  // namespace

std::optional<size_t> MostAhead(double idle, double read) {
  if (!AreTimes(idle, read)) return std::nullopt;
  constexpr auto kMost = static_cast<double>(kMostAhead);
  return static_cast<size_t>(std::ceil(std::clamp(idle / read, 1.0, kMost)));
}

std::optional<size_t> PrefetchControl::most_ahead() const {
  return is_fixed_ ? std::nullopt : MostAhead(idle_, read_);
}

double PrefetchControl::beside_dense() const {
  if (is_fixed_ || !AreTimes(dense_, read_)) return 0.0;
  return std::min(dense_ / read_, static_cast<double>(kMostAhead));
}

double PrefetchControl::committed() const {
  const std::optional<size_t> ahead = most_ahead();
  return ahead ? std::min(most_committed_, static_cast<double>(*ahead)) : most_committed_;
}

double PrefetchControl::won() const { return std::min(idle_, committed() * read_); }
double PrefetchControl::lost() const { return std::max(0.0, committed() * read_ - idle_); }

double PrefetchControl::least_precision() const {
  if (is_fixed_ || read_ <= 0.0) return kFloor;
  if (won() <= 0.0) return 2.0;
  return std::max(kFloor, lost() / (won() + lost()));
}

void PrefetchControl::StepDone(const StepCost& cost, double right) {
  ++step_;
  const auto learn = [this](double& average, double value) {
    average += (average > 0.0 ? kSmoothing : 1.0) * (value - average);
  };
  learn(idle_, std::max(0.0, cost.seconds - cost.demand_seconds) / layers_);
  learn(dense_, cost.dense_seconds / layers_);
  if (cost.demand_reads > 0) {
    learn(read_, cost.demand_seconds / static_cast<double>(cost.demand_reads));
  }
  if (cost.look_ahead_seconds <= 0.0) return;
  learn(cost_, cost.look_ahead_seconds);
  // An expert that has arrived in time saves its reading, as far as that fits into idle time.
  gained_ += kSmoothing * (right * std::min(read_, idle_) - gained_);
  pays_ = step_ < kTryEvery || gained_ > cost_;
}

}  // namespace moestro
