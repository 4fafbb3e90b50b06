// SPDX-License-Identifier: MIT
// What the slots of the devices hold, and which experts of a layer are computed there. An expert is
// on at most one device. Pure: the caller copies and launches, and says what came of it.
//
//   tier.Assign(plan)       before a layer: CPU or a device for each expert, slots for the copies
//   ... copies and launches ...
//   tier.Done(plan)         the copies are there, the launches over
//   tier.Promote(plan)      an expert that should move to a device while later layers run
//
// What runs from a slot there is not asked for in memory; see Tiers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "decide/slots/pool_room.h"
#include "decide/slots/resident_model.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// Whether memory may have what a device has.
enum class Tiers : uint8_t {
  kInclusive,  // yes: it does not hear of uses there, so it gives such experts up first
  // No: what has landed there leaves memory, what is read for a copy takes no slot of it, and who
  // leaves the device goes back to memory if that pays.
  kExclusive,
};
// kUsage for an unknown name; the message lists the known ones.
Result<Tiers> ParseTiers(std::string_view name);
std::string_view NameOf(Tiers tiers);

struct DeviceTierParts {
  // [device][form (core/expert_catalog.h)], since a slot is a place in a tensor of one type;
  // nullopt: that device does not compute that form.
  std::vector<std::vector<std::optional<SlotTable>>> tables;
  std::function<uint32_t(ExpertKey)> form_of;
  std::function<uint64_t(ExpertKey)> bytes_of;
  std::function<bool(ExpertKey)> in_memory;  // or on its way there
  // Memory's slots by pool, of which an expert keeps one while it is copied to a device for later.
  std::vector<uint64_t> memory_slots;
  std::function<uint32_t(ExpertKey)> pool_of;  // of memory
  uint32_t n_expert = 0;                       // of a layer
  // In place of `in_memory` where plans must not depend on timing, which decides what reads ahead
  // have brought: what memory would hold if every read were done at once.
  std::optional<ResidentModel> memory = {};
  Tiers tiers = Tiers::kInclusive;
  std::function<void(ExpertKey)> drop = {};  // memory lets go of an expert, if it can
  // Who leaves memory for an expert that it lacks, as SlotTable::RoomFor() says; not asked if there
  // is a model of it.
  std::function<std::optional<SlotTable::Room>(ExpertKey, std::span<const ExpertKey> keeps)>
      memory_room = {};
  double usual_share = 0.0;  // of the steps that use an expert: K of E; of who is there first
};

struct DeviceWork {
  uint64_t on_device = 0;   // experts computed there from a slot, once for all rows of a step
  uint64_t copied = 0;      // computed there, but copied first
  uint64_t staged = 0;      // of these, read from the disk past memory's slots
  uint64_t filled = 0;      // given slots before the first step
  uint64_t promotions = 0;  // moved there for later
  uint64_t moved_back = 0;  // from there to memory, when others came
  uint64_t copied_bytes = 0;
  uint64_t failures = 0;  // layers that the CPU computed after all

  uint64_t computed() const { return on_device + copied; }

  static constexpr void Visit(auto&& visit) {
    using W = DeviceWork;
    visit(&W::on_device, CounterText{});
    visit(&W::computed, CounterText{.json = "computed"});
    visit(&W::copied, CounterText{.json = "copied"});
    visit(&W::staged, CounterText{.json = "staged"});
    visit(&W::filled, CounterText{.json = "filled"});
    visit(&W::promotions, CounterText{.json = "promotions"});
    visit(&W::moved_back, CounterText{.json = "moved_back"});
    visit(&W::copied_bytes, CounterText{.json = "copied_bytes"});
    visit(&W::failures, CounterText{.json = "failures"});
  }
};
static_assert(CountsAllOf<DeviceWork>());

// All devices together, and each.
struct DeviceStats : DeviceWork {
  uint64_t experts = 0;       // planned, wherever they were computed
  uint64_t layers_there = 0;  // whose rows did not come back from the first device
  std::vector<DeviceWork> each = {};
};

class DeviceTier {
 public:
  // REQUIRES: the model has the devices of `parts`.
  DeviceTier(DeviceTierParts parts, const LatencyModel& model, PlaceMode mode);

