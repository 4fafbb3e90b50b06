// SPDX-License-Identifier: MIT
#include "decide/device_tier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace moestro {
namespace {

// Steps after which a use counts half: an expert's uses are roughly those of the next steps, too.
constexpr double kHalfLife = 64.0;
// Uses from memory or disk after which one counts little in the share of those from the disk.
constexpr uint64_t kMissWindow = 256;
// Of the uses to come of an expert that leaves the device, those that memory would keep it for.
// With half or all of them so many move to and fro that OLMoE on an RTX 4090 loses 3 % (make
// lanes).
constexpr double kShareInMemory = 0.25;

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
    : parts_(std::move(parts)), model_(model), mode_(mode) {}

SlotTable* DeviceTier::table(ExpertKey key) {
  std::optional<SlotTable>& found = parts_.tables[parts_.form_of(key)];
  return found ? &*found : nullptr;
}

bool DeviceTier::contains(ExpertKey key) const {
  const std::optional<SlotTable>& found = parts_.tables[parts_.form_of(key)];
  return is_on_ && found && found->contains(key);
}

bool DeviceTier::is_ready(ExpertKey key) const {
  const std::optional<SlotTable>& found = parts_.tables[parts_.form_of(key)];
  return found && found->is_ready(key);
}

bool DeviceTier::is_in_memory(ExpertKey key) const {
  return parts_.memory ? parts_.memory->contains(key) : parts_.in_memory(key);
}

// What neither runs from the device's slots nor is read past memory's is asked for in memory.
void DeviceTier::RunInMemory(const LayerPlan& plan) {
  if (!parts_.memory) return;
  LayerPlan asked{.layer = plan.layer};
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place != Place::kDevice && !expert.is_staged) asked.experts.push_back(expert);
  }
  parts_.memory->Run(asked);
}

void DeviceTier::BeginSequence() {
  for (std::optional<SlotTable>& t : parts_.tables) {
    if (t) t->BeginSequence();
  }
  if (parts_.memory) parts_.memory->BeginSequence();
}

void DeviceTier::BeginLayer(LayerId layer) {
  if (layer.value == 0) ++step_;
  for (std::optional<SlotTable>& t : parts_.tables) {
    if (t) t->BeginLayer(layer);
  }
  if (parts_.memory) parts_.memory->BeginLayer(layer);
}

void DeviceTier::Predict(LayerId layer, std::span<const ExpertId> experts) {
  for (std::optional<SlotTable>& t : parts_.tables) {
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
                .on_device = is_ready(expert.key)};
    if (table(expert.key) == nullptr) {
      job.pool.reset();
    } else {
      job.pool = parts_.form_of(expert.key);
      if (!job.on_device) job.slot_price = SlotPrice(expert, own);
    }
    jobs.push_back(job);
  }
  return jobs;
}

