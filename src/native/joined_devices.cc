// SPDX-License-Identifier: MIT
#include "native/joined_devices.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <numeric>
#include <string>
#include <thread>
#include <utility>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
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
// Experts that are read while others are copied.
constexpr size_t kReadAhead = 4;

// Launches from one known row to the next: known rows take at most a hundredth of the time.
uint32_t LaunchesToCheck(double check_seconds, double layer_seconds) {
  constexpr double kShare = 0.01;
  constexpr double kLeast = 8.0;
  constexpr double kMost = 1024.0;
  const double launches = layer_seconds > 0.0 ? check_seconds / (kShare * layer_seconds) : kMost;
  return static_cast<uint32_t>(std::clamp(launches, kLeast, kMost));
}

Status FindDiskCosts(const std::string& latency_model, DevicePart& devices, SlotPart& slots) {
  if (latency_model.empty()) {
    TRY(const double bandwidth, slots.ProbeReads(kDeviceProbeBytes));
    for (const std::unique_ptr<UsedDevice>& gpu : devices.used()) {
      gpu->plan.latency.disk = {.per_byte = 1.0 / bandwidth};
    }
    return {};
  }
  if (devices.used().front()->plan.latency.disk == Cost{} && !slots.holds_all()) {
    LogWarning(
        "{} has no costs of the disk: plans take reads for free; 'moestro devices MODEL --profile "
        "-o FILE' measures them",
        latency_model);
  }
  return {};
}

// The CPU's costs as measured with the first device. Beside any device the CPU is taken to be as
// slow as beside the one that slows it down most.
LatencyModel LatencyOfAll(const DevicePart& devices) {
  LatencyModel all = devices.used().front()->plan.latency;
  all.devices.clear();
  for (const std::unique_ptr<UsedDevice>& gpu : devices.used()) {
    all.host_beside = std::max(all.host_beside, gpu->plan.latency.host_beside);
    all.devices.push_back(gpu->plan.latency.devices.front());
  }
  return all;
}

PlaceMode PlaceOf(const DeviceOptions& options) {
  const bool has_chosen = options.place != PlaceMode::kAuto;
  if (has_chosen || options.remote.hosts.empty() || !options.remote.is_always) return options.place;
  return PlaceMode::kCooperative;
}

// Tables of one device, by form; nullopt: the device computes no such expert.
Result<std::vector<std::optional<SlotTable>>> TablesOf(const UsedDevice& device,
                                                       const PolicyChoice& policy,
                                                       const MoeShape& shape) {
  std::vector<std::optional<SlotTable>> tables(device.slots.size());
  for (size_t form = 0; form < tables.size(); ++form) {
    if (device.slots[form] == 0) continue;
    TRY(std::unique_ptr<Policy> its, MakePolicy(policy));
    tables[form].emplace(PolicyShape::Of(device.slots[form], shape), std::move(its));
  }
  return tables;
}

}  // namespace