  void BeginSequence();
  void BeginLayer(ExpertLayerId layer);
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts);
  // There, or on its way there.
  bool contains(ExpertKey key) const;
  // As plans see it.
  bool is_in_memory(ExpertKey key) const;

  // Gives every expert its place and those of the devices their slots, pinned until Done() or
  // Failed(); orders them as a plan says, and says who moves back before that. All devices off: all
  // on the CPU.
  LaneTimes Assign(LayerPlan& plan);
  // The copies have landed and the launches have ended.
  void Done(const LayerPlan& plan);
  // They have not: copied experts are not there. Afterwards all of the plan is for the CPU. `by`:
  // whose fault it was; nullopt: no device's.
  void Failed(LayerPlan& plan, std::optional<uint32_t> by);

  struct Promotion {
    ExpertKey key;
    uint32_t device = 0;
    SlotId slot;                               // loading and pinned until Promoted()
    std::optional<ExpertKey> moved_back = {};  // from that slot, before
  };
  // Before the first step: the experts of `first` get device slots, as far as slots suffice, the
  // first device's before the next one's. These experts leave in the reverse order, and before any
  // expert that decode has used there. PlaceMode::kCpu: no expert gets a slot.
  std::vector<Promotion> Fill(std::span<const ExpertKey> first);
  // Before a step that decodes, once, unless Fill() has filled a slot: the experts that the prompts
  // so far asked for most get device slots, as many as the latency model copies in
  // kMostFillSeconds: the first token waits for these copies.
  std::vector<Promotion> FillByPrompt();
  static constexpr double kMostFillSeconds = 2.0;
  bool is_filled() const { return is_filled_; }
  // Copies for later that may be under way: their bytes compete with the step's own.
  static constexpr size_t kMostPromotions = 8;
  // After Done(). At most one for a layer of decode: an expert that the CPU computed from memory,
  // if what its later uses will save pays for the copy, and for what the one that leaves would have
  // saved; to the device where most is left of that. No expert moves from one device to another.
  // Until Promoted() it keeps its slot of memory, and so many are under way at most that later
  // layers of the step find theirs (PoolRoom). Only in PlaceMode::kAuto.
  std::optional<Promotion> Promote(const LayerPlan& plan);
  void Promoted(const Promotion& promotion, bool has_landed);

  // Nothing runs on that device any more; the others go on.
  void TurnOff(uint32_t device) { is_on_[device] = false; }
  bool is_on(uint32_t device) const { return is_on_[device]; }
  // Follows what the machine really does.
  void SetModel(const LatencyModel& model) { model_ = model; }
  const LatencyModel& model() const { return model_; }
  DeviceStats stats() const;

 private:
  uint32_t devices() const { return static_cast<uint32_t>(parts_.tables.size()); }
  SlotTable* table(uint32_t device, ExpertKey key);
  const SlotTable* table(uint32_t device, ExpertKey key) const;
  // The device that has it, ready or on its way; nullopt: none of those in use.
  std::optional<uint32_t> DeviceOf(ExpertKey key) const;
  std::optional<uint32_t> ReadyOn(ExpertKey key) const;
  void LeaveMemory(ExpertKey key);
  void SortByModel(LayerPlan& plan) const;
  void RunInMemory(const LayerPlan& plan);
  std::vector<LaneJob> JobsOf(const LayerPlan& plan);
  std::vector<std::vector<uint32_t>> RoomFor(const LayerPlan& plan) const;
  void CountUses(const LayerPlan& plan);
  std::vector<Promotion> FillWithin(std::span<const ExpertKey> first, double seconds);
  std::vector<Promotion> ChooseFilled(std::span<const ExpertKey> first, double seconds,
                                      std::vector<ExpertKey>& kept) const;
  double UsesOf(ExpertKey key) const;
  double DiskSeconds(ExpertKey key) const;
  double GainOf(ExpertKey key, uint32_t device) const;
  double SlotPrice(const PlannedExpert& expert, uint32_t device,
                   std::span<const ExpertKey> keeps) const;
  // What moving the best of the plan to that device saves, less its price.
  struct Offer {
    ExpertKey key;
    double saves = 0.0;
  };
  std::optional<Offer> BestMove(const LayerPlan& plan, uint32_t device) const;
  bool MayKeepSlot(ExpertKey key, const LayerPlan& plan) const;
  bool MovesBack(ExpertKey key, uint32_t device, std::span<const ExpertKey> keeps);

  DeviceTierParts parts_;
  LatencyModel model_;
  PlaceMode mode_;
  std::vector<bool> is_on_;       // [device]
  std::vector<DeviceWork> work_;  // [device]
  uint64_t experts_ = 0;          // planned
  uint64_t asked_ = 0;            // of these, not run from slots there
  uint64_t failures_ = 0;         // layers
  // Uses by decode, of which half are forgotten every kHalfLife steps.
  struct Uses {
    double count = 0.0;
    uint64_t step = 0;  // when `count` was right
  };
  static constexpr double kHalfLife = 64.0;  // an expert's uses are roughly those to come, too
  std::unordered_map<ExpertKey, Uses> uses_;
  uint64_t step_ = 0;
  std::unordered_map<ExpertKey, uint64_t> prompt_rows_;  // until is_filled_
  bool is_filled_ = false;
  double missing_ = 0.0;             // share of what is not run from slots there that memory lacked
  std::vector<uint64_t> under_way_;  // [pool of memory]: copies for later
};

}  // namespace moestro