// Slots of each form that copies may take: not those of the layer's own experts.
std::vector<uint32_t> DeviceTier::RoomFor(const LayerPlan& plan) const {
  std::vector<uint32_t> room;
  for (const std::optional<SlotTable>& t : parts_.tables) {
    room.push_back(t ? static_cast<uint32_t>(t->room()) : 0);
  }
  for (const PlannedExpert& expert : plan.experts) {
    if (is_ready(expert.key)) --room[parts_.form_of(expert.key)];
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
  if (!is_on_) return {};
  if (parts_.memory) SortByModel(plan);
  const LanePlan lanes = PlanLanes(JobsOf(plan), model_, mode_, RoomFor(plan));
  uint64_t seen = stats_.experts - stats_.on_device;
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    PlannedExpert& expert = plan.experts[i];
    expert.place = lanes.places[i];
    if (expert.place == Place::kDevice) continue;
    const bool is_missing = !is_in_memory(expert.key);
    expert.is_staged =
        is_missing && expert.place == Place::kCopied && parts_.tiers == Tiers::kExclusive;
    const double missing = is_missing ? 1.0 : 0.0;
    missing_ += (missing - missing_) / static_cast<double>(std::min(++seen, kMissWindow));
  }
  const std::vector<ExpertKey> own = KeysOf(plan);
  plan.moved_back.clear();
  // What the device has is pinned before copies look for victims.
  for (const Place place : {Place::kDevice, Place::kCopied}) {
    for (PlannedExpert& expert : plan.experts) {
      if (expert.place != place) continue;
      const std::optional<Placement> placed =
          table(expert.key)->Request(expert.key, expert.use, expert.n_pairs);
      CHECK(placed.has_value());
      expert.slot = placed->slot;
      if (!placed->evicted || !MovesBack(*placed->evicted, own)) continue;
      plan.moved_back.push_back({.key = *placed->evicted, .slot = placed->slot});
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
    ++stats_.experts;
    stats_.on_device += expert.place == Place::kDevice;
    stats_.copied += expert.place == Place::kCopied;
    stats_.staged += expert.is_staged;
    if (expert.place == Place::kCopied) stats_.copied_bytes += parts_.bytes_of(expert.key);
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
    SlotTable& its = *table(expert.key);
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

void DeviceTier::Failed(LayerPlan& plan) {
  ++stats_.failures;
  LayerPlan asked_after_all{.layer = plan.layer};
  for (PlannedExpert& expert : plan.experts) {
    if (expert.place == Place::kHost) continue;
    SlotTable& its = *table(expert.key);
    if (expert.place == Place::kCopied) its.Failed(expert.slot);
    its.Unpin(expert.slot);
    expert.place = Place::kHost;
    if (std::exchange(expert.is_staged, false)) asked_after_all.experts.push_back(expert);
  }
  if (parts_.memory) parts_.memory->Run(asked_after_all);
}

std::vector<DeviceTier::Promotion> DeviceTier::Fill(std::span<const ExpertKey> first) {
  if (mode_ == PlaceMode::kCpu) return {};
  std::vector<size_t> room;
  for (const std::optional<SlotTable>& t : parts_.tables) room.push_back(t ? t->room() : 0);
  std::vector<Promotion> filled;
  for (const ExpertKey key : first) {
    size_t& left = room[parts_.form_of(key)];
    if (left == 0 || contains(key)) continue;
    --left;
    filled.push_back({.key = key, .slot = {}});
  }
  // As if prefetched: the policy does not know them yet, and the oldest of them leaves first.
  std::ranges::reverse(filled);
  for (Promotion& one : filled) {
    const std::optional<Placement> placed = table(one.key)->Request(one.key, Use::kPrefetch);
    CHECK(placed.has_value());
    one.slot = placed->slot;
    // As if it had been used like others so far.
    uses_[one.key] = {.count = parts_.usual_share / (1.0 - std::exp2(-1.0 / kHalfLife)),
                      .step = step_};
    stats_.copied_bytes += parts_.bytes_of(one.key);
  }
  stats_.filled += filled.size();
  n_promotions_ += filled.size();
  return filled;
}

// Of reading it for a use on the CPU, on average: memory may have it then.
double DeviceTier::DiskSeconds(ExpertKey key) const {
  return missing_ * model_.disk.Seconds(parts_.bytes_of(key));
}

// Seconds that a use on the device saves.
double DeviceTier::GainOf(ExpertKey key) const {
  const uint64_t bytes = parts_.bytes_of(key);
  return std::max(0.0,
                  DiskSeconds(key) + model_.host.Seconds(bytes) - model_.device.Seconds(bytes));
}

// What the disk will have to read for whoever gives up its slot, less what it will not for this
// one. Nothing but that: where memory has the experts, the lanes share the later uses, too, and
// what one of them takes is hardly ever what a layer takes longer.
double DeviceTier::SlotPrice(const PlannedExpert& expert, std::span<const ExpertKey> keeps) {
  if (mode_ != PlaceMode::kAuto) return 0.0;
  const std::optional<SlotTable::Room> room = table(expert.key)->RoomFor(expert.use, keeps);
  if (!room || !room->evicts) return 0.0;
  const double own = (UsesOf(expert.key) + 1.0) * DiskSeconds(expert.key);
  return std::max(0.0, UsesOf(*room->evicts) * DiskSeconds(*room->evicts) - own);
}

// Whether who leaves the device goes to memory: if the reads that this saves cost more than the
// copy and the reads of whoever leaves memory for it. Memory has it then.
bool DeviceTier::MovesBack(ExpertKey key, std::span<const ExpertKey> keeps) {
  if (parts_.tiers == Tiers::kInclusive || is_in_memory(key)) return false;
  if (!parts_.memory && !parts_.memory_room) return false;
  const std::optional<SlotTable::Room> room =
      parts_.memory ? parts_.memory->RoomFor(key, keeps) : parts_.memory_room(key, keeps);
  if (!room) return false;
  const auto reads = [this](ExpertKey of) {
    return UsesOf(of) * model_.disk.Seconds(parts_.bytes_of(of));
  };
  double price = model_.copy.Seconds(parts_.bytes_of(key));
  if (room->evicts) price += reads(*room->evicts);
  if (kShareInMemory * reads(key) <= price) return false;
  ++stats_.moved_back;
  if (parts_.memory) parts_.memory->Adopt(key, keeps);
  return true;
}

std::optional<DeviceTier::Promotion> DeviceTier::Promote(const LayerPlan& plan) {
  if (!is_on_ || mode_ != PlaceMode::kAuto) return std::nullopt;
  if (n_promotions_ >= kMostPromotions) return std::nullopt;
  const PlannedExpert* best = nullptr;
  double most = 0.0;
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place != Place::kHost || expert.use != Use::kDecode) continue;
    if (table(expert.key) == nullptr || contains(expert.key)) continue;
    const double saves = UsesOf(expert.key) * GainOf(expert.key);
    if (saves <= most) continue;
    best = &expert;
    most = saves;
  }
  if (best == nullptr) return std::nullopt;
  SlotTable& its = *table(best->key);
  const std::optional<SlotTable::Room> room = its.RoomFor(Use::kDecode);
  if (!room) return std::nullopt;
  double price = model_.copy.Seconds(parts_.bytes_of(best->key));
  if (room->evicts) price += UsesOf(*room->evicts) * GainOf(*room->evicts);
  if (most <= price) return std::nullopt;
  const std::optional<Placement> placed = its.Request(best->key, Use::kDecode);
  CHECK(placed.has_value());
  ++stats_.promotions;
  ++n_promotions_;
  stats_.copied_bytes += parts_.bytes_of(best->key);
  Promotion promotion{.key = best->key, .slot = placed->slot};
  if (placed->evicted && MovesBack(*placed->evicted, {&best->key, 1})) {
    promotion.moved_back = placed->evicted;
  }
  return promotion;
}

void DeviceTier::Promoted(const Promotion& promotion, bool has_landed) {
  SlotTable& its = *table(promotion.key);
  --n_promotions_;
  if (has_landed) {
    its.Landed(promotion.slot);
  } else {
    its.Failed(promotion.slot);
  }
  its.Unpin(promotion.slot);
  if (has_landed) LeaveMemory(promotion.key);
}

}  // namespace moestro