Result<std::unique_ptr<JoinedDevices>> JoinedDevices::Join(const OpenedModel& opened,
                                                           DevicePart& devices, SlotPart& slots,
                                                           bool has_dense) {
  TRY_STATUS(FindDiskCosts(opened.options.device.latency_model, devices, slots));
  std::unique_ptr<JoinedDevices> joined(new JoinedDevices(opened, slots));
  const MoeShape& shape = opened.model.id.shape;
  std::vector<std::vector<std::optional<SlotTable>>> tables;
  std::vector<std::unique_ptr<DeviceExperts>> experts;
  DeviceList::Options options{.is_fixed = joined->has_fixed_costs(),
                              .lost = [](const std::string& why) { LogWarning("{}", why); },
                              .take_settled =
                                  [its = joined.get()] {
                                    return its->remotes_ ? its->remotes_->BeginStep()
                                                         : std::vector<RemoteUpload::Landed>();
                                  }};
  std::vector<bool> is_settled;
  for (const std::unique_ptr<UsedDevice>& one : devices.used()) {
    // A lost device that holds keys and values takes them along, so the run ends.
    const bool has_cells = has_dense && one.get() == devices.first_here();
    const bool is_remote = one->worker != nullptr;
    options.ends_if_lost.push_back(!is_remote && (!devices.goes_on_if_lost() || has_cells));
    is_settled.push_back(is_remote);
    TRY(tables.emplace_back(), TablesOf(*one, slots.policy(), shape));
    experts.push_back(std::move(one->experts));
  }
  std::optional<ResidentModel> in_memory;
  if (joined->has_fixed_costs()) in_memory = slots.MakeResidentModel();
  const ExpertCatalog& catalog = opened.catalog;
  Residency& residency = slots.residency();
  joined->tier_ = std::make_unique<DeviceTier>(
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
  joined->list_ = std::make_unique<DeviceList>(*joined->tier_, std::move(experts), residency,
                                               std::move(options));
  return joined;
}

Status JoinedDevices::Fill(std::span<const ExpertKey> first, const Progress& report) {
  return Copy(tier_->Fill(first), [] { return true; }, report);
}

// Whether plans are expected to be faster with remote hosts, by the costs just measured; else the
// hosts are turned off.
bool JoinedDevices::RemotesPay(const DevicePart& devices, const SlotPart& slots) {
  const MoeShape& shape = opened_.model.id.shape;
  const auto share = [&](std::span<const uint64_t> of) {
    const auto n = static_cast<double>(std::reduce(of.begin(), of.end()));
    return std::min(1.0, n / static_cast<double>(shape.experts()));
  };
  RemoteCase of{.n_used = shape.n_used,
                .expert_bytes = opened_.catalog.total_bytes() / shape.experts(),
                .in_memory = share(slots.slots())};
  std::string names;
  for (const std::unique_ptr<UsedDevice>& one : devices.used()) {
    of.there.push_back(one->worker ? share(one->slots) : 0.0);
    if (!one->worker) continue;
    names += Format("{}{}", names.empty() ? "" : ", ", one->plan.info.name);
  }
  const bool is_always = opened_.options.device.remote.is_always;
  const RemoteGain gain =
      GainOfRemotes(of, tier_->model(), is_always ? PlaceMode::kCooperative : PlaceMode::kAuto);
  for (uint32_t d = 0; d < devices.used().size(); ++d) {
    const UsedDevice& host = *devices.used()[d];
    if (!host.worker) continue;
    const DeviceCosts& costs = tier_->model().devices[d];
    host.launcher->CheckEvery(
        LaunchesToCheck(costs.launch + costs.compute.Seconds(of.expert_bytes), gain.with));
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
  for (uint32_t d = 0; d < devices.used().size(); ++d) {
    if (devices.used()[d]->worker) tier_->TurnOff(d);
  }
  return false;
}

Status JoinedDevices::BringToRemotes(DevicePart& devices, const SlotPart& slots) {
  std::vector<uint64_t> room;
  std::vector<RemoteSide::Host> hosts;
  for (uint32_t d = 0; d < devices.used().size(); ++d) {
    UsedDevice& one = *devices.used()[d];
    if (one.worker == nullptr) continue;
    room.push_back(std::reduce(one.slots.begin(), one.slots.end()));
    hosts.push_back(
        {.device = d, .worker = &one.worker, .launcher = one.launcher, .reach = [&devices, &one] {
           return devices.ReachAgain(one);
         }});
  }
  if (hosts.empty() || !RemotesPay(devices, slots)) return {};
  const uint64_t kept = std::reduce(slots.slots().begin(), slots.slots().end());
  std::vector<uint32_t> n_experts;
  for (const ExpertCatalog::Layer& layer : opened_.catalog.layers) {
    n_experts.push_back(static_cast<uint32_t>(layer.experts.size()));
  }
  std::vector<std::vector<ExpertKey>> shares =
      SharesOf(n_experts, devices.fill_first(), kept, room);
  for (size_t h = 0; h < hosts.size(); ++h) hosts[h].share = std::move(shares[h]);
  TRY(remotes_, RemoteSide::Begin(opened_, *tier_, std::move(hosts)));
  if (has_fixed_costs()) AwaitRemotes();
  return {};
}

void JoinedDevices::AwaitRemotes() const {
  while (remotes_ && !remotes_->is_done()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void JoinedDevices::FillByPrompt(StopSignal& stop, bool is_repeatable, const Progress& report) {
  const std::vector<DeviceTier::Promotion> wanted = tier_->FillByPrompt();
  if (wanted.empty()) return;
  const double start = SteadySeconds();
  // A copy that the model's costs have decided on is made however long it takes where plans must
  // not depend on timing.
  const auto goes_on = [&] {
    const bool is_late = SteadySeconds() - start > DeviceTier::kMostFillSeconds;
    return !stop.is_requested() && (is_repeatable || !is_late);
  };
  const Status filled = Copy(wanted, goes_on, report);
  if (!filled) LogWarning("{}; devices are filled no further", filled.error().message);
}

// Copies experts to devices. Experts that memory lacks pass through slots of memory, so the budget
// holds.
Status JoinedDevices::Copy(std::span<const DeviceTier::Promotion> wanted, const GoesOn& goes_on,
                           const Progress& report) {
  std::deque<Lease> reading;
  Status status;
  size_t next = 0;
  size_t done = 0;
  for (; done < wanted.size() && status && goes_on(); ++done) {
    while (next < wanted.size() && reading.size() < kReadAhead) {
      std::optional<Lease> lease =
          residency_.TryAcquire(wanted[next].key, Use::kPrefetch, Urgency::kDemand);
      if (!lease && reading.empty()) {
        residency_.Drain();  // reads that are no longer wanted have every slot
        lease = residency_.TryAcquire(wanted[next].key, Use::kPrefetch, Urgency::kDemand);
      }
      if (!lease) break;
      reading.push_back(*std::move(lease));
      ++next;
    }
    CHECK(!reading.empty());  // between steps no other leases are out
    while (status && !reading.front().is_complete()) {
      residency_.Wait();
      if (auto error = residency_.TakeError()) status = std::unexpected(*std::move(error));
    }
    if (!status) break;
    const DeviceTier::Promotion& one = wanted[done];
    DeviceExperts& its = (*list_)[one.device];
    const bool has_landed = its.Wait(its.Fill(one.key, one.slot, MatricesOf(reading.front())));
    const bool was_there = reading.front().was() == Placement::Was::kReady;
    reading.pop_front();
    if (!was_there) residency_.Drop(one.key);  // memory is for what devices lack
    tier_->Promoted(one, has_landed);
    report("filling devices", done + 1, wanted.size());
  }
  reading.clear();
  for (; done < wanted.size(); ++done) tier_->Promoted(wanted[done], false);
  if (!status) residency_.Settle();
  return status;
}

}  // namespace moestro
