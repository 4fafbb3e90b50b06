// SPDX-License-Identifier: MIT
#include "decide/devices/device_tier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>
#include <utility>

#include "base/check.h"

namespace moestro {
namespace {

// Uses from memory or disk after which one counts little in the share of those from the disk.
constexpr uint64_t kMissWindow = 256;

struct NamedTiers {
  Tiers tiers;
  std::string_view name;
};
constexpr std::array kTiers = {NamedTiers{Tiers::kInclusive, "inclusive"},
                               NamedTiers{Tiers::kExclusive, "exclusive"}};

std::vector<ExpertKey> KeysOf(const LayerPlan& plan) {
  std::vector<ExpertKey> keys;
  for (const PlannedExpert& expert : plan.experts) keys.push_back(expert.key);
  return keys;
}

}  // namespace

Result<Tiers> ParseTiers(std::string_view name) {
  for (const NamedTiers& known : kTiers) {
    if (known.name == name) return known.tiers;
  }
  return Fail(Errc::kUsage, "'{}' says nothing about tiers; known: inclusive, exclusive", name);
}

std::string_view NameOf(Tiers tiers) {
  return std::ranges::find(kTiers, tiers, &NamedTiers::tiers)->name;
}

DeviceTier::DeviceTier(DeviceTierParts parts, const LatencyModel& model, PlaceMode mode)
    : parts_(std::move(parts)),
      model_(model),
      mode_(mode),
      is_on_(parts_.tables.size(), true),
      work_(parts_.tables.size()),
      under_way_(parts_.memory_slots.size()) {
  CHECK(model_.devices.size() == parts_.tables.size());
}

SlotTable* DeviceTier::table(uint32_t device, ExpertKey key) {
  std::optional<SlotTable>& found = parts_.tables[device][parts_.form_of(key)];
  return found ? &*found : nullptr;
}

const SlotTable* DeviceTier::table(uint32_t device, ExpertKey key) const {
  const std::optional<SlotTable>& found = parts_.tables[device][parts_.form_of(key)];
  return found ? &*found : nullptr;
}

std::optional<uint32_t> DeviceTier::DeviceOf(ExpertKey key) const {
  for (uint32_t d = 0; d < devices(); ++d) {
    const SlotTable* its = table(d, key);
    if (is_on_[d] && its != nullptr && its->contains(key)) return d;
  }
  return std::nullopt;
}

std::optional<uint32_t> DeviceTier::ReadyOn(ExpertKey key) const {
  const std::optional<uint32_t> device = DeviceOf(key);
  return device && table(*device, key)->is_ready(key) ? device : std::nullopt;
}

bool DeviceTier::contains(ExpertKey key) const { return DeviceOf(key).has_value(); }

DeviceStats DeviceTier::stats() const {
  DeviceStats stats;
  stats.experts = experts_;
  stats.failures = failures_;
  stats.each = work_;
  for (const DeviceWork& one : work_) {
    stats.on_device += one.on_device;
    stats.copied += one.copied;
    stats.staged += one.staged;
    stats.filled += one.filled;
    stats.promotions += one.promotions;
    stats.moved_back += one.moved_back;
    stats.copied_bytes += one.copied_bytes;
  }
  return stats;
}

bool DeviceTier::is_in_memory(ExpertKey key) const {
  return parts_.memory ? parts_.memory->contains(key) : parts_.in_memory(key);
}

// What neither runs from a device's slots nor is read past memory's is asked for in memory.
void DeviceTier::RunInMemory(const LayerPlan& plan) {
  if (!parts_.memory) return;
  LayerPlan asked{.layer = plan.layer};
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place != Place::kDevice && !expert.is_staged) asked.experts.push_back(expert);
  }
  parts_.memory->Run(asked);
}

void DeviceTier::BeginSequence() {
  for (std::optional<SlotTable>& t : parts_.tables | std::views::join) {
    if (t) t->BeginSequence();
  }
  if (parts_.memory) parts_.memory->BeginSequence();
}

void DeviceTier::BeginLayer(LayerId layer) {
  if (layer.value == 0) ++step_;
  for (std::optional<SlotTable>& t : parts_.tables | std::views::join) {
    if (t) t->BeginLayer(layer);
  }
  if (parts_.memory) parts_.memory->BeginLayer(layer);
}

void DeviceTier::Predict(LayerId layer, std::span<const ExpertId> experts) {
  for (std::optional<SlotTable>& t : parts_.tables | std::views::join) {
    if (t) t->Predict(layer, experts);
  }
  if (parts_.memory) parts_.memory->Predict(layer, experts);
}

