// SPDX-License-Identifier: MIT
// What a place on a device is worth, and who moves there and back for later layers.
#include <algorithm>
#include <numeric>
#include <optional>
#include <span>

#include "base/check.h"
#include "decide/devices/device_tier.h"

namespace moestro {
namespace {

// Of the uses to come of an expert that leaves the device, those that memory would keep it for.
// With half or all of them so many move to and fro that OLMoE on an RTX 4090 loses 3 % (make
// lanes).
constexpr double kShareInMemory = 0.25;

}  // namespace

// Of reading it for a use on the CPU, on average: memory may have it then.
double DeviceTier::DiskSeconds(ExpertKey key) const {
  return missing_ * model_.disk.Seconds(parts_.bytes_of(key));
}

// Seconds that a use on the device saves.
double DeviceTier::GainOf(ExpertKey key, uint32_t device) const {
  const uint64_t bytes = parts_.bytes_of(key);
  return std::max(0.0, DiskSeconds(key) + model_.host.Seconds(bytes) -
                           model_.devices[device].compute.Seconds(bytes));
}

// What the disk will have to read for whoever gives up its slot, less what it will not for this
// one. Nothing but that: where memory has the experts, the lanes share the later uses, too, and
// what one of them takes is hardly ever what a layer takes longer.
double DeviceTier::SlotPrice(const PlannedExpert& expert, uint32_t device,
                             std::span<const ExpertKey> keeps) const {
  const SlotTable* its = table(device, expert.key);
  if (mode_ != PlaceMode::kAuto || its == nullptr || !is_on_[device]) return 0.0;
  const std::optional<SlotTable::Room> room = its->RoomFor(expert.use, keeps);
  if (!room || !room->evicts) return 0.0;
  const double own = (UsesOf(expert.key) + 1.0) * DiskSeconds(expert.key);
  return std::max(0.0, UsesOf(*room->evicts) * DiskSeconds(*room->evicts) - own);
}

// Whether who leaves the device goes to memory: if the reads that this saves cost more than the
// copy and the reads of whoever leaves memory for it. Memory has it then.
bool DeviceTier::MovesBack(ExpertKey key, uint32_t device, std::span<const ExpertKey> keeps) {
  if (parts_.tiers == Tiers::kInclusive || is_in_memory(key)) return false;
  if (!parts_.memory && !parts_.memory_room) return false;
  const std::optional<SlotTable::Room> room =
      parts_.memory ? parts_.memory->RoomFor(key, keeps) : parts_.memory_room(key, keeps);
  if (!room) return false;
  const auto reads = [this](ExpertKey of) {
    return UsesOf(of) * model_.disk.Seconds(parts_.bytes_of(of));
  };
  double price = model_.devices[device].copy.Seconds(parts_.bytes_of(key));
  if (room->evicts) price += reads(*room->evicts);
  if (kShareInMemory * reads(key) <= price) return false;
  ++work_[device].moved_back;
  if (parts_.memory) parts_.memory->Adopt(key, keeps);
  return true;
}

bool DeviceTier::MayKeepSlot(ExpertKey key, const LayerPlan& plan) const {
  const uint32_t pool = parts_.pool_of(key);
  const PoolRoom room{.slots = parts_.memory_slots[pool],
                      .own = MostOwn(parts_.n_expert, plan.n_used, plan.n_rows)};
  return under_way_[pool] < room.promotions();
}

std::optional<DeviceTier::Offer> DeviceTier::BestMove(const LayerPlan& plan,
                                                      uint32_t device) const {
  std::optional<Offer> best;
  for (const PlannedExpert& expert : plan.experts) {
    if (expert.place != Place::kHost || expert.use != Use::kDecode) continue;
    if (table(device, expert.key) == nullptr || contains(expert.key)) continue;
    if (!MayKeepSlot(expert.key, plan)) continue;
    const double saves = UsesOf(expert.key) * GainOf(expert.key, device);
    if (saves > (best ? best->saves : 0.0)) best = Offer{.key = expert.key, .saves = saves};
  }
  if (!best) return std::nullopt;
  const std::optional<SlotTable::Room> room = table(device, best->key)->RoomFor(Use::kDecode);
  if (!room) return std::nullopt;
  double price = model_.devices[device].copy.Seconds(parts_.bytes_of(best->key));
  if (room->evicts) price += UsesOf(*room->evicts) * GainOf(*room->evicts, device);
  best->saves -= price;
  return best->saves > 0.0 ? best : std::nullopt;
}

std::optional<DeviceTier::Promotion> DeviceTier::Promote(const LayerPlan& plan) {
  if (mode_ != PlaceMode::kAuto) return std::nullopt;
  if (std::reduce(under_way_.begin(), under_way_.end()) >= kMostPromotions) return std::nullopt;
  std::optional<Offer> best;
  uint32_t device = 0;
  for (uint32_t d = 0; d < devices(); ++d) {
    if (!is_on_[d]) continue;
    const std::optional<Offer> offer = BestMove(plan, d);
    if (!offer || (best && offer->saves <= best->saves)) continue;
    best = offer;
    device = d;
  }
  if (!best) return std::nullopt;
  const std::optional<Placement> placed =
      table(device, best->key)->Request(best->key, Use::kDecode);
  CHECK(placed.has_value());
  ++work_[device].promotions;
  ++under_way_[parts_.pool_of(best->key)];
  work_[device].copied_bytes += parts_.bytes_of(best->key);
  Promotion promotion{.key = best->key, .device = device, .slot = placed->slot};
  if (placed->evicted && MovesBack(*placed->evicted, device, {&best->key, 1})) {
    promotion.moved_back = placed->evicted;
  }
  return promotion;
}

void DeviceTier::Promoted(const Promotion& promotion, bool has_landed) {
  SlotTable& its = *table(promotion.device, promotion.key);
  --under_way_[parts_.pool_of(promotion.key)];
  if (has_landed) {
    its.Landed(promotion.slot);
  } else {
    its.Failed(promotion.slot);
  }
  its.Unpin(promotion.slot);
  if (has_landed) LeaveMemory(promotion.key);
}

}  // namespace moestro
