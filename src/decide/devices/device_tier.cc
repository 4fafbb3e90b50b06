// SPDX-License-Identifier: MIT
#include "decide/devices/device_tier.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {
namespace {

// Window of uses over which the share of those from the disk is averaged.
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

uint32_t UsedOf(const DeviceTierSetup& parts) {
  return static_cast<uint32_t>(std::lround(parts.usual_share * parts.n_expert));
}

WholeSlots::Parts WholePartsOf(const DeviceTierSetup& parts) {
  return {.n_layers = parts.n_layers,
          .n_expert = parts.n_expert,
          .n_used = UsedOf(parts),
          .bytes = parts.bytes_of({}),
          .form_of = parts.form_of,
          .memory_slots = std::reduce(parts.memory_slots.begin(), parts.memory_slots.end()),
          .runs_layers = parts.runs_layers};
}

// Sorts the experts as PlanLayer() would with the model of memory: present ones first, and in each
// part the order of the routing. The plan's order so far came from memory's real contents, which
// depend on timing.
void SortBy(const ResidentModel& memory, LayerPlan& plan) {
  std::vector<size_t> choice_of(plan.row_of.size());  // [pair]
  for (size_t i = 0; i < plan.pair_of.size(); ++i) {
    if (plan.pair_of[i] != kNoPair) choice_of[plan.pair_of[i]] = i;
  }
  std::ranges::sort(plan.experts, {}, [&](const PlannedExpert& e) {
    return std::pair(!memory.contains(e.key), choice_of[e.first_pair]);
  });
}

// Share of the later uses of an expert that leaves the device, for which memory would keep it. With
// half or all of them so many move to and fro that OLMoE on an RTX 4090 loses 3 % (make lanes).
constexpr double kShareInMemory = 0.25;

}  // namespace

Result<Tiers> ParseTiers(std::string_view name) {
  for (const NamedTiers& known : kTiers) {
    if (known.name == name) return known.tiers;
  }
  return Fail(Errc::kUsage, "'{}' says nothing about tiers; known: auto, inclusive, exclusive",
              name);
}

Result<std::optional<Tiers>> ParseTiersAsked(std::string_view name) {
  if (name == "auto") return std::optional<Tiers>();
  TRY(const Tiers tiers, ParseTiers(name));
  return std::optional(tiers);
}

std::string_view NameOf(Tiers tiers) {
  return std::ranges::find(kTiers, tiers, &NamedTiers::tiers)->name;
}

DeviceTier::DeviceTier(DeviceTierSetup parts, const LatencyModel& model, PlaceMode mode)
    : parts_(std::move(parts)),
      model_(model),
      mode_(mode),
      is_on_(parts_.tables.size(), true),
      work_(parts_.tables.size()),
      uses_(parts_.n_layers, parts_.n_expert),
      under_way_(parts_.memory_slots.size()),
      whole_(parts_.n_layers),
      whole_slots_(WholePartsOf(parts_)) {
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
  DeviceWork& all = stats;
  for (const DeviceWork& one : work_) all += one;
  all.failures = failures_;  // a layer may fail by no device's fault
  stats.experts = experts_;
  stats.each = work_;
  return stats;
}

bool DeviceTier::is_in_memory(ExpertKey key) const {
  return parts_.memory ? parts_.memory->contains(key) : parts_.in_memory(key);
}

