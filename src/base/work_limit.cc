// SPDX-License-Identifier: MIT
#include "base/work_limit.h"

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>

namespace moestro {
namespace {

constexpr size_t kLookEvery = size_t{1} << 16;  // steps: less than a millisecond

}  // namespace

struct WorkLimit::State {
  Rules rules;
  double began = 0.0;
  uint64_t steps = 0;
  size_t since_look = 0;
  Status status = {};

  double used() const { return rules.clock() - began; }
};

double ThreadProcessorSeconds() {
  std::timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

WorkLimit::WorkLimit(Rules rules) : state_(std::make_shared<State>()) {
  state_->rules = std::move(rules);
  state_->began = state_->rules.clock();
}

Status WorkLimit::Spend(size_t steps) const {
  if (!state_) return {};
  state_->steps += steps;
  state_->since_look += steps;
  return state_->since_look < kLookEvery ? state_->status : Look();
}

Status WorkLimit::Look() const {
  if (!state_) return {};
  State& s = *state_;
  s.since_look = 0;
  if (!s.status) return s.status;
  if (s.rules.is_over && s.rules.is_over()) {
    s.status = Fail(Errc::kInterrupted, "the work was ended before it was done");
  } else if (s.used() > s.rules.processor_seconds) {
    s.status = Fail(Errc::kInvalidRequest,
                    "taking the request apart needs more than {} s of processor time; make it "
                    "smaller or simpler",
                    s.rules.processor_seconds);
  }
  return s.status;
}

Status WorkLimit::Charge(double processor_seconds) const {
  if (state_) state_->began -= processor_seconds;
  return Look();
}

double WorkLimit::seconds_left() const {
  if (!state_) return std::numeric_limits<double>::infinity();
  return std::max(0.0, state_->rules.processor_seconds - state_->used());
}

Status WorkLimit::status() const { return state_ ? state_->status : Status(); }

uint64_t WorkLimit::steps() const { return state_ ? state_->steps : 0; }

}  // namespace moestro
