// SPDX-License-Identifier: MIT
#include "native/device_ways.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/text.h"
#include "core/batch.h"

namespace moestro {
namespace {

// The share of the model's experts that so many bytes of memory hold.
double ShareIn(uint64_t bytes, const ExpertCatalog& catalog) {
  return std::min(1.0, static_cast<double>(bytes) / static_cast<double>(catalog.total_bytes()));
}

WayCase CaseOf(const OpenedModel& opened, const DeviceSetup& devices, const ExpertSlots& slots,
               const DenseModel& dense, const DeviceTier& tier,
               std::span<const double> popularity) {
  const DeviceBudget& plan = devices.first_here()->plan();
  const LatencyModel& model = tier.model();
  const uint32_t n_layers = opened.model.spec.n_layer();
  BatchRow row;
  row.wants_logits = true;
  const uint64_t dense_bytes = dense.ReadBy({&row, 1});
  const MemoryPlan& memory = slots.memory();
  const uint64_t held = memory.n_slots * (opened.catalog.total_bytes() / memory.n_experts);
  MemoryBeside beside{.experts = held};
  if (!opened.options.cache) {  // --cache keeps the number of slots
    beside.dense_there = plan.dense + plan.kv;
    if (devices.first_here()->info().kind == DeviceKind::kIntegrated) beside.shared = plan.bytes;
  }
  WayCase of{.experts = tier.CaseOf(popularity, std::numeric_limits<double>::infinity()),
             .dense_alone = DenseSecondsOnCpu(dense_bytes, n_layers, model),
             .in_memory_alone = ShareIn(ExpertsAlone(beside), opened.catalog),
             .in_memory = ShareIn(held, opened.catalog)};
  of.dense = plan.dense > 0 ? DenseSecondsOnDevice(dense_bytes, n_layers, model) : of.dense_alone;
  return of;
}

std::string PartsText(DeviceWay way, bool has_dense) {
  if (!has_dense) return "most used experts there";
  switch (way) {
    case DeviceWay::kHot:
      return "dense part and most used experts there";
    case DeviceWay::kWhole:
      return "dense part and whole layers there";
    default:
      return "dense part there";
  }
}

}  // namespace

std::optional<DeviceWays> FindDeviceWays(const OpenedModel& opened, const DeviceSetup& devices,
                                         const ExpertSlots& slots, const DenseModel& dense,
                                         const DeviceTier& tier) {
  if (devices.first_here() == nullptr) return std::nullopt;
  const std::vector<double> popularity = devices.popularity();
  DeviceWays ways{.of = CaseOf(opened, devices, slots, dense, tier, popularity)};
  ways.prices = PriceWays(ways.of, tier.model());
  ways.of.experts.uses = {};  // of `popularity`; the price of the CPU alone needs none
  const DeviceOptions& options = opened.options.device;
  const bool is_free =
      devices.is_auto() && options.place == PlaceMode::kAuto && options.remote.hosts.empty();
  const bool has_fixed_costs = !options.latency_model.empty();
  const bool is_gpu = devices.first_here()->info().kind != DeviceKind::kSoftware;
  ways.may_leave_at_start = is_free && (is_gpu || has_fixed_costs);
  // The CPU alone needs room for the dense part and still holds most of the experts.
  const bool has_room = ways.of.in_memory_alone >= ways.of.in_memory / 2;
  ways.may_leave_later = is_free && !has_fixed_costs && has_room;
  return ways;
}

std::string TextOf(const WayPrices& prices, const std::string& device) {
  constexpr double kMs = 1e3;
  const DeviceWay best = prices.best_there();
  const bool has_dense = std::isfinite(prices.Of(DeviceWay::kDense));
  return Format(
      "a token is expected to take {:.1f} ms with {} ({}) and {:.1f} ms with the CPU alone",
      kMs * prices.Of(best), device, PartsText(best, has_dense), kMs * prices.Of(DeviceWay::kCpu));
}

}  // namespace moestro