// Requests in the model of memory the experts that neither run from a device's slots nor are read
// past memory's slots.
void DeviceTier::RunInMemory(const LayerPlan& plan) {
  if (!parts_.memory) return;
  LayerPlan asked{.layer = plan.layer, .n_used = plan.n_used, .learned = plan.learned};
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

void DeviceTier::BeginLayer(ExpertLayerId layer) {
  if (layer.value == parts_.first_layer) uses_.BeginStep();
  for (std::optional<SlotTable>& t : parts_.tables | std::views::join) {
    if (t) t->BeginLayer(layer);
  }
  if (parts_.memory) parts_.memory->BeginLayer(layer);
}

void DeviceTier::Predict(ExpertLayerId layer, std::span<const ExpertId> experts) {
  for (std::optional<SlotTable>& t : parts_.tables | std::views::join) {
    if (t) t->Predict(layer, experts);
  }
  if (parts_.memory) parts_.memory->Predict(layer, experts);
}

void DeviceTier::FindWhole() {
  if (!parts_.runs_layers || devices() == 0) return;
  if (whole_.has_moved()) {
    whole_.Note([this](ExpertLayerId layer) {
      return is_on_.front() && whole_slots_.HasAll(parts_.tables.front(), layer);
    });
  }
  whole_.Use(WholeLayersPay(model_, mode_, parts_.bytes_of({}), UsedOf(parts_)));
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
    // Slots have a price once experts have been missing in memory.
    for (uint32_t d = 0; missing_ > 0.0 && !job.on_device && d < devices(); ++d) {
      job.slot_prices.push_back(SlotPrice(expert, d, own));
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// [device][form]: slots that copies may take, without those of the layer's own experts.
std::vector<std::vector<uint32_t>> DeviceTier::RoomFor(const LayerPlan& plan) const {
  std::vector<std::vector<uint32_t>> room(devices());
  for (uint32_t d = 0; d < devices(); ++d) {
    for (const std::optional<SlotTable>& t : parts_.tables[d]) {
      const bool takes_copies = t && is_on_[d] && !is_settled(d);
      room[d].push_back(takes_copies ? static_cast<uint32_t>(t->room()) : 0);
    }
  }
  for (const PlannedExpert& expert : plan.experts) {
    const auto device = ReadyOn(expert.key);
    if (!device || is_settled(*device)) continue;
    const uint32_t form = parts_.form_of(expert.key);
    const SlotId slot = table(*device, expert.key)->SlotOf(expert.key);
    if (*device != 0 || !whole_slots_.keeps(form, slot)) --room[*device][form];
  }
  return room;
}

// The places of the plan's experts; those of a whole layer are in slots of the first device.
LanePlan DeviceTier::PlanSites(const LayerPlan& plan) {
  if (!whole_.has(plan.layer)) return PlanLanes(JobsOf(plan), model_, mode_, RoomFor(plan));
  LanePlan lanes{.sites = std::vector<Site>(plan.experts.size(), {.place = Place::kDevice}),
                 .times = {.devices = std::vector<LaneTimes::Device>(devices())}};
  for (const PlannedExpert& expert : plan.experts) {
    lanes.times.devices.front().compute +=
        model_.devices.front().compute.Seconds(parts_.bytes_of(expert.key), expert.n_pairs);
  }
  return lanes;
}

LaneTimes DeviceTier::Assign(LayerPlan& plan) {
  for (PlannedExpert& expert : plan.experts) {
    expert.place = Place::kHost;
    expert.is_staged = false;
  }
  plan.moved_back.clear();
  if (!is_on_.empty() && !std::ranges::contains(is_on_, true)) return {};
  if (parts_.memory) SortBy(*parts_.memory, plan);
  const LanePlan lanes = PlanSites(plan);
  for (size_t i = 0; i < plan.experts.size(); ++i) {
    PlannedExpert& expert = plan.experts[i];
    expert.place = lanes.sites[i].place;
    expert.device = lanes.sites[i].device;
    if (expert.place == Place::kDevice) continue;
    const bool is_missing = !is_in_memory(expert.key);
    expert.is_staged =
        is_missing && expert.place == Place::kCopied && parts_.tiers == Tiers::kExclusive;
    missing_ += (is_missing - missing_) / static_cast<double>(std::min(++asked_, kMissWindow));
  }
  const std::vector<ExpertKey> own = KeysOf(plan);
  // Experts that a device has are pinned before copies look for victims.
  for (const Place place : {Place::kDevice, Place::kCopied}) {
    for (PlannedExpert& expert : plan.experts) {
      if (expert.place != place) continue;
      if (place == Place::kCopied) whole_.Move();
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
  }
  uses_.Count(plan, !is_filled_);
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

// The device has the expert, so the copy in memory may leave (exclusive tiers only).
void DeviceTier::LeaveMemory(ExpertKey key) {
  if (parts_.tiers == Tiers::kInclusive) return;
  if (parts_.memory) parts_.memory->Drop(key);
  if (parts_.drop) parts_.drop(key);
}

void DeviceTier::Failed(LayerPlan& plan, std::optional<uint32_t> by) {
  ++failures_;
  whole_.Move();
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

std::vector<DeviceTier::Promotion> DeviceTier::Fill(std::span<const ExpertKey> first) {
  constexpr double kNoLimit = std::numeric_limits<double>::infinity();
  const bool is_for_devices = mode_ == PlaceMode::kAuto || mode_ == PlaceMode::kGpuCentric;
  if (devices() == 0) return {};
  if (is_for_devices && !is_settled(0)) {
    const std::vector<ExpertKey> all = whole_slots_.AllIn(RoomFor({}).front());
    may_change_ = all.empty();
    if (!all.empty()) return FillWithin(all, kNoLimit);
  }
  if (first.empty()) return {};
  const WholeCase of = CaseOf(parts_.popularity, kNoLimit);
  return Divide(first, ChooseWhole(of, model_, mode_, kGainAtFirst), kNoLimit);
}

std::vector<DeviceTier::Promotion> DeviceTier::FillByUses() {
  if (!wants_fill()) return {};
  const bool is_change = std::exchange(is_filled_, true);
  may_change_ = !is_change;
  const ExpertUses::By by = is_change ? ExpertUses::By::kDecode : ExpertUses::By::kPrompt;
  // Decode without a prompt is not interrupted at its begin.
  if (devices() == 0 || (!is_change && !uses_.has_prompt())) return {};
  const std::vector<double> uses = uses_.Table(by);
  const std::vector<ExpertKey> popular = uses_.MostFirst(by);
  uses_.ForgetPrompt();
  const WholeCase of = CaseOf(uses, kMostFillSeconds);
  const WholeChoice choice =
      ChooseWhole(of, model_, mode_, is_change ? kGainToChange : kGainAtFirst);
  if (is_change) {
    if (of.n_layers == 0 || choice.layers == division().layers) return {};
    const double now = WholeSeconds(of, model_, division().layers);
    const double gain = now - choice.seconds;
    if (gain < kGainToChange * now || !Repays(popular, choice, gain)) return {};
  }
  return Divide(popular, choice, kMostFillSeconds);
}

WholeCase DeviceTier::CaseOf(std::span<const double> uses, double seconds) const {
  if (is_settled(0) || !is_on_.front()) return {};
  return whole_slots_.CaseOf(parts_.tables.front(), uses, model_.devices.front().copy, seconds);
}

// Whether the copies that the division takes cost no more than kTokensToRepay tokens gain.
bool DeviceTier::Repays(std::span<const ExpertKey> popular, const WholeChoice& choice,
                        double gain) const {
  const uint64_t copies = whole_slots_.CopiesFor(parts_.tables.front(), choice, popular,
                                                 [this](ExpertKey key) { return contains(key); });
  const Cost& copy = model_.devices.front().copy;
  return static_cast<double>(copies) * copy.Seconds(parts_.bytes_of({})) <= kTokensToRepay * gain;
}

// Divides the slots between whole layers and the first of `first`.
std::vector<DeviceTier::Promotion> DeviceTier::Divide(std::span<const ExpertKey> first,
                                                      const WholeChoice& choice, double seconds) {
  if (mode_ == PlaceMode::kCpu) return {};
  std::vector<Promotion> filled;
  for (const auto& [key, slot] : whole_slots_.Claim(parts_.tables.front(), choice)) {
    seconds -= model_.devices.front().copy.Seconds(parts_.bytes_of(key));
    filled.push_back({.key = key, .device = 0, .slot = slot});
    BeginCopy(filled.back());
  }
  std::vector<ExpertKey> others(first.begin(), first.end());
  std::erase_if(others, [this](ExpertKey key) { return whole_slots_.keeps(key.layer); });
  is_filled_ = is_filled_ || !filled.empty();
  filled.append_range(FillWithin(others, seconds));
  return filled;
}

// Chooses the experts that get a slot, and those that keep theirs. Slots are assigned later.
std::vector<DeviceTier::Promotion> DeviceTier::ChooseFilled(std::span<const ExpertKey> first,
                                                            double seconds,
                                                            std::vector<ExpertKey>& kept) const {
  std::vector<std::vector<uint32_t>> room = RoomFor({});
  std::vector<Promotion> chosen;
  for (const ExpertKey key : first) {
    const uint32_t form = parts_.form_of(key);
    if (const auto there = DeviceOf(key)) {
      if (room[*there][form] == 0) continue;
      --room[*there][form];
      kept.push_back(key);
      continue;
    }
    const auto has_room = [form](const std::vector<uint32_t>& its) { return its[form] > 0; };
    const auto found = std::ranges::find_if(room, has_room);
    if (found == room.end()) continue;
    const auto device = static_cast<uint32_t>(found - room.begin());
    const uint64_t bytes = parts_.bytes_of(key);
    if (std::isfinite(seconds)) {
      seconds -= model_.devices[device].copy.Seconds(bytes);
      if (!is_in_memory(key)) seconds -= model_.disk.Seconds(bytes);
      if (seconds < 0.0) break;
    }
    --(*found)[form];
    chosen.push_back({.key = key, .device = device, .slot = {}});
  }
  return chosen;
}

std::vector<DeviceTier::Promotion> DeviceTier::FillWithin(std::span<const ExpertKey> first,
                                                          double seconds) {
  std::vector<ExpertKey> kept;
  std::vector<Promotion> filled = ChooseFilled(first, seconds, kept);
  is_filled_ = is_filled_ || !filled.empty();
  std::vector<std::pair<SlotTable*, SlotId>> pinned;
  for (const ExpertKey key : kept) {
    SlotTable& its = *table(*DeviceOf(key), key);
    pinned.emplace_back(&its, its.Request(key, Use::kPrefetch)->slot);
  }
  // Filled experts take slots as prefetched ones: the policy has no rank for them yet, and the
  // oldest of them leaves first. Where all have a slot none leaves, and a layer's experts lie
  // together.
  if (filled.size() != size_t{parts_.n_layers} * parts_.n_expert) std::ranges::reverse(filled);
  for (Promotion& one : filled) {
    const std::optional<Placement> placed =
        table(one.device, one.key)->Request(one.key, Use::kPrefetch);
    CHECK(placed.has_value());
    one.slot = placed->slot;
    // A filled expert counts as used like the average expert so far.
    if (uses_.Of(one.key) == 0.0) uses_.Assume(one.key, parts_.usual_share);
    BeginCopy(one);
  }
  for (const auto& [its, slot] : pinned) its->Unpin(slot);
  return filled;
}

void DeviceTier::BeginCopy(const Promotion& filled) {
  ++work_[filled.device].filled;
  work_[filled.device].copied_bytes += parts_.bytes_of(filled.key);
  ++under_way_[parts_.pool_of(filled.key)];
}

// Average seconds of reading the expert for a use on the CPU, where uses that find the expert in
// memory count as 0.
double DeviceTier::DiskSeconds(ExpertKey key) const {
  return missing_ * model_.disk.Seconds(parts_.bytes_of(key));
}

// Seconds that a use on the device saves.
double DeviceTier::GainOf(ExpertKey key, uint32_t device) const {
  const uint64_t bytes = parts_.bytes_of(key);
  return std::max(0.0, DiskSeconds(key) + model_.host.Seconds(bytes) -
                           model_.devices[device].compute.Seconds(bytes));
}

// Seconds of the disk for the later uses of the expert that gives up its slot, less those for the
// later uses of this expert. Only the disk counts: where memory has both experts, CPU and devices
// share the later uses, and one expert more hardly ever makes a layer longer.
double DeviceTier::SlotPrice(const PlannedExpert& expert, uint32_t device,
                             std::span<const ExpertKey> keeps) const {
  const SlotTable* its = table(device, expert.key);
  if (mode_ != PlaceMode::kAuto || its == nullptr || !is_on_[device]) return 0.0;
  const std::optional<SlotTable::Room> room = its->RoomFor(expert.use, keeps);
  if (!room || !room->evicts) return 0.0;
  const double own = (uses_.Of(expert.key) + 1.0) * DiskSeconds(expert.key);
  return std::max(0.0, uses_.Of(*room->evicts) * DiskSeconds(*room->evicts) - own);
}

// Whether an expert that leaves the device moves to memory: if the reads that the move saves cost
// more than the copy and the reads of the expert that leaves memory for it. Afterwards memory has
// the expert.
bool DeviceTier::MovesBack(ExpertKey key, uint32_t device, std::span<const ExpertKey> keeps) {
  if (parts_.tiers == Tiers::kInclusive || is_in_memory(key)) return false;
  if (!parts_.memory && !parts_.memory_room) return false;
  const std::optional<SlotTable::Room> room =
      parts_.memory ? parts_.memory->RoomFor(key, keeps) : parts_.memory_room(key, keeps);
  if (!room) return false;
  const auto reads = [this](ExpertKey of) {
    return uses_.Of(of) * model_.disk.Seconds(parts_.bytes_of(of));
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
    const double saves = uses_.Of(expert.key) * GainOf(expert.key, device);
    if (saves > (best ? best->saves : 0.0)) best = Offer{.key = expert.key, .saves = saves};
  }
  if (!best) return std::nullopt;
  const std::optional<SlotTable::Room> room = table(device, best->key)->RoomFor(Use::kDecode);
  if (!room) return std::nullopt;
  if (!room->evicts) return best;  // an empty slot is filled while the link is idle
  best->saves -= model_.devices[device].copy.Seconds(parts_.bytes_of(best->key)) +
                 uses_.Of(*room->evicts) * GainOf(*room->evicts, device);
  return best->saves > 0.0 ? best : std::nullopt;
}

std::optional<DeviceTier::Promotion> DeviceTier::Promote(const LayerPlan& plan) {
  if (mode_ != PlaceMode::kAuto) return std::nullopt;
  if (std::reduce(under_way_.begin(), under_way_.end()) >= kMostPromotions) return std::nullopt;
  std::optional<Offer> best;
  uint32_t device = 0;
  for (uint32_t d = 0; d < devices(); ++d) {
    if (!is_on_[d] || is_settled(d)) continue;
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
  whole_.Move();
  if (has_landed) LeaveMemory(promotion.key);
}

std::vector<DeviceTier::Promotion> DeviceTier::Settle(uint32_t device,
                                                      std::span<const ExpertKey> experts) {
  CHECK(is_settled(device));
  std::vector<Promotion> settled;
  for (const ExpertKey key : experts) {
    SlotTable* its = table(device, key);
    if (mode_ == PlaceMode::kCpu || its == nullptr || its->room() == 0) continue;
    const std::optional<Placement> placed = its->Request(key, Use::kPrefetch);
    CHECK(placed && !placed->evicted);
    settled.push_back({.key = key, .device = device, .slot = placed->slot});
    ++work_[device].filled;
    work_[device].copied_bytes += parts_.bytes_of(key);
  }
  return settled;
}

// An expert that has not landed leaves its slot, which no other expert takes.
void DeviceTier::Settled(const Promotion& settled, bool has_landed) {
  SlotTable& its = *table(settled.device, settled.key);
  if (has_landed) {
    its.Landed(settled.slot);
  } else {
    its.Failed(settled.slot);
  }
  its.Unpin(settled.slot);
}

void DeviceTier::ComesBack(uint32_t device) {
  CHECK(is_settled(device));
  for (std::optional<SlotTable>& its : parts_.tables[device]) {
    if (!its) continue;
    for (const ExpertKey key : its->keys()) its->Drop(key);
  }
  is_on_[device] = true;
}

}  // namespace moestro
