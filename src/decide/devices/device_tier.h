// SPDX-License-Identifier: MIT
// The device tier decides which experts are in the slots of the devices, and which experts of a
// layer the devices compute. An expert is on at most one device. The tier is pure: the caller
// copies and launches, and then reports the result to the tier.
//
//   tier.Assign(plan)       before a layer: CPU or a device for each expert, slots for copies
//   ... copies and launches ...
//   tier.Done(plan)         the copies have landed, the launches are over
//   tier.Promote(plan)      an expert to copy to a device while later layers run
//
// An expert that runs from a device slot is not requested in memory; see Tiers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/devices/expert_uses.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "decide/devices/whole_planner.h"
#include "decide/devices/whole_slots.h"
#include "decide/slots/resident_model.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// Whether memory may hold an expert that is on a device.
enum class Tiers : uint8_t {
  kInclusive,  // yes: uses on a device do not count in memory, so memory gives up such experts
               // first
  // No: an expert that has landed on a device leaves memory. An expert that is read for a copy
  // takes no slot of memory. An expert that leaves the device goes back to memory if that saves
  // time.
  kExclusive,
};
// kUsage for an unknown name; the message lists the known ones.
Result<Tiers> ParseTiers(std::string_view name);
// As ParseTiers(); nullopt for "auto".
Result<std::optional<Tiers>> ParseTiersAsked(std::string_view name);
std::string_view NameOf(Tiers tiers);
// The tiers of a machine whose memory has `slots` slots for `experts` experts, low copies aside.
// Up to half of the experts exclusive tiers are 0.98 to 1.5 times as quick as inclusive ones: an
// expert that has come to a device leaves its slot to one that the disk would have to bring. With
// three quarters they are 0.83 to 1.28 times as quick, and with all 0.7 to 0.99: the way back to
// memory is a copy (docs/devices-results.md).
constexpr Tiers TiersFor(uint64_t slots, uint64_t experts) {
  return slots <= experts / 2 ? Tiers::kExclusive : Tiers::kInclusive;
}

struct DeviceTierSetup {
  // [device][form (core/expert_catalog.h)], since a slot is a place in a tensor of one type;
  // nullopt: that device does not compute that form.
  std::vector<std::vector<std::optional<SlotTable>>> tables;
  std::function<uint32_t(ExpertKey)> form_of;
  std::function<uint64_t(ExpertKey)> bytes_of;
  std::function<bool(ExpertKey)> in_memory;  // or on its way to memory
  // Memory's slots by pool. An expert keeps its slot while it is copied to a device for later.
  std::vector<uint64_t> memory_slots;
  std::function<uint32_t(ExpertKey)> pool_of;  // of memory
  uint32_t n_expert = 0;                       // of a layer
  uint32_t n_layers = 0;                       // with experts
  uint32_t first_layer = 0;                    // of a decode step
  // Used in place of `in_memory` where plans must not depend on timing: what memory would hold if
  // every read were done at once. (Timing decides which experts reads ahead have brought.)
  std::optional<ResidentModel> memory = {};
  Tiers tiers = Tiers::kInclusive;
  std::function<void(ExpertKey)> drop = {};  // memory gives up an expert, if it can
  // The expert that would leave memory for an expert that memory lacks; see SlotTable::RoomFor().
  // The tier does not call this if it has `memory`.
  std::function<std::optional<SlotTable::Room>(ExpertKey, std::span<const ExpertKey> keeps)>
      memory_room = {};
  // [device] True: the experts of Settle() stay there, and no others come. Empty: of no device.
  std::vector<bool> is_settled = {};
  // The share of the steps that use an expert: K of E. It stands for the uses of filled experts.
  double usual_share = 0.0;
  // [layer][expert] Uses of the experts of Fill(), in any measure; empty: not known.
  std::vector<double> popularity = {};
  // The first device has the dense part and chooses experts itself in layers that it computes
  // whole.
  bool runs_layers = false;
};

struct DeviceWork {
  // Experts computed on the device from a slot, counted once for all rows of a step.
  uint64_t on_device = 0;
  uint64_t copied = 0;      // experts copied first and then computed on the device
  uint64_t staged = 0;      // of the copied experts: read from the disk past memory's slots
  uint64_t filled = 0;      // experts that got slots before the first step
  uint64_t promotions = 0;  // experts copied to the device for later layers or steps
  uint64_t moved_back = 0;  // experts that moved to memory when others took their slots
  uint64_t copied_bytes = 0;
  uint64_t failures = 0;  // layers that the CPU computed after a failure

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

// Calls of the driver of a device of this machine. Each costs, and a wait costs most.
struct DeviceTraffic {
  uint64_t graphs_built = 0;
  uint64_t launches = 0;
  uint64_t waits = 0;
  uint64_t writes = 0;
  uint64_t reads = 0;
  uint64_t bytes_there = 0;  // written
  uint64_t bytes_back = 0;   // read

