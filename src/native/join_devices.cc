// SPDX-License-Identifier: MIT
#include "native/join_devices.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/format.h"
#include "base/log.h"
#include "decide/devices/settled_shares.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"
#include "native/catalog.h"
#include "native/plan/remote_gain.h"

namespace moestro {
namespace {

// Bytes that the disk's bandwidth is measured with.
constexpr uint64_t kDeviceProbeBytes = 64 * kMiB;

// Launches from one known row to the next: known rows take at most a hundredth of the time.
uint32_t LaunchesToCheck(double check_seconds, double layer_seconds) {
  constexpr double kShare = 0.01;
  constexpr double kLeast = 8.0;
  constexpr double kMost = 1024.0;
  const double launches = layer_seconds > 0.0 ? check_seconds / (kShare * layer_seconds) : kMost;
  return static_cast<uint32_t>(std::clamp(launches, kLeast, kMost));
}

Status FindDiskCosts(const std::string& latency_model, DeviceSetup& devices, ExpertSlots& slots) {
  if (latency_model.empty()) {
    TRY(const double bandwidth, slots.ProbeReads(kDeviceProbeBytes));
    for (const std::unique_ptr<Device>& one : devices.devices()) {
      one->plan().latency.disk = {.per_byte = 1.0 / bandwidth};
    }
    return {};
  }
  if (devices.devices().front()->plan().latency.disk == Cost{} && !slots.holds_all()) {
    LogWarning(
        "{} has no costs of the disk: plans take reads for free; 'moestro devices MODEL --profile "
        "-o FILE' measures them",
        latency_model);
  }
  return {};
}

// The CPU's costs as measured with the first device. Beside any device the CPU is taken to be as
// slow as beside the one that slows it down most.
LatencyModel LatencyOfAll(const DeviceSetup& devices) {
  LatencyModel all = devices.devices().front()->plan().latency;
  all.devices.clear();
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    all.host_beside = std::max(all.host_beside, one->plan().latency.host_beside);
    all.devices.push_back(one->plan().latency.devices.front());
  }
  return all;
}

PlaceMode PlaceOf(const DeviceOptions& options) {
  const bool has_chosen = options.place != PlaceMode::kAuto;
  if (has_chosen || options.remote.hosts.empty() || !options.remote.is_always) return options.place;
  return PlaceMode::kCooperative;
}

// Tables of one device, by form; nullopt: the device computes no such expert.
Result<std::vector<std::optional<SlotTable>>> TablesOf(const Device& device,
                                                       const PolicyChoice& policy,
                                                       const MoeShape& shape) {
  std::vector<std::optional<SlotTable>> tables(device.slots().size());
  for (size_t form = 0; form < tables.size(); ++form) {
    if (device.slots()[form] == 0) continue;
    TRY(std::unique_ptr<Policy> its, MakePolicy(policy));
    tables[form].emplace(PolicyShape::Of(device.slots()[form], shape), std::move(its));
  }
  return tables;
}

bool IsRemote(const Device& device) { return device.here() == nullptr; }

// Whether plans are expected to be faster with remote hosts, by the costs just measured.
bool RemotesPay(const OpenedModel& opened, const DeviceSetup& devices, const ExpertSlots& slots,
                const LatencyModel& costs) {
  const MoeShape& shape = opened.model.id.shape;
  const auto share = [&](std::span<const uint64_t> of) {
    const auto n = static_cast<double>(std::reduce(of.begin(), of.end()));
    return std::min(1.0, n / static_cast<double>(shape.experts()));
  };
  RemoteCase of{.n_used = shape.n_used,
                .expert_bytes = opened.catalog.total_bytes() / shape.experts(),
                .in_memory = share(slots.slots())};
  std::string names;
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    of.there.push_back(IsRemote(*one) ? share(one->slots()) : 0.0);
    if (!IsRemote(*one)) continue;
    names += Format("{}{}", names.empty() ? "" : ", ", one->info().name);
  }
  const bool is_always = opened.options.device.remote.is_always;
  const RemoteGain gain =
      GainOfRemotes(of, costs, is_always ? PlaceMode::kCooperative : PlaceMode::kAuto);
  for (uint32_t d = 0; d < devices.devices().size(); ++d) {
    Device& host = *devices.devices()[d];
    if (!IsRemote(host)) continue;
    const DeviceCosts& its = costs.devices[d];
    host.transport().CheckEvery(
        LaunchesToCheck(its.launch + its.compute.Seconds(of.expert_bytes), gain.with));
  }
  constexpr double kMs = 1e3;
  const std::string figures =
      Format("a layer's experts are expected to take {:.2f} ms with {} and {:.2f} without",
             kMs * gain.with, names, kMs * gain.without);
  if (gain.pays() || is_always) {
    LogInfo("{}", figures);
    return true;
  }
  LogWarning("{}, so they are left unused; --remote-always uses them all the same", figures);
  return false;
}

}  // namespace

