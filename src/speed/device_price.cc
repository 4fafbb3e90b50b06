// SPDX-License-Identifier: MIT
#include "speed/device_price.h"

#include <algorithm>
#include <vector>

#include "base/number.h"
#include "decide/devices/way_planner.h"
#include "decide/slots/first_experts.h"
#include "sim/replay.h"

namespace moestro {
namespace {

// Memory of a device for launches beside the work of the dense part.
constexpr uint64_t kLaunchBytes = 64 * kMiB;

// Bytes of the dense part that a token reads.
uint64_t DenseBytes(const ModelNeeds& needs) {
  uint64_t bytes = 0;
  for (const auto& [type, use] : needs.dense) bytes += use.bytes;
  return bytes;
}

// Seconds of a layer's dense part on the device. Layers with experts elsewhere wait for their
// routers.
double DenseThere(const ModelNeeds& needs, const LatencyModel& model, bool has_all) {
  const double seconds = DenseSecondsOnDevice(DenseBytes(needs), needs.n_layer, model);
  const double wait = has_all ? 0.0 : model.devices.front().launch;
  return seconds / needs.shape.n_layer + wait;
}

LatencyModel ModelOf(const ModelNeeds& needs, const DeviceToPrice& device, bool has_dense) {
  const auto experts = static_cast<double>(needs.shape.n_layer) * needs.shape.n_used;
  LatencyModel model = device.costs;
  model.host = {.per_byte = device.experts / (experts * static_cast<double>(needs.expert_bytes))};
  model.host_begin = 0.0;
  model.disk = {.per_byte = 1.0 / device.disk};
  // Costs that somebody wrote may have no border: a row there and one back take a launch at most.
  if (model.border == 0.0) model.border = model.devices.front().launch;
  if (!has_dense) model.border = model.border_pair = 0.0;
  return model;
}

}  // namespace

Result<DevicePrice> PriceDevice(const Trace& routing, const ModelNeeds& needs, const Fit& fit,
                                const FixedMemory& fixed, const DeviceToPrice& device) {
  const uint64_t moved = fixed.dense + fixed.kv;
  const uint64_t of_dense = moved + fixed.work + kLaunchBytes;
  DevicePrice price{.has_dense = of_dense < device.vram};
  const uint64_t taken = price.has_dense ? of_dense : kLaunchBytes;
  const uint64_t all = needs.shape.experts();
  const uint64_t there =
      std::min(all, (device.vram - std::min(device.vram, taken)) / needs.expert_bytes);
  price.share = static_cast<double>(there) / static_cast<double>(all);

  const std::vector<uint64_t> uses = RequestsIn(routing, device.count_from);
  const double dense_here = (device.resident - device.experts) / needs.shape.n_layer;
  const LatencyModel model = ModelOf(needs, device, price.has_dense);
  ReplayOptions options{.slots = std::min(fit.slots, fit.experts),
                        .policy = {.name = "next-use"},
                        .expert_bytes = needs.expert_bytes,
                        .costs = {.io_depth = device.io_depth},
                        .lanes = LaneMachine{.model = model},
                        .predictor = {.name = routing.info().depth > 0 ? "next-router" : "none"},
                        .count_from = device.count_from};
  const auto seconds = [&]() -> Result<double> {
    TRY(const ReplayResult result, Replay(routing, options));
    return result.seconds / static_cast<double>(std::max<uint64_t>(result.tokens, 1));
  };
  LaneMachine& machine = *options.lanes;
  // Memory is full, too: a run of some minutes has read what it holds.
  machine.fills_memory = true;
  machine.first = MostFirst(needs.shape, uses);
  machine.popularity.assign(uses.begin(), uses.end());
  machine.model.border = machine.model.border_pair = 0.0;
  machine.dense = {.base = dense_here};
  machine.mode = PlaceMode::kCpu;
  TRY(price.gain.without, seconds());
  machine.model = model;
  machine.mode = PlaceMode::kAuto;
  machine.device_slots = {there};
  if (price.has_dense) {
    machine.dense = {.base = DenseThere(needs, model, there == all)};
    options.slots = std::min(fit.experts, options.slots + moved / needs.expert_bytes);
  }
  TRY(price.gain.with, seconds());
  return price;
}

}  // namespace moestro