  static constexpr void Visit(auto&& visit) {
    using T = DeviceTraffic;
    visit(&T::graphs_built, CounterText{.json = "graphs_built"});
    visit(&T::launches, CounterText{.json = "launches"});
    visit(&T::waits, CounterText{.json = "waits"});
    visit(&T::writes, CounterText{.json = "writes"});
    visit(&T::reads, CounterText{.json = "reads"});
    visit(&T::bytes_there, CounterText{.json = "bytes_there"});
    visit(&T::bytes_back, CounterText{.json = "bytes_back"});
  }
};
static_assert(CountsAllOf<DeviceTraffic>());

// The work of all devices together, and of each device.
struct DeviceStats : DeviceWork {
  uint64_t experts = 0;       // experts planned, for the CPU and the devices
  uint64_t layers_there = 0;  // layers whose rows stayed on the first device
  std::vector<DeviceWork> each = {};
  std::vector<DeviceTraffic> traffic = {};  // [device]; zeros for remote hosts
};

// Layers that the first device computes whole.
class WholeLayerList {
 public:
  explicit WholeLayerList(uint32_t n_layers) : has_all_(n_layers), whole_(n_layers) {}

  bool has(ExpertLayerId layer) const { return layer.value < whole_.size() && whole_[layer.value]; }
  bool has_all() const { return !whole_.empty() && !std::ranges::contains(whole_, false); }
  // Changes whenever experts have come to the device or left it.
  uint64_t version() const { return version_; }

  void Move() { has_moved_ = true; }
  bool has_moved() const { return has_moved_; }
  // Notes the layers that have all experts on the device.
  void Note(const std::function<bool(ExpertLayerId)>& has_all) {
    has_moved_ = false;
    ++version_;
    for (uint16_t l = 0; l < has_all_.size(); ++l) has_all_[l] = has_all(ExpertLayerId{l});
  }
  // pays: whether layers that have all experts there are computed whole.
  void Use(bool pays) {
    for (size_t l = 0; l < whole_.size(); ++l) whole_[l] = pays && has_all_[l];
  }

 private:
  std::vector<bool> has_all_;  // [layer]: all experts are on the device
  std::vector<bool> whole_;    // [layer]
  uint64_t version_ = 0;
  bool has_moved_ = true;
};

class DeviceTier {
 public:
  // REQUIRES: the model has the devices of `parts`.
  DeviceTier(DeviceTierSetup parts, const LatencyModel& model, PlaceMode mode);

  void BeginSequence();
  void BeginLayer(ExpertLayerId layer);
  void Predict(ExpertLayerId layer, std::span<const ExpertId> experts);
  // Whether the expert is on a device, or on its way to one.
  bool contains(ExpertKey key) const;
  bool is_in_memory(ExpertKey key) const;  // as plans see memory

  // Call before a step. Finds the layers that the first device computes whole: those of which it
  // has all experts, if that is expected to be faster than with the CPU beside it. Rows of such a
  // layer never leave the device, which also chooses their experts.
  void FindWhole();
  const WholeLayerList& whole() const { return whole_; }
  // [expert] The layer's slots on the first device. REQUIRES: whole().has(layer).
  std::vector<SlotId> SlotsOfWhole(ExpertLayerId layer) const {
    return whole_slots_.SlotsOf(parts_.tables.front(), layer);
  }

  // Gives every expert its place, and experts of the devices their slots, pinned until Done() or
  // Failed(). All experts of a whole layer are the first device's. Orders the experts as
  // LayerPlan::experts requires, and lists the experts that move back first. If all devices are
  // off, the CPU computes all experts.
  LaneTimes Assign(LayerPlan& plan);
  // The copies have landed and the launches have ended.
  void Done(const LayerPlan& plan);
  // The copies or launches of the plan have failed. Copied experts give their slots back, and the
  // CPU computes every expert of the plan. `by`: the device that failed; nullopt: none did.
  void Failed(LayerPlan& plan, std::optional<uint32_t> by);

  struct Promotion {
    ExpertKey key;
    uint32_t device = 0;
    SlotId slot;  // loading and pinned until Promoted()
    // The expert that left the slot and goes back to memory.
    std::optional<ExpertKey> moved_back = {};
  };
  // Call before the first step. The last layers of the model get slots for all their experts, as
  // many layers as ChooseWhole() gives, and keep these slots. Then the experts of `first` get
  // device slots in this order while slots are free; slots of the first device are given first.
  // These experts leave in the reverse order, and before any expert that decode has used on the
  // device. If the first device has room for all experts of the model, all of them get slots,
  // unless the mode is for the CPU. PlaceMode::kCpu: no expert gets a slot.
  std::vector<Promotion> Fill(std::span<const ExpertKey> first);
  // Call before a step that decodes, with no copy under way. Before the first, if Fill() has filled
  // no slot, slots are filled as there, by the experts that the prompts so far requested most.
  // After kTokensToChange steps, once, they are divided anew if by the uses so far a token takes
  // kGainToChange less, and kTokensToRepay tokens repay the copies. By the latency model copies
  // take at most kMostFillSeconds, since a token waits for them.
  std::vector<Promotion> FillByUses();
  static constexpr double kMostFillSeconds = 2.0;
  static constexpr uint64_t kTokensToChange = 64;
  static constexpr double kGainToChange = 0.1;
  static constexpr double kTokensToRepay = 512.0;
  // The same for whole layers by other uses: those of decode are less even.
  static constexpr double kGainAtFirst = 0.2;
  bool is_filled() const { return is_filled_; }
  bool wants_fill() const {
    return !is_filled_ || (may_change_ && uses_.decoded() >= kTokensToChange);
  }
  const WholeChoice& division() const { return whole_slots_.division(); }
  // The case of ChooseWhole() on the first device, if the device takes experts.
  WholeCase CaseOf(std::span<const double> uses, double seconds) const;
  // Copies for later that may be under way. Their bytes compete with the step's own.
  static constexpr size_t kMostPromotions = 8;
  // Call after Done(). Copies at most one expert for a layer of decode. The CPU has computed this
  // expert from memory. Its later uses must save more than the copy costs and the expert that
  // leaves would have saved. The expert moves to the device where it saves most. No expert moves
  // from one device to another. The expert keeps its slot of memory until Promoted(). The number of
  // such copies under way is limited, so that later layers of the step find slots (PoolRoom). Only
  // in PlaceMode::kAuto.
  std::optional<Promotion> Promote(const LayerPlan& plan);
  void Promoted(const Promotion& promotion, bool has_landed);

