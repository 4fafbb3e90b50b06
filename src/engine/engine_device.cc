// SPDX-License-Identifier: MIT
// A device beside the CPU: found, tried, measured, given slots. With the device "auto" whatever is
// wrong with it is said, and the CPU computes; a device that was asked for by name fails then.
#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "base/system_limits.h"
#include "decide/policy.h"
#include "engine/engine_impl.h"
#include "engine/expert_biases.h"
#include "engine/pinned_source.h"
#include "forward/experts/device_probe.h"
#include "learned/cost_cache.h"
#include "learned/latency_file.h"
#include "store/extent_reader.h"

namespace moestro {
namespace {

// Left alone when the user names no size.
constexpr uint64_t kLeastMargin = 256 * kMiB;
// Read to know what the disk gives.
constexpr uint64_t kDeviceProbeBytes = 64 * kMiB;
constexpr uint64_t kStagingBytes = 32 * kMiB;

// Memory that may be taken while slots are still empty: half of what a budget leaves.
uint64_t ScratchFor(const EngineOptions& options) {
  if (options.ram_bytes == 0) return DeviceProbe::kScratch;
  const uint64_t taken = ResidentMemory();
  return options.ram_bytes > taken ? (options.ram_bytes - taken) / 2 : 0;
}

// A device's budget over forms, in proportion to the bytes of their experts.
std::vector<uint64_t> SplitSlots(const ExpertCatalog& catalog, const std::vector<bool>& computes,
                                 const ComputeDevice& device, uint64_t bytes) {
  std::vector<uint64_t> experts(catalog.forms.size());
  for (const ExpertCatalog::Layer& layer : catalog.layers) {
    for (const std::vector<ExpertCopy>& copies : layer.experts) {
      for (const ExpertCopy& copy : copies) ++experts[copy.form];
    }
  }
  uint64_t all = 0;
  for (size_t f = 0; f < experts.size(); ++f) {
    if (computes[f]) all += DevicePools::BytesFor(catalog.forms[f], experts[f]);
  }
  std::vector<uint64_t> slots(experts.size());
  for (size_t f = 0; f < experts.size(); ++f) {
    if (!computes[f]) continue;
    const uint64_t one = DevicePools::BytesFor(catalog.forms[f], 1) / 2;  // the spare one aside
    const double share = static_cast<double>(DevicePools::BytesFor(catalog.forms[f], experts[f])) /
                         static_cast<double>(all);
    const auto its = static_cast<uint64_t>(static_cast<double>(bytes) * share);
    slots[f] = std::min({experts[f], its / one > 0 ? its / one - 1 : 0,
                         DevicePools::MostSlots(device, catalog.forms[f])});
  }
  return slots;
}

}  // namespace

std::string_view NameOf(CostSource source) {
  switch (source) {
    case CostSource::kMeasured:
      return "measured";
    case CostSource::kKept:
      return "kept";
    case CostSource::kFile:
      return "file";
  }
  return "";
}

std::array<double, kLanes> Engine::lane_ratios() const {
  if (impl_->device_side) return impl_->device_side->ratios();
  return {1.0, 1.0, 1.0, 1.0};
}

// Found and opened; what it computes, and how much memory may be taken there.
Status Engine::Impl::OpenDevice() {
  const bool takes_software = options.device.auto_takes_software;
  const bool has_none = options.device.name == "auto" && !takes_software && !MayHaveGpu();
  if (options.device.name == "cpu" || has_none) return {};
  const std::vector<DeviceInfo> found = FindDevices();
  TRY(const size_t chosen, ChooseDevice(found, options.device.name, takes_software));
  if (chosen == found.size()) return {};
  TRY(gpu, ComputeDevice::Open(found[chosen]));
  const DeviceExperts::Shape shape = DeviceShape();
  for (const CopyForm& form : catalog.forms) {
    device_computes.push_back(DeviceExperts::Supports(*gpu, form, shape));
  }
  if (!std::ranges::contains(device_computes, true)) {
    return Fail(Errc::kDevice, "the device {} computes no expert of this model", gpu->info().name);
  }
  const uint64_t available = gpu->FreeMemory();
  if (options.device.vram_bytes > available) {
    return Fail(Errc::kInvalidRequest, "--vram {} is more than the {} that are free on {}",
                FormatBytes(options.device.vram_bytes), FormatBytes(available), gpu->info().name);
  }
  const uint64_t margin = std::max(kLeastMargin, available / 20);
  vram = options.device.vram_bytes > 0 ? options.device.vram_bytes
                                       : available - std::min(available, margin);
  memory.device = DevicePlan{.info = gpu->info()};
  return {};
}

// Slots take what the dense part leaves.
Status Engine::Impl::AllocateSlots() {
  if (!gpu) return {};
  const DeviceExperts::Shape shape = DeviceShape();
  const uint64_t work = DeviceExperts::WorkBytes(shape);
  TRY(DeviceBiases biases, LoadBiasesOn(*gpu, model));
  uint64_t bytes = vram - std::min(vram, memory.device->bytes);
  for (;; bytes = work + (bytes - work) / 2) {
    const std::vector<uint64_t> wanted =
        SplitSlots(catalog, device_computes, *gpu, bytes - std::min(bytes, work));
    if (std::ranges::none_of(wanted, [](uint64_t n) { return n > 0; })) {
      return Fail(Errc::kInvalidRequest,
                  "{} on {} hold no expert beside the {} that computing them takes; raise --vram",
                  FormatBytes(bytes), gpu->info().name, FormatBytes(work));
    }
    Result<DevicePools> pools = DevicePools::Allocate(*gpu, catalog.forms, wanted);
    if (!pools) {
      LogWarning("{}; trying half of it", pools.error().message);
      continue;
    }
    device_slots = wanted;
    device_experts = std::make_unique<DeviceExperts>(
        *gpu, catalog,
        DeviceExperts::Weights{.pools = *std::move(pools), .biases = std::move(biases)}, shape,
        options.device.faults);
    break;
  }
  if (graph->is_on_device()) {
    TRY_STATUS(device_experts->ReserveThere(uint64_t{chunk} * model.spec.router.n_used));
  }
  memory.device->bytes += work;
  for (size_t f = 0; f < device_slots.size(); ++f) {
    memory.device->slots += device_slots[f];
    memory.device->bytes += DevicePools::BytesFor(catalog.forms[f], device_slots[f]);
  }
  return {};
}

DeviceExperts::Shape Engine::Impl::DeviceShape() const {
  DeviceExperts::Shape shape{.n_embd = model.spec.n_embd,
                             .activation = model.spec.experts.activation,
                             .n_used = model.spec.router.n_used,
                             .has_shared = model.spec.n_ff_shared > 0,
                             .bias_bytes = DeviceBiases::BytesFor(*gpu, BiasShapeOf(model))};
  for (const CopyForm& form : catalog.forms) shape.n_ff = std::max(shape.n_ff, form.n_ff);
  return shape;
}

// With "auto" a device that is of no use is left out.
Status Engine::Impl::PrepareDevice(Status (Impl::*prepare)()) {
  Status prepared = (this->*prepare)();
  if (prepared || options.device.name != "auto") return prepared;
  LogWarning("{}; the CPU computes everything", prepared.error().message);
  return DropDevice();
}

Status Engine::Impl::DropDevice() {
  const bool had_dense = graph != nullptr && graph->is_on_device();
  device_experts.reset();
  slot_memory.reset();
  if (had_dense) TRY_STATUS(BuildDense(nullptr));  // lets go of what is there
  gpu.reset();
  memory.device.reset();
  return {};
}

// An expert of each form is read and computed on both; forms that differ too much are the CPU's.
// Before memory is planned: a driver compiles what it launches, and keeps that in memory.
Status Engine::Impl::TryDevice() {
  if (device_experts == nullptr) return {};
  DevicePlan& plan = *memory.device;
  if (ScratchFor(options) >= kPinnedTrialBytes) {
    slot_memory = PinnedSource(*gpu, reader.get(), options.device.pins_slow_memory);
  }
  plan.from_pinned = slot_memory.has_value();
  TRY(const ExtentReader file, ExtentReader::Open(AllPaths()));
  bool has_costs = false;
  if (!options.device.latency_model.empty()) {
    TRY(const LatencyFile costs, ReadLatency(options.device.latency_model));
    plan.latency = costs.model;
    plan.costs = CostSource::kFile;
    has_costs = true;
  }
  for (uint32_t form = 0; form < catalog.forms.size(); ++form) {
    if (device_slots[form] == 0) continue;
    TRY(const double worst, TryForm(form, file, has_costs));
    plan.difference = std::max(plan.difference, worst);
    if (worst <= DeviceProbe::kMostDifference) {
      has_costs = true;
      continue;
    }
    LogWarning(
        "{} computes {} experts with an error of {:.1e} (mean squares; {:.0e} is allowed): "
        "they stay on the CPU",
        gpu->info().name, ggml_type_name(static_cast<ggml_type>(catalog.forms[form].types[0])),
        worst, DeviceProbe::kMostDifference);
    plan.slots -= std::exchange(device_slots[form], 0);
  }
  if (std::ranges::none_of(device_slots, [](uint64_t n) { return n > 0; })) {
    return Fail(Errc::kDevice, "the device {} computes no expert of this model as the CPU does",
                gpu->info().name);
  }
  return ChooseFirstOnDevice();
}

// How far the device's results are from the CPU's. The first form that it computes well is
// measured, if costs are not known yet.
Result<double> Engine::Impl::TryForm(uint32_t form, const ExtentReader& file, bool has_costs) {
  TRY(const ExpertKey key, AnyExpertOf(form));
  std::array<ExtentBytes, kMatrices> bytes;
  DeviceExperts::Matrices matrices{};
  for (size_t m = 0; m < kMatrices; ++m) {
    TRY(bytes[m], file.Read(catalog.copy(key).slices[m]));
    matrices[m] = bytes[m].bytes.data();
  }
  TRY(DeviceProbe::Biases biases, ReadBiasesOf(key, model));
  DeviceProbe probe(*device_experts, *team,
                    {.key = key,
                     .matrices = matrices,
                     .bytes = BytesOf(key),
                     .kernels = kernels[form],
                     .activation = model.spec.experts.activation,
                     .slots = static_cast<uint32_t>(device_slots[form]),
                     .memory = slot_memory.value_or(HostMemorySource()),
                     .biases = std::move(biases)});
  double worst = 0.0;
  for (const uint32_t rows : {1U, 4U, 32U}) {
    TRY(const double difference, probe.Difference(rows));
    worst = std::max(worst, difference);
  }
  if (!has_costs && worst <= DeviceProbe::kMostDifference) TRY_STATUS(FindCosts(form, probe));
  return worst;
}

Status Engine::Impl::FindCosts(uint32_t form, DeviceProbe& probe) {
  const CostKey key{.cpu = device->description(),
                    .kernel = kernels[form].kernel.front().name,
                    .device = gpu->info(),
                    .from_pinned = memory.device->from_pinned,
                    .expert = catalog.forms[form]};
  if (const auto kept = KeptCosts(options.device.cost_folder, key)) {
    memory.device->latency = *kept;
    memory.device->costs = CostSource::kKept;
    return {};
  }
  TRY(memory.device->latency, probe.Measure(ScratchFor(options)));
  KeepCosts(options.device.cost_folder, key, memory.device->latency);
  return {};
}

// For experts that are read to be copied there and that memory is not to keep: so many that the
// disk has enough to do, two at least, of which one is read while the other is copied.
uint64_t Engine::Impl::StagingSlots() const {
  if (device_experts == nullptr || options.device.tiers == Tiers::kInclusive) return 0;
  return std::clamp<uint64_t>(kStagingBytes / Residency::StagingSlotBytes(catalog, reader->block()),
                              2, 8);
}

// In memory that the device copies from directly, as far as its driver has so much of it.
Status Engine::Impl::AllocateMemory() {
  const auto create = [this](const HostMemorySource& source) -> Result<std::unique_ptr<Residency>> {
    TRY(std::unique_ptr<Residency> made,
        Residency::Create(catalog, slots, policy, *queue, options.clock, source));
    if (const uint64_t staging = StagingSlots(); staging > 0) {
      TRY_STATUS(made->AllocateStaging(staging, source));
    }
    return made;
  };
  if (slot_memory) {
    Result<std::unique_ptr<Residency>> pinned = create(*slot_memory);
    if (pinned || pinned.error().code != Errc::kNoMemory) {
      TRY(residency, std::move(pinned));
      return {};
    }
    LogInfo("{}: experts lie in plain memory", pinned.error().message);
    memory.device->from_pinned = false;
  }
  TRY(residency, create({}));
  return {};
}

// Who decides what the device computes, beside memory and its policy.
Status Engine::Impl::JoinDevice() {
  if (device_experts == nullptr) return {};
  const bool is_fixed = !options.device.latency_model.empty();
  LatencyModel& latency = memory.device->latency;
  if (is_fixed && latency.disk == Cost{} && memory.n_slots < memory.n_experts) {
    LogWarning(
        "{} has no costs of the disk: plans take reads for free; 'moestro devices MODEL --profile "
        "-o FILE' measures them",
        options.device.latency_model);
  }
  if (!is_fixed) {
    TRY(const double bandwidth, ProbeReads(kDeviceProbeBytes));
    latency.disk = {.per_byte = 1.0 / bandwidth};
  }
  std::vector<std::optional<SlotTable>> tables(catalog.forms.size());
  for (uint32_t form = 0; form < catalog.forms.size(); ++form) {
    if (device_slots[form] == 0) continue;
    TRY(std::unique_ptr<Policy> its, MakePolicy(policy));
    const PolicyShape shape{.slots = device_slots[form],
                            .layers = model.id.shape.n_layer,
                            .experts = model.id.shape.n_expert};
    tables[form].emplace(shape, std::move(its));
  }
  std::optional<ResidentModel> in_memory;
  if (is_fixed) in_memory = MakeResidentModel();
  device_tier = std::make_unique<DeviceTier>(
      DeviceTierParts{.tables = std::move(tables),
                      .form_of = [this](ExpertKey key) { return catalog.copy(key).form; },
                      .bytes_of = [this](ExpertKey key) { return BytesOf(key); },
                      .in_memory = [this](ExpertKey key) { return residency->contains(key); },
                      .memory = std::move(in_memory),
                      .tiers = options.device.tiers,
                      .drop = [this](ExpertKey key) { residency->Drop(key); },
                      .memory_room =
                          [this](ExpertKey key, std::span<const ExpertKey> keeps) {
                            return residency->RoomFor(key, keeps);
                          },
                      .usual_share = model.id.shape.usual_share()},
      latency, options.device.place);
  device_side = std::make_unique<DeviceSide>(
      *device_tier, *device_experts, *residency,
      DeviceSide::Options{.is_fixed = is_fixed,
                          // Keys and values are lost with it.
                          .ends_if_lost = options.device.name != "auto" || graph->is_on_device(),
                          .lost = [](const std::string& why) { LogWarning("{}", why); }});
  return {};
}

Result<ExpertKey> Engine::Impl::AnyExpertOf(uint32_t form) const {
  for (uint16_t l = 0; l < catalog.layers.size(); ++l) {
    for (uint16_t e = 0; e < catalog.layers[l].experts.size(); ++e) {
      for (CopyId c = 0; c < catalog.layers[l].experts[e].size(); ++c) {
        if (catalog.layers[l].experts[e][c].form == form) return ExpertKey{{l}, {e}, c};
      }
    }
  }
  return Fail(Errc::kUnsupported, "no expert has form {}", form);
}

uint64_t Engine::Impl::BytesOf(ExpertKey key) const {
  uint64_t bytes = 0;
  for (const Extent& slice : catalog.copy(key).slices) bytes += slice.length;
  return bytes;
}

}  // namespace moestro
