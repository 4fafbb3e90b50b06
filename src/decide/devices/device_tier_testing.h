// SPDX-License-Identifier: MIT
// For tests of the device tier: a tier over devices of a few slots. Experts have two forms; the
// devices compute the first form.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "decide/devices/device_tier.h"
#include "decide/slots/policy.h"

namespace moestro {

inline constexpr uint64_t kBytes = 1'000'000;

inline ExpertKey Key(uint16_t expert, uint16_t layer = 0) { return {{layer}, {expert}}; }

// A copy takes as long as ten uses on a device save.
inline LatencyModel Costs() {
  return {.host = {.per_byte = 1.1e-9},
          .disk = {},
          .devices = {{.compute = {.per_byte = 0.1e-9}, .copy = {.per_byte = 10e-9}}}};
}
// The costs of Costs() with a second, slower device.
inline LatencyModel TwoDevices() {
  LatencyModel costs = Costs();
  costs.devices.push_back({.compute = {.per_byte = 0.6e-9}, .copy = {.per_byte = 10e-9}});
  return costs;
}
// A copy is quick; a read takes as long as 18 uses on the CPU.
inline LatencyModel SlowDisk() {
  LatencyModel costs = Costs();
  costs.devices[0].copy.per_byte = 0.2e-9;
  costs.disk.per_byte = 20e-9;
  return costs;
}

class Tier {
 public:
  // `slots`: slots of every device of `costs`. `memory`: slots of the model of memory; 0: memory
  // holds all experts.
  Tier(uint64_t slots, PlaceMode mode, const LatencyModel& costs = Costs(), uint64_t memory = 0,
       Tiers tiers = Tiers::kInclusive)
      : tier_(PartsOf(slots, costs.devices.size(), memory, tiers), costs, mode) {}
  Tier(const Tier&) = delete;  // tier_ calls this object to drop experts
  Tier& operator=(const Tier&) = delete;

  LayerPlan Plan(const std::vector<uint16_t>& experts, Use use = Use::kDecode) {
    LayerPlan plan{
        .layer = ExpertLayerId{0}, .n_rows = 1, .n_used = static_cast<uint32_t>(experts.size())};
    for (uint32_t i = 0; i < experts.size(); ++i) {
      plan.experts.push_back({.key = Key(experts[i]), .use = use, .first_pair = i, .n_pairs = 1});
      plan.pair_of.push_back(i);
    }
    plan.row_of.assign(experts.size(), 0);
    tier_.BeginLayer(ExpertLayerId{0});
    tier_.Assign(plan);
    return plan;
  }
  // Runs a layer from its plan to its end.
  LayerPlan Run(const std::vector<uint16_t>& experts) {
    const LayerPlan plan = Plan(experts);
    tier_.Done(plan);
    return plan;
  }
  DeviceTier* operator->() { return &tier_; }
  const std::vector<ExpertKey>& dropped() const { return dropped_; }

 private:
  static SlotTable Table(uint64_t slots) {
    auto policy = MakePolicy({.name = "lru"});
    return {PolicyShape{.slots = slots, .layers = 1, .experts = 64}, *std::move(policy)};
  }
  DeviceTierSetup PartsOf(uint64_t slots, size_t devices, uint64_t memory, Tiers tiers) {
    std::vector<std::vector<std::optional<SlotTable>>> tables(devices);
    for (std::vector<std::optional<SlotTable>>& its : tables) {
      its.resize(2);
      its[0].emplace(Table(slots));
    }
    DeviceTierSetup parts{.tables = std::move(tables),
                          .form_of = [](ExpertKey key) { return key.expert.value >= 50 ? 1U : 0U; },
                          .bytes_of = [](ExpertKey) { return kBytes; },
                          .in_memory = [](ExpertKey) { return true; },
                          .memory_slots = {memory > 0 ? memory : 64},
                          .pool_of = [](ExpertKey) { return 0U; },
                          .n_expert = 64,
                          .n_layers = 1,
                          .memory = {},
                          .tiers = tiers,
                          .drop = [this](ExpertKey key) { dropped_.push_back(key); },
                          .usual_share = 0.25};
    if (memory > 0) {
      std::vector<SlotTable> behind;
      behind.push_back(Table(memory));
      parts.memory.emplace(std::move(behind), [](ExpertKey) { return 0U; });
    }
    return parts;
  }
  std::vector<ExpertKey> dropped_;  // from memory
  DeviceTier tier_;
};

// The experts in the plan's order, such as "5h 3c 1D": on the CPU "h", on the first device "c"
// (copied first) or "D" (from a slot); "d" and "E" are the same on the second device.
inline std::string Text(const LayerPlan& plan) {
  std::string text;
  for (const PlannedExpert& e : plan.experts) {
    if (!text.empty()) text += ' ';
    text += std::to_string(e.key.expert.value);
    if (e.place == Place::kHost) {
      text += 'h';
    } else if (e.place == Place::kCopied) {
      text += e.device == 0 ? 'c' : 'd';
    } else {
      text += e.device == 0 ? 'D' : 'E';
    }
  }
  return text;
}

}  // namespace moestro