  // Gives slots of a device whose experts stay the same to `experts` in their order, while slots
  // are free; loading and pinned until Settled(). No slot of memory waits for them. REQUIRES:
  // DeviceTierSetup::is_settled; no expert is on another device.
  std::vector<Promotion> Settle(uint32_t device, std::span<const ExpertKey> experts);
  // has_landed false: the expert's copy failed, and is not tried again.
  void Settled(const Promotion& settled, bool has_landed);
  // The device is back and empty, after TurnOff() or not. Call between steps, when every copy of a
  // settled expert has landed or failed.
  void ComesBack(uint32_t device);

  // From now on no expert runs on the device; the other devices go on.
  void TurnOff(uint32_t device) {
    is_on_[device] = false;
    whole_.Move();
  }
  bool is_on(uint32_t device) const { return is_on_[device]; }
  void SetModel(const LatencyModel& model) { model_ = model; }
  const LatencyModel& model() const { return model_; }
  DeviceStats stats() const;

 private:
  uint32_t devices() const { return static_cast<uint32_t>(parts_.tables.size()); }
  bool is_settled(uint32_t device) const {
    return !parts_.is_settled.empty() && parts_.is_settled[device];
  }
  SlotTable* table(uint32_t device, ExpertKey key);
  const SlotTable* table(uint32_t device, ExpertKey key) const;
  // The device in use that has the expert, ready or on its way; nullopt: no device has it.
  std::optional<uint32_t> DeviceOf(ExpertKey key) const;
  std::optional<uint32_t> ReadyOn(ExpertKey key) const;
  void LeaveMemory(ExpertKey key);
  void RunInMemory(const LayerPlan& plan);
  std::vector<LaneJob> JobsOf(const LayerPlan& plan);
  std::vector<std::vector<uint32_t>> RoomFor(const LayerPlan& plan) const;
  void CountUses(const LayerPlan& plan);
  bool Repays(std::span<const ExpertKey> popular, const WholeChoice& choice, double gain) const;
  std::vector<Promotion> Divide(std::span<const ExpertKey> first, const WholeChoice& choice,
                                double seconds);
  LanePlan PlanSites(const LayerPlan& plan);
  std::vector<Promotion> FillWithin(std::span<const ExpertKey> first, double seconds);
  void BeginCopy(const Promotion& filled);
  std::vector<Promotion> ChooseFilled(std::span<const ExpertKey> first, double seconds,
                                      std::vector<ExpertKey>& kept) const;
  double DiskSeconds(ExpertKey key) const;
  double GainOf(ExpertKey key, uint32_t device) const;
  double SlotPrice(const PlannedExpert& expert, uint32_t device,
                   std::span<const ExpertKey> keeps) const;
  struct Offer {
    ExpertKey key;
    double saves = 0.0;
  };
  std::optional<Offer> BestMove(const LayerPlan& plan, uint32_t device) const;
  bool MayKeepSlot(ExpertKey key, const LayerPlan& plan) const;
  bool MovesBack(ExpertKey key, uint32_t device, std::span<const ExpertKey> keeps);

  DeviceTierSetup parts_;
  LatencyModel model_;
  PlaceMode mode_;
  std::vector<bool> is_on_;       // [device]
  std::vector<DeviceWork> work_;  // [device]
  uint64_t experts_ = 0;          // planned
  uint64_t asked_ = 0;            // of `experts_`: did not run from device slots
  uint64_t failures_ = 0;         // layers
  ExpertUses uses_;
  bool may_change_ = true;  // FillByUses() after kTokensToChange
  bool is_filled_ = false;
  // Share of the experts without device slots that memory lacked.
  double missing_ = 0.0;
  std::vector<uint64_t> under_way_;  // [pool of memory]: copies for later
  WholeLayerList whole_;
  WholeSlots whole_slots_;
};

}  // namespace moestro
