// SPDX-License-Identifier: MIT
#include "native/make_slots.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <optional>
#include <ranges>
#include <string>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "decide/slots/first_experts.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"
#include "engine/plan/io_depth.h"
#include "native/catalog.h"
#include "native/plan/engine_plan.h"
#include "store/probe.h"

namespace moestro {
namespace {

// Rounds of measuring every depth; a round at one depth ends after kBytesOfARound or
// kSecondsOfARound. On a disk with other users one round may well show a gain from more reads; two
// rounds seldom do.
constexpr int kDepthRounds = 2;
constexpr uint64_t kBytesOfARound = 32 * kMiB;
constexpr double kSecondsOfARound = 0.05;

// Number and size of the reads that the disk gets at a time.
struct IoSizes {
  uint32_t depth = kIoDepths.front();
  uint64_t request = kLeastRequest;
};

// REQUIRES: memory is still empty, and no read is under way.
IoSizes MeasureIoSizes(const OpenedModel& opened) {
  const std::vector<Extent> matrices = OwnSlices(opened.catalog);
  uint32_t fewest = kIoDepths.back();
  std::map<uint32_t, double> fastest;  // by depth
  uint64_t seed = 0;
  for (int round = 0; round < kDepthRounds && fewest > kIoDepths.front(); ++round) {
    std::vector<DepthSpeed> measured;
    // Depths fall: the first reads of a file also load the file system's block lists, and that time
    // must not count against few reads.
    for (const uint32_t depth : std::views::reverse(kIoDepths)) {
      const Result<BandwidthProbe> probe = ProbeBandwidth(*opened.reader, matrices,
                                                          {.reads = {.max_in_flight = depth},
                                                           .total = kBytesOfARound,
                                                           .most_seconds = kSecondsOfARound,
                                                           .seed = ++seed});
      if (!probe) {  // the step that needs the expert reports the error
        LogInfo("{}; the disk gets {} reads at a time", probe.error().message, kIoDepths.front());
        return {};
      }
      fastest[depth] = std::max(fastest[depth], probe->bytes_per_second);
      measured.push_back({.depth = depth, .bytes_per_second = probe->bytes_per_second});
    }
    fewest = std::min(fewest, FewestThatFill(measured));
  }
  return {.depth = fewest, .request = RequestBytes(fastest[fewest], fewest)};
}

// Slots for the experts of a token, by pool.
std::vector<uint64_t> FewestSlots(const OpenedModel& opened) {
  return std::vector<uint64_t>(opened.catalog.pools.size(), opened.model.spec.router.n_used);
}

// Sets options.io_depth and fixed.request if the depth is left to a measurement.
Result<PlannedMemory> PlanSlots(const OpenedModel& opened, FixedBytes& fixed,
                                EngineOptions& options) {
  const ExpertCatalog& catalog = opened.catalog;
  const auto plan = [&] {
    return PlanMemory(options, catalog, opened.reader->block(), FewestSlots(opened), fixed);
  };
  if (options.io_depth > 0) return plan();
  options.io_depth = kIoDepths.front();
  TRY(PlannedMemory usual, plan());
  // A measurement of the depth does not pay where decode reads nothing, or little.
  const bool reads_much = usual.plan.n_slots < usual.plan.n_experts &&
                          catalog.total_bytes() >= kDepthRounds * kBytesOfARound;
  if (!reads_much) return usual;
  const IoSizes measured = MeasureIoSizes(opened);
  options.io_depth = measured.depth;
  fixed.request = measured.request;
  Result<PlannedMemory> planned = plan();
  if (planned) return planned;
  options.io_depth = kIoDepths.front();  // more reads take memory that this budget lacks
  fixed.request = kLeastRequest;
  return usual;
}

// Allocates slots in memory that the first device copies from directly, if its driver gives enough,
// else in plain memory.
Status AllocateFor(DeviceSetup& devices, ExpertSlots& slots) {
  const uint64_t staging = devices.staging_slots();
  if (devices.slot_memory()) {
    Status pinned = slots.Allocate(*devices.slot_memory(), staging);
    if (pinned || pinned.error().code != Errc::kNoMemory) return pinned;
    LogInfo("{}: experts lie in plain memory", pinned.error().message);
    devices.CopyFromPlainMemory();
  }
  return slots.Allocate({}, staging);
}

}  // namespace

uint64_t RoomIn(const OpenedModel& opened, const FixedBytes& fixed) {
  EngineOptions options = opened.options;
  if (options.io_depth == 0) options.io_depth = kIoDepths.front();
  const Result<PlannedMemory> planned =
      PlanMemory(options, opened.catalog, opened.reader->block(), FewestSlots(opened), fixed);
  if (!planned) return 0;
  return planned->plan.budget - std::min(planned->plan.smallest, planned->plan.budget);
}

Result<std::unique_ptr<ExpertSlots>> MakeSlots(const OpenedModel& opened, DeviceSetup& devices,
                                               const FixedBytes& fixed) {
  EngineOptions options = opened.options;
  FixedBytes with_request = fixed;
  TRY(PlannedMemory planned, PlanSlots(opened, with_request, options));
  TRY(std::unique_ptr<ExpertSlots> slots,
      ExpertSlots::Create({.id = opened.model.id,
                           .catalog = opened.catalog,
                           .reader = *opened.reader,
                           .options = opened.options,
                           .paths = opened.paths()},
                          std::move(planned), opened.policies,
                          {.max_request = with_request.request,
                           .max_in_flight = options.io_depth,
                           .max_speculative = options.io_depth}));
  TRY_STATUS(AllocateFor(devices, *slots));
  return slots;
}

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
//
// Rows lie on the first device if that device has the dense part. A launch is measured with inputs
// that go there and results that come back, which is the price of a border, too.
LatencyModel LatencyOfAll(const DeviceSetup& devices, bool has_dense, bool has_fixed_costs) {
  LatencyModel all = devices.devices().front()->plan().latency;
  all.devices.clear();
  for (const std::unique_ptr<Device>& one : devices.devices()) {
    all.host_beside = std::max(all.host_beside, one->plan().latency.host_beside);
    all.devices.push_back(one->plan().latency.devices.front());
  }
  const bool is_first = devices.devices().front().get() == devices.first_here();
  if (!has_dense || !is_first) {
    all.border = 0.0;
  } else if (!has_fixed_costs) {
    all.border = all.devices.front().launch;
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
      DeviceTierSetup{.tables = std::move(tables),
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
      LatencyOfAll(devices, has_dense, has_fixed_costs), PlaceOf(opened.options.device));
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