Result<std::unique_ptr<DeviceList>> JoinDevices(const OpenedModel& opened, DeviceSetup& devices,
                                                ExpertSlots& slots, bool has_dense) {
  const DeviceOptions& chosen = opened.options.device;
  TRY_STATUS(FindDiskCosts(chosen.latency_model, devices, slots));
  const bool has_fixed_costs = !chosen.latency_model.empty();
  const MoeShape& shape = opened.model.id.shape;
  std::vector<std::vector<std::optional<SlotTable>>> tables;
  std::vector<Device*> list;
  DeviceList::Options options{.is_fixed = has_fixed_costs,
                              .lost = [](const std::string& why) { LogWarning("{}", why); }};
  std::vector<bool> is_settled;
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    // A lost device that holds keys and values takes them along, so the run ends.
    const bool has_cells = has_dense && one.get() == devices.first_here();
    options.ends_if_lost.push_back(!IsRemote(*one) && (!devices.goes_on_if_lost() || has_cells));
    is_settled.push_back(IsRemote(*one));
    TRY(tables.emplace_back(), TablesOf(*one, slots.policy(), shape));
    list.push_back(one.get());
  }
  std::optional<ResidentModel> in_memory;
  if (has_fixed_costs) in_memory = slots.MakeResidentModel();
  const ExpertCatalog& catalog = opened.catalog;
  Residency& residency = slots.residency();
  auto tier = std::make_unique<DeviceTier>(
      DeviceTierParts{.tables = std::move(tables),
                      .form_of = [&catalog](ExpertKey key) { return catalog.copy(key).form; },
                      .bytes_of = [&catalog](ExpertKey key) { return BytesOf(catalog, key); },
                      .in_memory = [&residency](ExpertKey key) { return residency.contains(key); },
                      .memory_slots = {slots.slots().begin(), slots.slots().end()},
                      .pool_of = [&catalog](ExpertKey key) { return catalog.copy(key).pool; },
                      .n_expert = shape.n_expert,
                      .first_layer = shape.n_encoder,
                      .memory = std::move(in_memory),
                      .tiers = opened.options.device.tiers,
                      .drop = [&residency](ExpertKey key) { residency.Drop(key); },
                      .memory_room =
                          [&residency](ExpertKey key, std::span<const ExpertKey> keeps) {
                            return residency.RoomFor(key, keeps);
                          },
                      .is_settled = std::move(is_settled),
                      .usual_share = shape.usual_share()},
      LatencyOfAll(devices), PlaceOf(opened.options.device));
  return std::make_unique<DeviceList>(std::move(list), std::move(tier), residency,
                                      std::move(options));
}

Status BringToRemotes(const OpenedModel& opened, const DeviceSetup& devices,
                      const ExpertSlots& slots, DeviceList& list) {
  std::vector<uint64_t> room;
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    if (IsRemote(*one)) room.push_back(std::reduce(one->slots().begin(), one->slots().end()));
  }
  if (room.empty()) return {};
  if (!RemotesPay(opened, devices, slots, list.tier().model())) {
    for (uint32_t d = 0; d < list.size(); ++d) {
      if (IsRemote(list[d])) list.tier().TurnOff(d);
    }
    return {};
  }
  const uint64_t kept = std::reduce(slots.slots().begin(), slots.slots().end());
  std::vector<uint32_t> n_experts;
  for (const ExpertCatalog::Layer& layer : opened.catalog.layers) {
    n_experts.push_back(static_cast<uint32_t>(layer.experts.size()));
  }
  std::vector<std::vector<ExpertKey>> of_hosts =
      SharesOf(n_experts, devices.fill_first(), kept, room);
  std::vector<std::vector<ExpertKey>> shares(list.size());
  const uint32_t first = list.size() - static_cast<uint32_t>(of_hosts.size());
  for (size_t h = 0; h < of_hosts.size(); ++h) shares[first + h] = std::move(of_hosts[h]);
  return list.BringShares(std::move(shares));
}

}  // namespace moestro
