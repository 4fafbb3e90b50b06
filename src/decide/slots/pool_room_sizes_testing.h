// SPDX-License-Identifier: MIT
// For pool_room_test.cc: machines of random sizes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "core/ids.h"
#include "core/run_identity.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "decide/devices/latency_model.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/budget.h"
#include "decide/slots/policy.h"
#include "decide/slots/resident_model.h"
#include "decide/slots/slot_table.h"

namespace moestro {

// The same on every machine.
class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  uint64_t Below(uint64_t n) { return random_() % n; }
  uint64_t Between(uint64_t least, uint64_t most) { return least + Below(most - least + 1); }
  bool OneIn(uint64_t n) { return Below(n) == 0; }
  double Share() { return static_cast<double>(Below(1000)) / 1000.0; }

 private:
  std::mt19937_64 random_;
};

struct Sizes {
  MoeShape moe;
  uint32_t own_pools = 1;  // by layer in turn
  bool has_low = false;
  std::vector<uint64_t> slots;                      // by pool: the own ones, then the low one
  std::vector<std::vector<uint64_t>> device_slots;  // [device][pool]
  PlaceMode mode = PlaceMode::kAuto;
  Tiers tiers = Tiers::kInclusive;
  bool is_fixed = false;  // plans do not depend on timing
  uint32_t depth = 1;
  uint32_t rows = 1;
  uint32_t prompt_rows = 0;
  bool has_little = false;
  LossyOptions lossy;
  LatencyModel costs;

  uint32_t pool_of(ExpertKey key) const {
    return key.copy == kLowCopy ? own_pools : key.layer.value % own_pools;
  }
  uint32_t pools() const { return own_pools + (has_low ? 1 : 0); }
  std::string text() const {
    std::ostringstream out;
    out << moe.n_layer << " layers, " << moe.n_used << " of " << moe.n_expert << ", slots";
    for (const uint64_t n : slots) out << ' ' << n;
    for (const auto& device : device_slots) {
      out << ", device";
      for (const uint64_t n : device) out << ' ' << n;
    }
    out << ", " << NameOf(mode) << ", " << NameOf(tiers) << (is_fixed ? ", fixed" : "")
        << ", depth " << depth << ", rows " << rows << "+" << prompt_rows
        << (has_low ? ", low" : "") << (has_little ? ", little" : "");
    return out.str();
  }
};

// Slots as a budget gives them, from the least that works to room for all. Sizes are in MiB, since
// the smallest budget is a whole number of them.
inline std::vector<uint64_t> SlotsOf(Sizes& sizes, Dice& dice) {
  std::vector<SlotClass> classes(sizes.pools());
  for (uint32_t p = 0; p < sizes.pools(); ++p) {
    const bool is_low = p == sizes.own_pools;
    uint64_t layers = sizes.moe.n_layer;
    if (!is_low) layers = (layers + sizes.own_pools - 1 - p) / sizes.own_pools;
    classes[p] = {.slot_bytes = (is_low ? 3U : 5U + p) * kMiB,
                  .experts = layers * sizes.moe.n_expert,
                  .minimum = sizes.moe.n_used,
                  .is_low = is_low};
  }
  BudgetRequest request{.dense = 10 * kMiB, .low_share = 0.3, .classes = classes};
  uint64_t least = request.dense;
  for (const SlotClass& c : classes) least += c.slot_bytes * std::min(c.minimum, c.experts);
  // Small ones more often: there slots are short.
  request.budget = least + kMiB * dice.Below(1 + dice.Below(1 + 40 * sizes.moe.n_layer));
  const auto split = SplitBudget(request);
  EXPECT_TRUE(split) << split.error().message;
  return split->slots;
}

inline LatencyModel CostsOf(size_t devices, Dice& dice) {
  LatencyModel costs{.host = {.per_byte = 1e-9 * (0.1 + dice.Share())},
                     .disk = {.per_byte = dice.OneIn(3) ? 0.0 : 4e-9 * dice.Share()}};
  for (size_t d = 0; d < devices; ++d) {
    costs.devices.push_back({.compute = {.per_byte = 0.3e-9 * dice.Share()},
                             .copy = {.per_byte = (dice.OneIn(2) ? 0.1e-9 : 4e-9) * dice.Share()}});
  }
  return costs;
}

inline Sizes RandomSizes(Dice& dice) {
  Sizes sizes;
  sizes.moe.n_layer = static_cast<uint32_t>(dice.Between(1, 8));
  sizes.moe.n_expert = static_cast<uint32_t>(dice.Between(1, 12));
  sizes.moe.n_used =
      static_cast<uint32_t>(dice.Between(1, std::min<uint64_t>(4, sizes.moe.n_expert)));
  sizes.own_pools = static_cast<uint32_t>(dice.Between(1, std::min(2U, sizes.moe.n_layer)));
  sizes.has_low = dice.OneIn(3);
  sizes.slots = SlotsOf(sizes, dice);
  sizes.device_slots.resize(dice.Between(0, 2));
  for (std::vector<uint64_t>& its : sizes.device_slots) {
    for (uint32_t p = 0; p < sizes.pools(); ++p) its.push_back(dice.OneIn(6) ? 0 : dice.Below(9));
  }
  sizes.mode = dice.OneIn(4) ? static_cast<PlaceMode>(dice.Below(4)) : PlaceMode::kAuto;
  sizes.tiers = dice.OneIn(2) ? Tiers::kExclusive : Tiers::kInclusive;
  sizes.is_fixed = dice.OneIn(2);
  sizes.depth = static_cast<uint32_t>(dice.Between(1, 3));
  sizes.rows = static_cast<uint32_t>(dice.OneIn(2) ? 1 : dice.Between(1, 6));
  sizes.prompt_rows = dice.OneIn(3) ? static_cast<uint32_t>(dice.Below(20)) : 0;
  sizes.has_little = sizes.moe.n_used > 1 && dice.OneIn(4);
  if (sizes.has_low) {
    sizes.lossy = {.t1 = 0.5 * dice.Share(), .t2 = 0.5 + 0.5 * dice.Share()};
    sizes.lossy.upgrades = dice.OneIn(2);
  }
  sizes.lossy.prefer_resident = dice.OneIn(5) ? dice.Share() : 0.0;
  sizes.lossy.is_reproducible = dice.OneIn(2);
  sizes.costs = CostsOf(sizes.device_slots.size(), dice);
  return sizes;
}

inline SlotTable Table(const Sizes& sizes, uint64_t slots) {
  auto policy = MakePolicy({.name = "lru"});
  return {PolicyShape{.slots = slots, .layers = sizes.moe.n_layer, .experts = sizes.moe.n_expert},
          *std::move(policy)};
}

inline ResidentModel Model(const Sizes& sizes) {
  std::vector<SlotTable> tables;
  for (const uint64_t n : sizes.slots) tables.push_back(Table(sizes, n));
  return {std::move(tables), [sizes](ExpertKey key) { return sizes.pool_of(key); }};
}

}  // namespace moestro
