// SPDX-License-Identifier: MIT
// Devices beside the CPU: tried with experts of the model, measured, and joined in one tier of
// slots that plans are made for.
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/system_limits.h"
#include "decide/slots/policy.h"
#include "forward/experts/device_probe.h"
#include "learned/cost_cache.h"
#include "learned/latency_file.h"
#include "native/expert_biases.h"
#include "native/native_impl.h"
#include "native/pinned_source.h"
#include "store/extent_reader.h"

namespace moestro {
namespace {

// Read to know what the disk gives.
constexpr uint64_t kDeviceProbeBytes = 64 * kMiB;

// Memory that may be taken while slots are still empty: half of what a budget leaves.
uint64_t ScratchFor(const EngineOptions& options) {
  if (options.ram_bytes == 0) return DeviceProbe::kScratch;
  const uint64_t taken = ResidentMemory();
  return options.ram_bytes > taken ? (options.ram_bytes - taken) / 2 : 0;
}

}  // namespace

LaneRatios NativeEngine::Impl::CurrentLaneRatios() const {
  return device_side ? device_side->ratios() : LaneRatios{};
}

// An expert of each form is read and computed on both; forms that differ too much are the CPU's.
// Before memory is planned: a driver compiles what it launches, and keeps that in memory.
Status NativeEngine::Impl::TryDevice(size_t index) {
  UsedDevice& its = *gpus[index];
  if (index == 0 && ScratchFor(options) >= kPinnedTrialBytes) {
    slot_memory = PinnedSource(its.device, reader.get(), options.device.pins_slow_memory);
  }
  its.plan.from_pinned = slot_memory.has_value();
  TRY(const ExtentReader file, ExtentReader::Open(AllPaths()));
  bool has_costs = false;
  if (!options.device.latency_model.empty()) {
    TRY(const LatencyFile costs, ReadLatency(options.device.latency_model));
    TRY(its.plan.latency, CostsOf(costs, its.device.info().name, gpus.size() == 1));
    its.plan.costs = CostSource::kFile;
    has_costs = true;
  }
  for (uint32_t form = 0; form < catalog.forms.size(); ++form) {
    if (its.slots[form] == 0) continue;
    TRY(const double worst, TryForm(index, form, file, has_costs));
    its.plan.difference = std::max(its.plan.difference, worst);
    if (worst <= DeviceProbe::kMostDifference) {
      has_costs = true;
      continue;
    }
    LogWarning(
        "{} computes {} experts with an error of {:.1e} (mean squares; {:.0e} is allowed): "
        "they stay on the CPU",
        its.device.info().name,
        ggml_type_name(static_cast<ggml_type>(catalog.forms[form].types[0])), worst,
        DeviceProbe::kMostDifference);
    its.plan.slots -= std::exchange(its.slots[form], 0);
  }
  if (std::ranges::none_of(its.slots, [](uint64_t n) { return n > 0; })) {
    return Fail(Errc::kDevice, "the device {} computes no expert of this model as the CPU does",
                its.device.info().name);
  }
  return index == 0 ? ChooseFirstOnDevice() : Status();
}

// How far the device's results are from the CPU's. The first form that it computes well is
// measured, if costs are not known yet.
Result<double> NativeEngine::Impl::TryForm(size_t index, uint32_t form, const ExtentReader& file,
                                           bool has_costs) {
  TRY(const ExpertKey key, AnyExpertOf(form));
  std::array<ExtentBytes, kMatrices> bytes;
  DeviceExperts::Matrices matrices{};
  for (size_t m = 0; m < kMatrices; ++m) {
    TRY(bytes[m], file.Read(catalog.copy(key).slices[m]));
    matrices[m] = bytes[m].bytes.data();
  }
  TRY(DeviceProbe::Biases biases, ReadBiasesOf(key, model));
  DeviceProbe probe(*device_experts[index], *team,
                    {.key = key,
                     .matrices = matrices,
                     .bytes = BytesOf(key),
                     .kernels = kernels[form],
                     .activation = model.spec.experts.activation,
                     .slots = static_cast<uint32_t>(gpus[index]->slots[form]),
                     .memory = slot_memory.value_or(HostMemorySource()),
                     .biases = std::move(biases)});
  double worst = 0.0;
  for (const uint32_t rows : DeviceProbe::kRowsToTry) {
    TRY(const double difference, probe.Difference(rows));
    worst = std::max(worst, difference);
  }
  if (!has_costs && worst <= DeviceProbe::kMostDifference) {
    TRY_STATUS(FindCosts(index, form, probe));
  }
  return worst;
}

Status NativeEngine::Impl::FindCosts(size_t index, uint32_t form, DeviceProbe& probe) {
  UsedDevice& its = *gpus[index];
  const CostKey key{.cpu = device->description(),
                    .kernel = kernels[form].kernel.front().name,
                    .device = its.device.info(),
                    .pinned_by = slot_memory ? gpus.front()->device.info().name : "",
                    .expert = catalog.forms[form]};
  if (const auto kept = KeptCosts(options.device.cost_folder, key)) {
    its.plan.latency = *kept;
    its.plan.costs = CostSource::kKept;
    return {};
  }
  TRY(its.plan.latency, probe.Measure(ScratchFor(options)));
  KeepCosts(options.device.cost_folder, key, its.plan.latency);
  return {};
}

Status NativeEngine::Impl::FindDiskCosts() {
  if (options.device.latency_model.empty()) {
    TRY(const double bandwidth, ProbeReads(kDeviceProbeBytes));
    for (const std::unique_ptr<UsedDevice>& gpu : gpus) {
      gpu->plan.latency.disk = {.per_byte = 1.0 / bandwidth};
    }
    return {};
  }
  if (gpus.front()->plan.latency.disk == Cost{} && memory.n_slots < memory.n_experts) {
    LogWarning(
        "{} has no costs of the disk: plans take reads for free; 'moestro devices MODEL --profile "
        "-o FILE' measures them",
        options.device.latency_model);
  }
  return {};
}

// The CPU as it was measured with the first; beside any of them it takes as long as beside the one
// that slows it down most.
LatencyModel NativeEngine::Impl::LatencyOfAll() const {
  LatencyModel all = gpus.front()->plan.latency;
  all.devices.clear();
  for (const std::unique_ptr<UsedDevice>& gpu : gpus) {
    all.host_beside = std::max(all.host_beside, gpu->plan.latency.host_beside);
    all.devices.push_back(gpu->plan.latency.devices.front());
  }
  return all;
}

// Who decides what devices compute, beside memory and its policy.
Status NativeEngine::Impl::JoinDevices() {
  if (gpus.empty()) return {};
  TRY_STATUS(FindDiskCosts());
  const bool is_fixed = !options.device.latency_model.empty();
  std::vector<std::vector<std::optional<SlotTable>>> tables;
  std::vector<DeviceExperts*> executed;
  DeviceSide::Options side{.is_fixed = is_fixed,
                           .lost = [](const std::string& why) { LogWarning("{}", why); }};
  for (size_t d = 0; d < gpus.size(); ++d) {
    memory.devices.push_back(gpus[d]->plan);
    executed.push_back(device_experts[d].get());
    // Keys and values are lost with the one that has them.
    side.ends_if_lost.push_back(!goes_on_if_lost() || (d == 0 && graph->is_on_device()));
    tables.emplace_back(catalog.forms.size());
    for (uint32_t form = 0; form < catalog.forms.size(); ++form) {
      if (gpus[d]->slots[form] == 0) continue;
      TRY(std::unique_ptr<Policy> its, MakePolicy(policy));
      const PolicyShape shape{.slots = gpus[d]->slots[form],
                              .layers = model.id.shape.n_layer,
                              .experts = model.id.shape.n_expert};
      tables[d][form].emplace(shape, std::move(its));
    }
  }
  std::optional<ResidentModel> in_memory;
  if (is_fixed) in_memory = MakeResidentModel();
  device_tier = std::make_unique<DeviceTier>(
      DeviceTierParts{.tables = std::move(tables),
                      .form_of = [this](ExpertKey key) { return catalog.copy(key).form; },
                      .bytes_of = [this](ExpertKey key) { return BytesOf(key); },
                      .in_memory = [this](ExpertKey key) { return residency->contains(key); },
                      .memory_slots = slots,
                      .pool_of = [this](ExpertKey key) { return catalog.copy(key).pool; },
                      .n_expert = model.id.shape.n_expert,
                      .memory = std::move(in_memory),
                      .tiers = options.device.tiers,
                      .drop = [this](ExpertKey key) { residency->Drop(key); },
                      .memory_room =
                          [this](ExpertKey key, std::span<const ExpertKey> keeps) {
                            return residency->RoomFor(key, keeps);
                          },
                      .usual_share = model.id.shape.usual_share()},
      LatencyOfAll(), options.device.place);
  device_set.emplace(std::move(executed));
  device_side =
      std::make_unique<DeviceSide>(*device_tier, *device_set, *residency, std::move(side));
  return {};
}

}  // namespace moestro