std::vector<LaneJob> DeviceTier::JobsOf(const LayerPlan& plan) {
  const std::vector<ExpertKey> own = KeysOf(plan);
  std::vector<LaneJob> jobs;
  for (const PlannedExpert& expert : plan.experts) {
    LaneJob job{.bytes = parts_.bytes_of(expert.key),
                .rows = expert.n_pairs,
                .in_memory = is_in_memory(expert.key),
                .on_device = ReadyOn(expert.key),
                .pool = parts_.form_of(expert.key)};
    for (uint32_t d = 0; !job.on_device && d < devices(); ++d) {
      job.slot_prices.push_back(SlotPrice(expert, d, own));
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// [device][form], slots that copies may take: not those of the layer's own experts.
std::vector<std::vector<uint32_t>> DeviceTier::RoomFor(const LayerPlan& plan) const {
  std::vector<std::vector<uint32_t>> room(devices());
  for (uint32_t d = 0; d < devices(); ++d) {
    for (const std::optional<SlotTable>& t : parts_.tables[d]) {
      room[d].push_back(t && is_on_[d] ? static_cast<uint32_t>(t->room()) : 0);
    }
  }
  for (const PlannedExpert& expert : plan.experts) {
    if (const auto device = ReadyOn(expert.key)) --room[*device][parts_.form_of(expert.key)];
  }
  return room;
}

// What memory really holds has decided the order so far. As PlanLayer() would have it with the
// model: what is there first, and in each part the order of the routing.
void DeviceTier::SortByModel(LayerPlan& plan) const {
  std::vector<size_t> choice_of(plan.row_of.size());  // [pair]
  for (size_t i = 0; i < plan.pair_of.size(); ++i) {
    if (plan.pair_of[i] != kNoPair) choice_of[plan.pair_of[i]] = i;
  }
  std::ranges::sort(plan.experts, {}, [&](const PlannedExpert& e) {
    return std::pair(!parts_.memory->contains(e.key), choice_of[e.first_pair]);
  });
}

LaneTimes DeviceTier::Assign(LayerPlan& plan) {
  for (PlannedExpert& expert : plan.experts) {
    expert.place = Place::kHost;
    expert.is_staged = false;
  }
  plan.moved_back.clear();
  const bool are_all_off = !is_on_.empty() && !std::ranges::contains(is_on_, true);
  if (are_all_off) return {};
  if (parts_.memory) SortByModel(plan);
  const LanePlan lanes = PlanLanes(JobsOf(plan), model_, mode_, RoomFor(plan));
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    PlannedExpert& expert = plan.experts[i];
    expert.place = lanes.sites[i].place;
    expert.device = lanes.sites[i].device;
    if (expert.place == Place::kDevice) continue;
    const bool is_missing = !is_in_memory(expert.key);
    expert.is_staged =
        is_missing && expert.place == Place::kCopied && parts_.tiers == Tiers::kExclusive;
    const double missing = is_missing ? 1.0 : 0.0;
    missing_ += (missing - missing_) / static_cast<double>(std::min(++asked_, kMissWindow));
  }
  const std::vector<ExpertKey> own = KeysOf(plan);
  // What a device has is pinned before copies look for victims.
  for (const Place place : {Place::kDevice, Place::kCopied}) {
    for (PlannedExpert& expert : plan.experts) {
      if (expert.place != place) continue;
      const std::optional<Placement> placed =
          table(expert.device, expert.key)->Request(expert.key, expert.use, expert.n_pairs);
      CHECK(placed.has_value());
      expert.slot = placed->slot;
      if (!placed->evicted || !MovesBack(*placed->evicted, expert.device, own)) continue;
      plan.moved_back.push_back(
          {.key = *placed->evicted, .device = expert.device, .slot = placed->slot});
    }
  }
  const auto rank = [](Place p) { return p == Place::kHost ? 0 : p == Place::kCopied ? 1 : 2; };
  std::ranges::stable_sort(plan.experts, {}, [&](const PlannedExpert& e) { return rank(e.place); });
  RunInMemory(plan);
  CountUses(plan);
  return lanes.times;
}

void DeviceTier::CountUses(const LayerPlan& plan) {
  for (const PlannedExpert& expert : plan.experts) {
    ++experts_;
    if (expert.place == Place::kDevice) ++work_[expert.device].on_device;
    if (expert.place == Place::kCopied) {
      DeviceWork& its = work_[expert.device];
      ++its.copied;
      its.staged += expert.is_staged;
      its.copied_bytes += parts_.bytes_of(expert.key);
    }
    if (expert.use == Use::kPrefill && !is_filled_) prompt_rows_[expert.key] += expert.n_pairs;
    if (expert.use != Use::kDecode) continue;
    uses_[expert.key] = {.count = UsesOf(expert.key) + 1.0, .step = step_};
  }
}

double DeviceTier::UsesOf(ExpertKey key) const {
  const auto found = uses_.find(key);
  if (found == uses_.end()) return 0.0;
  const auto age = static_cast<double>(step_ - found->second.step);
  return found->second.count * std::exp2(-age / kHalfLife);
}

void DeviceTier::Done(const LayerPlan& plan) {
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place == Place::kHost) continue;
    SlotTable& its = *table(expert.device, expert.key);
    if (expert.place == Place::kCopied) its.Landed(expert.slot);
    its.Unpin(expert.slot);
    if (expert.place == Place::kCopied) LeaveMemory(expert.key);
  }
}

// It is there now.
void DeviceTier::LeaveMemory(ExpertKey key) {
  if (parts_.tiers == Tiers::kInclusive) return;
  if (parts_.memory) parts_.memory->Drop(key);
  if (parts_.drop) parts_.drop(key);
}

void DeviceTier::Failed(LayerPlan& plan, std::optional<uint32_t> by) {
  ++failures_;
  if (by) ++work_[*by].failures;
  LayerPlan asked_after_all{.layer = plan.layer};
  for (PlannedExpert& expert : plan.experts) {
    if (expert.place == Place::kHost) continue;
    SlotTable& its = *table(expert.device, expert.key);
    if (expert.place == Place::kCopied) its.Failed(expert.slot);
    its.Unpin(expert.slot);
    expert.place = Place::kHost;
    if (std::exchange(expert.is_staged, false)) asked_after_all.experts.push_back(expert);
  }
  if (parts_.memory) parts_.memory->Run(asked_after_all);
}

}  // namespace moestro
