// SPDX-License-Identifier: MIT
#include "house/budget_plan.h"

#include <algorithm>
#include <utility>

namespace moestro {
namespace {

bool HasProcess(HouseState state) {
  return state == HouseState::kStarting || state == HouseState::kReady ||
         state == HouseState::kEnding;
}

// Bytes with which a model is worth the others' shrinking: half of the way to its best.
uint64_t Comfortable(const HouseNeeds& needs, uint64_t most) {
  const uint64_t best = std::clamp(needs.best, needs.smallest, std::max(most, needs.smallest));
  return needs.smallest + (best - needs.smallest) / 2;
}

}  // namespace

BudgetPlan::Model BudgetPlan::Add(double keep_alive) {
  models_.push_back({.keep_alive = keep_alive, .usual_keep_alive = keep_alive});
  return models_.size() - 1;
}

uint64_t BudgetPlan::held() const {
  uint64_t sum = 0;
  for (const Entry& entry : models_) sum += HasProcess(entry.state) ? entry.bytes : 0;
  return sum;
}

// The bytes that a model will have once all orders are carried out.
uint64_t BudgetPlan::Promised(const Entry& entry) const {
  if (entry.state == HouseState::kAbsent) return 0;
  return entry.state == HouseState::kEnding ? entry.next : entry.bytes;
}

// Models that may give way, the one that rested longest first.
std::vector<BudgetPlan::Model> BudgetPlan::Resting() const {
  std::vector<Model> resting;
  for (Model model = 0; model < models_.size(); ++model) {
    if (models_[model].running == 0 && Promised(models_[model]) > 0) resting.push_back(model);
  }
  std::ranges::stable_sort(resting, {}, [&](Model m) { return models_[m].last_used; });
  return resting;
}

BudgetPlan::Verdict BudgetPlan::Ask(Model model, double now) {
  Entry& entry = models_[model];
  const double rest = entry.not_before - now;
  const bool is_long = rest > kPatience || (rest > 0.0 && entry.state == HouseState::kAbsent);
  const bool will_start = entry.state == HouseState::kAbsent || entry.state == HouseState::kWaiting;
  if (is_long && will_start) {
    return {.answer = Answer::kResting, .seconds = rest};
  }
  // A model that ends gets its bytes again, if there still are any.
  if (Promised(entry) == 0) {
    if (entry.needs.smallest > bytes_) return {.answer = Answer::kTooLarge};
    if (!MakeRoom(model)) {
      ++counts_.refusals;
      Verdict full{.answer = Answer::kFull};
      for (Model other = 0; other < models_.size(); ++other) {
        if (other != model && models_[other].running > 0) full.holders.push_back(other);
      }
      return full;
    }
  }
  ++entry.running;
  entry.last_used = now;
  return {.answer = entry.state == HouseState::kReady ? Answer::kReady : Answer::kSoon};
}

// Bytes that the model gives when it shrinks; 0 where that would not be worth a start.
uint64_t BudgetPlan::Gain(const Entry& entry) const {
  if (entry.state != HouseState::kReady || entry.bytes <= entry.needs.smallest) return 0;
  const uint64_t gain = entry.bytes - entry.needs.smallest;
  return gain >= entry.bytes / 16 ? gain : 0;
}

// Starts a resting model again with more, where free room makes it comfortable: the one that was
// used last.
void BudgetPlan::Grow(double now) {
  uint64_t left = bytes_;
  for (const Entry& entry : models_) left -= Promised(entry);
  Entry* grows = nullptr;
  uint64_t bytes = 0;
  for (Entry& entry : models_) {
    const double since = std::max(entry.last_used, entry.began);
    if (entry.state != HouseState::kReady || entry.running > 0 || now - since < kGrowAfter) {
      continue;
    }
    const uint64_t comfort = Comfortable(entry.needs, bytes_);
    const uint64_t more = std::min(entry.needs.best, entry.bytes + left);
    const bool is_worth_it =
        entry.bytes < comfort && more >= comfort && more - entry.bytes >= entry.bytes / 16;
    if (!is_worth_it || (grows != nullptr && grows->last_used >= entry.last_used)) continue;
    grows = &entry;
    bytes = more;
  }
  if (grows == nullptr) return;
  End(*grows, bytes);
  ++counts_.growths;
}

// Ends as few resting models as have to, and shrinks others only while the model lacks comfort.
bool BudgetPlan::MakeRoom(Model model) {
  Entry& wanted = models_[model];
  uint64_t promised = 0;
  for (const Entry& entry : models_) promised += Promised(entry);
  const std::vector<Model> resting = Resting();
  uint64_t ended_bytes = 0;
  size_t n_ended = 0;
  uint64_t shrinkable = 0;
  for (const Model m : resting) shrinkable += Gain(models_[m]);
  uint64_t left = bytes_ - promised;
  while (left + ended_bytes + shrinkable < wanted.needs.smallest && n_ended < resting.size()) {
    const Entry& entry = models_[resting[n_ended++]];
    ended_bytes += Promised(entry);
    shrinkable -= Gain(entry);
  }
  if (left + ended_bytes + shrinkable < wanted.needs.smallest) return false;
  left += ended_bytes;
  for (size_t i = 0; i < n_ended; ++i) {
    End(models_[resting[i]], 0);
    ++counts_.ends;
  }
  const uint64_t comfort = Comfortable(wanted.needs, bytes_);
  for (size_t i = n_ended; i < resting.size() && left < comfort; ++i) {
    Entry& entry = models_[resting[i]];
    if (Gain(entry) == 0) continue;
    left += Gain(entry);
    End(entry, entry.needs.smallest);
    ++counts_.shrinks;
  }
  const uint64_t bytes = std::min(std::max(wanted.needs.best, wanted.needs.smallest), left);
  if (wanted.state == HouseState::kEnding) {
    wanted.next = bytes;
  } else {
    wanted.state = HouseState::kWaiting;
    wanted.bytes = bytes;
  }
  return true;
}

// Ends a model's process, or takes back what was promised.
void BudgetPlan::End(Entry& entry, uint64_t next) {
  if (entry.state == HouseState::kWaiting) {
    entry.state = HouseState::kAbsent;
    entry.bytes = 0;
  } else if (entry.state != HouseState::kAbsent) {
    entry.is_due = entry.is_due || entry.state != HouseState::kEnding;
    entry.state = HouseState::kEnding;
    entry.next = next;
  }
}

void BudgetPlan::Leave(Model model, double now, std::optional<double> keep_alive) {
  Entry& entry = models_[model];
  if (entry.running > 0) --entry.running;
  entry.last_used = now;
  entry.keep_alive = keep_alive.value_or(entry.usual_keep_alive);
}

bool BudgetPlan::Unload(Model model) {
  Entry& entry = models_[model];
  if (entry.running > 0) return false;
  if (Promised(entry) > 0) ++counts_.ends;
  End(entry, 0);
  return true;
}

bool BudgetPlan::Renew(Model model) {
  Entry& entry = models_[model];
  if (entry.running > 0 || entry.state != HouseState::kReady) return false;
  // Where the file now needs more than its process has, the next request makes room.
  End(entry, entry.needs.smallest <= entry.bytes ? entry.bytes : 0);
  return true;
}

std::optional<double> BudgetPlan::expires(Model model) const {
  const Entry& entry = models_[model];
  if (entry.state != HouseState::kReady || entry.running > 0 || entry.keep_alive < 0.0) {
    return std::nullopt;
  }
  return std::max(entry.last_used, entry.began) + entry.keep_alive;
}

std::optional<BudgetPlan::Order> BudgetPlan::Next(double now) {
  for (Model model = 0; model < models_.size(); ++model) {
    if (expires(model).value_or(now + 1.0) <= now) Unload(model);
  }
  Grow(now);
  for (Model model = 0; model < models_.size(); ++model) {
    if (!std::exchange(models_[model].is_due, false)) continue;
    return Order{.kind = Order::Kind::kEnd, .model = model};
  }
  const uint64_t free = bytes_ - held();
  for (Model model = 0; model < models_.size(); ++model) {
    Entry& entry = models_[model];
    const bool can_start =
        entry.state == HouseState::kWaiting && entry.bytes <= free && entry.not_before <= now;
    if (!can_start) continue;
    entry.state = HouseState::kStarting;
    ++counts_.loads;
    return Order{.kind = Order::Kind::kStart, .model = model, .bytes = entry.bytes};
  }
  return std::nullopt;
}

void BudgetPlan::Ready(Model model, double now) {
  Entry& entry = models_[model];
  if (entry.state != HouseState::kStarting) return;  // its end was ordered meanwhile
  entry.state = HouseState::kReady;
  entry.began = now;
}

// A process that died while it was sound is started again at once, another one after a rest.
void BudgetPlan::Fail(Entry& entry, double now) {
  ++counts_.deaths;
  const bool was_ready = entry.state == HouseState::kReady;
  if (was_ready && now - entry.began >= kSoundSeconds) entry.failures = 0;
  if (entry.failures > 0 || !was_ready) {
    const uint32_t doublings = std::min(entry.failures - (was_ready ? 1 : 0), 10U);
    const auto rest = static_cast<double>(uint64_t{1} << doublings);
    entry.not_before = now + std::min(rest, kMostRest);
  }
  ++entry.failures;
  entry.state = was_ready ? HouseState::kWaiting : HouseState::kAbsent;
  if (!was_ready) entry.bytes = 0;
}

void BudgetPlan::Ended(Model model, double now) {
  Entry& entry = models_[model];
  if (entry.state != HouseState::kEnding) {
    if (HasProcess(entry.state)) Fail(entry, now);
    return;
  }
  entry.is_due = false;
  entry.bytes = std::exchange(entry.next, 0);
  entry.state = entry.bytes > 0 ? HouseState::kWaiting : HouseState::kAbsent;
}

}  // namespace moestro
