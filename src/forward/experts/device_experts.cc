// SPDX-License-Identifier: MIT
#include "forward/experts/device_experts.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace moestro {
namespace {

// Pairs of a launch of copied experts, about: a launch costs as much as copying a part of an
// expert.
constexpr uint32_t kGroupPairs = 128;

}  // namespace

DeviceExperts::DeviceExperts(std::unique_ptr<Launcher> launcher, const ExpertCatalog& catalog,
                             DeviceFaults faults)
    : launcher_(std::move(launcher)),
      catalog_(catalog),
      faults_(std::move(faults)),
      copier_(faults_.fails_copy) {}

DeviceExperts::~DeviceExperts() { Abandon(); }

// Makes the groups of copied experts. Groups follow from the plan alone.
void DeviceExperts::BeginPlan(const Part& part) {
  const LayerPlan& plan = part.plan;
  plan_ = &plan;
  index_ = part.device;
  groups_.clear();
  next_group_ = 0;
  uint32_t pairs = kGroupPairs;
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    if (!is_mine(plan.experts[i]) || plan.experts[i].place != Place::kCopied) continue;
    if (pairs >= kGroupPairs) {
      groups_.push_back({.first = i, .last = i});
      pairs = 0;
    }
    groups_.back().last = i + 1;
    pairs += plan.experts[i].n_pairs;
  }
  has_failed_ = false;
  tickets_.assign(plan.experts.size(), {});
  is_there_.assign(plan.experts.size(), false);
}

// Launches the experts in the device's slots, which are among the last experts of the plan.
Status DeviceExperts::LaunchHeld() {
  const auto first = std::ranges::find(plan_->experts, Place::kDevice, &PlannedExpert::place);
  return LaunchGroup({.first = static_cast<size_t>(first - plan_->experts.begin()),
                      .last = plan_->experts.size()});
}

Status DeviceExperts::Begin(const Part& part, const float* ffn_in, float* results) {
  BeginPlan(part);
  launcher_->Begin(part.plan, ffn_in, results);
  return LaunchHeld();
}

Status DeviceExperts::BeginThere(const Part& part, const StepBuffers& rows) {
  BeginPlan(part);
  launcher_->BeginThere(part.plan, rows);
  return LaunchHeld();
}

bool DeviceExperts::Bring(size_t index, const Lease& lease) {
  if (!lease.is_complete()) return false;
  Ticket& ticket = tickets_[index];
  if (ticket.last == 0) {
    ticket = Fill(plan_->experts[index].key, plan_->experts[index].slot, MatricesOf(lease));
    return false;
  }
  if (!copier_.is_done(ticket.last)) return false;
  has_failed_ |= !copier_.Wait(ticket.first, ticket.last);
  is_there_[index] = true;
  return true;
}

DeviceExperts::Matrices MatricesOf(const Lease& lease) {
  return {lease.matrix(Matrix::kGate), lease.matrix(Matrix::kUp), lease.matrix(Matrix::kDown)};
}

DeviceExperts::Ticket DeviceExperts::Fill(ExpertKey key, SlotId slot, const Matrices& matrices) {
  Ticket ticket;
  const uint32_t form = catalog_.copy(key).form;
  for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    const size_t bytes = launcher_->BytesOf(form, m);
    if (bytes == 0) continue;
    const Launcher::Target to{.form = form, .matrix = m, .slot = slot};
    const std::span from(matrices[static_cast<size_t>(m)], bytes);
    ticket.last = copier_.Ask(
        {.make = [this, to, from] { return launcher_->Write(to, from); }, .bytes = bytes});
    if (ticket.first == 0) ticket.first = ticket.last;
  }
  return ticket;
}

Status DeviceExperts::Fetch(ExpertKey key, SlotId slot,
                            const std::array<std::byte*, kMatrices>& to) const {
  const uint32_t form = catalog_.copy(key).form;
  for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    if (faults_.fails_copy && faults_.fails_copy()) {
      return Fail(Errc::kDevice, "a copy failed on purpose");
    }
    const size_t bytes = launcher_->BytesOf(form, m);
    if (bytes == 0) continue;
    TRY_STATUS(launcher_->Read({.form = form, .matrix = m, .slot = slot},
                               std::span(to[static_cast<size_t>(m)], bytes)));
  }
  return {};
}

Status DeviceExperts::Advance() {
  if (has_failed_) {
    return Fail(Errc::kDevice, "a copy to the device {} failed", info().name);
  }
  while (!all_launched()) {
    const Group& next = groups_[next_group_];
    for (size_t i = next.first; i < next.last; ++i) {
      if (is_mine(plan_->experts[i]) && !is_there_[i]) return {};
    }
    ++next_group_;
    TRY_STATUS(LaunchGroup(next));
  }
  return {};
}

// Stage: the pairs of a group, form by form, at most most_pairs in a launch.
Status DeviceExperts::LaunchGroup(const Group& group) {
  // Stage: sort the pairs by form, [form][pairs].
  std::vector<std::vector<Launcher::Pair>> by_form(catalog_.forms.size());
  for (size_t i = group.first; i < group.last; ++i) {
    const PlannedExpert& expert = plan_->experts[i];
    if (!is_mine(expert)) continue;
    std::vector<Launcher::Pair>& pairs = by_form[catalog_.copy(expert.key).form];
    for (uint32_t p = expert.first_pair; p < expert.first_pair + expert.n_pairs; ++p) {
      pairs.push_back(
          {.pair = p, .row = plan_->row_of[p], .slot = expert.slot, .expert = expert.key.expert});
    }
  }
  // Stage: launches of at most most_pairs pairs.
  for (uint32_t form = 0; form < by_form.size(); ++form) {
    std::span<const Launcher::Pair> left = by_form[form];
    while (!left.empty()) {
      const size_t n = std::min<size_t>(left.size(), launcher_->shape().most_pairs);
      if (faults_.fails_launch && faults_.fails_launch()) {
        return Fail(Errc::kDevice, "a launch failed on purpose");
      }
      TRY_STATUS(launcher_->Launch(form, left.first(n)));
      left = left.subspan(n);
    }
  }
  return {};
}

Status DeviceExperts::Finish() {
  CHECK(all_launched());
  TRY_STATUS(launcher_->Finish());
  plan_ = nullptr;
  return {};
}

void DeviceExperts::Abandon() {
  if (plan_ == nullptr) return;
  for (const Ticket& ticket : tickets_) {
    if (ticket.last > 0) copier_.Wait(ticket.first, ticket.last);
  }
  launcher_->Abandon();
  groups_.clear();
  next_group_ = 0;
  plan_ = nullptr;
}

}  // namespace moestro
