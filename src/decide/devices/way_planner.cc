// SPDX-License-Identifier: MIT
#include "decide/devices/way_planner.h"

#include <algorithm>

#include "base/result.h"
#include "decide/devices/lane_planner.h"

namespace moestro {
namespace {

// Seconds of a layer's dense part on the CPU beside its products
// (bench/results/serial-2026-11-26.md: 48 us).
constexpr double kLayerSeconds = 48e-6;
// Products and other nodes of a layer's dense part take as long as so many experts of no bytes.
constexpr double kDenseLaunches = 5.0;

double ReadingMissing(const WholeCase& of, const LatencyModel& model, double there) {
  const double missing = 1.0 - std::min(1.0, there);
  return missing * of.n_layers * of.n_used * model.disk.Seconds(of.bytes);
}

}  // namespace

uint64_t ExpertsAlone(const MemoryBeside& beside) {
  const uint64_t room = beside.experts + beside.shared;
  return room - std::min(room, beside.dense_there);
}

DeviceWay WayPrices::best_there() const {
  DeviceWay best = DeviceWay::kDense;
  for (const DeviceWay way : {DeviceWay::kHot, DeviceWay::kWhole}) {
    if (Of(way) < Of(best)) best = way;
  }
  return best;
}

WayPrices PriceWays(const WayCase& of, const LatencyModel& model) {
  CHECK(!model.devices.empty());
  WayPrices prices;
  const auto price = [&](DeviceWay way) -> double& {
    return prices.seconds[static_cast<size_t>(way)];
  };
  const WholeCase& experts = of.experts;
  LatencyModel alone = model;
  alone.border = alone.border_pair = 0.0;
  WholeCase nothing_there = experts;
  nothing_there.slots = 0;
  price(DeviceWay::kCpu) = of.dense_alone + WholeSeconds(nothing_there, alone, 0) +
                           ReadingMissing(experts, model, of.in_memory_alone);
  if (model.border > 0.0) {
    price(DeviceWay::kDense) = of.dense + WholeSeconds(nothing_there, model, 0) +
                               ReadingMissing(experts, model, of.in_memory);
  }
  if (experts.slots == 0) return prices;
  const double all = static_cast<double>(experts.n_layers) * experts.n_expert;
  const double reading =
      ReadingMissing(experts, model, of.in_memory + static_cast<double>(experts.slots) / all);
  const WholeChoice whole = ChooseWhole(experts, model, PlaceMode::kAuto, 0.0);
  price(DeviceWay::kHot) = of.dense + whole.without + reading;
  if (whole.layers > 0) price(DeviceWay::kWhole) = of.dense + whole.seconds + reading;
  return prices;
}

double DenseSecondsOnCpu(uint64_t bytes, uint32_t n_layers, const LatencyModel& model) {
  return static_cast<double>(bytes) * model.host.per_byte + n_layers * kLayerSeconds;
}

double DenseSecondsOnDevice(uint64_t bytes, uint32_t n_layers, const LatencyModel& model) {
  const Cost& compute = model.devices.front().compute;
  return static_cast<double>(bytes) * compute.per_byte + n_layers * kDenseLaunches * compute.base;
}

bool WayWatch::Note(double seconds) {
  window_.push_back(seconds);
  if (window_.size() < kTokens) return false;
  const auto middle = window_.begin() + kTokens / 2;
  std::ranges::nth_element(window_, middle);
  median_ = *middle;
  window_.clear();
  ++windows_;
  return true;
}

}  // namespace moestro
