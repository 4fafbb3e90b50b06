// SPDX-License-Identifier: MIT
#include "devices/device.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {
namespace {

// Pairs of a launch of copied experts, about: a launch costs as much as copying a part of an
// expert.
constexpr uint32_t kGroupPairs = 128;

}  // namespace

Device::Device(ComputeDevice here, const ExpertCatalog& catalog, uint64_t vram,
               std::vector<bool> computes)
    : here_(std::move(here)),
      link_(std::make_unique<DeviceLink>(*here_)),
      catalog_(catalog),
      plan_{.info = here_->info()},
      vram_(vram),
      computes_(std::move(computes)) {}

Device::Device(std::unique_ptr<Transport> transport, const ExpertCatalog& catalog,
               std::vector<uint64_t> slots, DeviceFaults faults)
    : catalog_(catalog), plan_{.info = transport->info()} {
  for (const uint64_t n : slots) computes_.push_back(n > 0);
  TakeSlots(std::move(transport), std::move(slots), std::move(faults));
}

Device::~Device() { GiveUpSlots(); }

void Device::TakeSlots(std::unique_ptr<Transport> transport, std::vector<uint64_t> slots,
                       DeviceFaults faults) {
  transport_ = std::move(transport);
  slots_ = std::move(slots);
  plan_.slots = std::reduce(slots_.begin(), slots_.end());
  faults_ = std::move(faults);
  copier_ = std::make_unique<Copier>(
      faults_.fails_copy, [this](uint64_t number) { return transport_->AwaitWrite(number); });
}

void Device::GiveUpSlots() {
  Abandon();
  copier_.reset();  // its thread writes through the transport
  transport_.reset();
}

// Makes the groups of copied experts. Groups follow from the plan alone.
void Device::BeginPlan(const Assignment& assignment) {
  const LayerPlan& plan = assignment.plan;
  layer_ = &plan;
  index_ = assignment.device;
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
Status Device::LaunchHeld() {
  const auto first = std::ranges::find(layer_->experts, Place::kDevice, &PlannedExpert::place);
  return LaunchGroup({.first = static_cast<size_t>(first - layer_->experts.begin()),
                      .last = layer_->experts.size()});
}

Status Device::Begin(const Assignment& assignment, const float* ffn_in, float* results) {
  BeginPlan(assignment);
  transport_->Begin(assignment.plan, ffn_in, results);
  return LaunchHeld();
}

Status Device::BeginThere(const Assignment& assignment, const StepBuffers& rows) {
  BeginPlan(assignment);
  uint32_t pairs = 0;
  for (const PlannedExpert& expert : assignment.plan.experts) {
    if (is_mine(expert)) pairs += expert.n_pairs;
  }
  transport_->BeginThere(assignment.plan, rows, pairs);
  return LaunchHeld();
}

bool Device::Bring(size_t index, const Lease& lease) {
  if (!lease.is_complete()) return false;
  Ticket& ticket = tickets_[index];
  if (ticket.last == 0) {
    ticket = Fill(layer_->experts[index].key, layer_->experts[index].slot, MatricesOf(lease));
    return false;
  }
  if (!copier_->is_done(ticket.last)) return false;
  has_failed_ |= !copier_->Wait(ticket.first, ticket.last);
  is_there_[index] = true;
  return true;
}

Device::Matrices MatricesOf(const Lease& lease) {
  return {lease.matrix(Matrix::kGate), lease.matrix(Matrix::kUp), lease.matrix(Matrix::kDown)};
}

Device::Ticket Device::Fill(ExpertKey key, SlotId slot, const Matrices& matrices) {
  Ticket ticket;
  const uint32_t form = catalog_.copy(key).form;
  for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    const size_t bytes = transport_->BytesOf(form, m);
    if (bytes == 0) continue;
    const Transport::Target to{.form = form, .matrix = m, .slot = slot};
    const std::span from(matrices[static_cast<size_t>(m)], bytes);
    ticket.last = copier_->Ask(
        {.begin = [this, to, from] { return transport_->BeginWrite(to, from); }, .bytes = bytes});
    if (ticket.first == 0) ticket.first = ticket.last;
  }
  return ticket;
}

bool Device::SetCopyWay(Transport::CopyWay way) {
  const bool has_way = transport_->SetCopyWay(way);
  if (has_way) copy_way_ = way;
  return has_way;
}

Status Device::Fetch(ExpertKey key, SlotId slot,
                     const std::array<std::byte*, kMatrices>& to) const {
  const uint32_t form = catalog_.copy(key).form;
  for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    if (faults_.fails_copy && faults_.fails_copy()) {
      return Fail(Errc::kDevice, "a copy failed on purpose");
    }
    const size_t bytes = transport_->BytesOf(form, m);
    if (bytes == 0) continue;
    TRY_STATUS(transport_->Read({.form = form, .matrix = m, .slot = slot},
                                std::span(to[static_cast<size_t>(m)], bytes)));
  }
  return {};
}

Status Device::Advance() {
  if (has_failed_) {
    return Fail(Errc::kDevice, "a copy to the device {} failed", info().name);
  }
  while (!all_launched()) {
    const Group& next = groups_[next_group_];
    for (size_t i = next.first; i < next.last; ++i) {
      if (is_mine(layer_->experts[i]) && !is_there_[i]) return {};
    }
    ++next_group_;
    TRY_STATUS(LaunchGroup(next));
  }
  return {};
}

// Stage: the pairs of a group, form by form, at most most_pairs in a launch.
Status Device::LaunchGroup(const Group& group) {
  // Stage: sort the pairs by form, [form][pairs].
  std::vector<std::vector<Transport::Pair>> by_form(catalog_.forms.size());
  for (size_t i = group.first; i < group.last; ++i) {
    const PlannedExpert& expert = layer_->experts[i];
    if (!is_mine(expert)) continue;
    std::vector<Transport::Pair>& pairs = by_form[catalog_.copy(expert.key).form];
    for (uint32_t p = expert.first_pair; p < expert.first_pair + expert.n_pairs; ++p) {
      pairs.push_back(
          {.pair = p, .row = layer_->row_of[p], .slot = expert.slot, .expert = expert.key.expert});
    }
  }
  // Stage: launches of at most most_pairs pairs.
  for (uint32_t form = 0; form < by_form.size(); ++form) {
    std::span<const Transport::Pair> left = by_form[form];
    while (!left.empty()) {
      const size_t n = std::min<size_t>(left.size(), transport_->shape().most_pairs);
      if (faults_.fails_launch && faults_.fails_launch()) {
        return Fail(Errc::kDevice, "a launch failed on purpose");
      }
      TRY_STATUS(transport_->Launch(form, left.first(n)));
      left = left.subspan(n);
    }
  }
  return {};
}

Status Device::Finish() {
  CHECK(all_launched());
  TRY_STATUS(transport_->Finish());
  layer_ = nullptr;
  return {};
}

Status Device::Await() { return link_->Finish(); }

void Device::Abandon() {
  if (layer_ == nullptr) return;
  for (const Ticket& ticket : tickets_) {
    if (ticket.last > 0) copier_->Wait(ticket.first, ticket.last);
  }
  transport_->Abandon();
  groups_.clear();
  next_group_ = 0;
  layer_ = nullptr;
}

}  // namespace moestro
