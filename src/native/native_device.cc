// SPDX-License-Identifier: MIT
// Devices beside the CPU: found, opened, given slots, dropped. With the device "auto" whatever is
// wrong with one is said, and the others and the CPU compute; a device that was asked for by name
// fails then.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "native/expert_biases.h"
#include "native/native_impl.h"

namespace moestro {
namespace {

// Left alone when the user names no size.
constexpr uint64_t kLeastMargin = 256 * kMiB;
// What experts on their way from the disk to devices may take in memory, if they are small.
constexpr uint64_t kStagingBytes = 32 * kMiB;

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

// Of the devices that are in use, what the user allows each.
Result<std::vector<uint64_t>> SizesFor(const std::vector<uint64_t>& vram, size_t devices) {
  if (vram.empty()) return std::vector<uint64_t>(devices, 0);
  if (vram.size() == 1) return std::vector<uint64_t>(devices, vram.front());
  if (vram.size() == devices) return vram;
  return Fail(Errc::kInvalidRequest,
              "--vram has {} sizes for {} devices; give one for all, or one for each", vram.size(),
              devices);
}

}  // namespace

// Found and opened; what they compute, and how much memory may be taken there.
Status NativeEngine::Impl::OpenDevices() {
  const bool takes_software = options.device.auto_takes_software;
  const bool has_none = is_auto() && !takes_software && !MayHaveGpu();
  if (options.device.name == "cpu" || has_none) return {};
  const std::vector<DeviceInfo> found = FindDevices();
  TRY(const std::vector<size_t> chosen, ChooseDevices(found, options.device.name, takes_software));
  if (chosen.empty()) return {};
  TRY(const std::vector<uint64_t> sizes, SizesFor(options.device.vram, chosen.size()));
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Status opened = OpenDevice(found[chosen[i]], sizes[i]);
    if (opened) continue;
    if (!is_auto()) return opened;
    LogWarning("{}; it is left out", opened.error().message);
  }
  if (gpus.empty()) LogWarning("no device is of use; the CPU computes everything");
  return {};
}

Status NativeEngine::Impl::OpenDevice(const DeviceInfo& info, uint64_t vram) {
  TRY(ComputeDevice gpu, ComputeDevice::Open(info));
  const DeviceExperts::Shape shape = DeviceShape(gpu);
  std::vector<bool> computes;
  for (const CopyForm& form : catalog.forms) {
    computes.push_back(DeviceExperts::Supports(gpu, form, shape));
  }
  if (!std::ranges::contains(computes, true)) {
    return Fail(Errc::kDevice, "the device {} computes no expert of this model", info.name);
  }
  TRY(const uint64_t available, gpu.FreeMemory());
  if (vram > available) {
    return Fail(Errc::kInvalidRequest, "--vram {} is more than the {} that are free on {}",
                FormatBytes(vram), FormatBytes(available), info.name);
  }
  const uint64_t margin = std::max(kLeastMargin, available / 20);
  const uint64_t usual = available - std::min(available, margin);
  gpus.push_back(std::make_unique<UsedDevice>(UsedDevice{.device = std::move(gpu),
                                                         .plan = {.info = info},
                                                         .vram = vram > 0 ? vram : usual,
                                                         .computes = std::move(computes)}));
  return {};
}

// Slots take what the dense part leaves.
Status NativeEngine::Impl::AllocateSlots(size_t index) {
  UsedDevice& its = *gpus[index];
  const DeviceExperts::Shape shape = DeviceShape(its.device);
  const uint64_t work = DeviceExperts::WorkBytes(shape);
  const std::string& faulty = options.device.faults_of;
  const bool has_faults = faulty.empty() || faulty == its.device.info().name;
  TRY(DeviceBiases biases, LoadBiasesOn(its.device, model));
  uint64_t bytes = its.vram - std::min(its.vram, its.plan.bytes);
  for (;; bytes = work + (bytes - work) / 2) {
    its.slots = SplitSlots(catalog, its.computes, its.device, bytes - std::min(bytes, work));
    if (std::ranges::none_of(its.slots, [](uint64_t n) { return n > 0; })) {
      return Fail(Errc::kInvalidRequest,
                  "{} on {} hold no expert beside the {} that computing them takes; raise --vram",
                  FormatBytes(bytes), its.device.info().name, FormatBytes(work));
    }
    Result<DevicePools> pools = DevicePools::Allocate(its.device, catalog.forms, its.slots);
    if (!pools) {
      if (pools.error().code != Errc::kNoMemory) return std::unexpected(pools.error());
      LogWarning("{}; trying half of it", pools.error().message);
      continue;
    }
    device_experts.push_back(std::make_unique<DeviceExperts>(
        its.device, catalog,
        DeviceExperts::Weights{.pools = *std::move(pools), .biases = std::move(biases)}, shape,
        has_faults ? options.device.faults : DeviceFaults{}));
    break;
  }
  if (index == 0 && graph->is_on_device()) {
    const uint64_t pairs = uint64_t{chunk} * model.spec.router.n_used;
    TRY_STATUS(device_experts.front()->ReserveThere(pairs));
  }
  its.plan.bytes += work;
  for (size_t f = 0; f < its.slots.size(); ++f) {
    its.plan.slots += its.slots[f];
    its.plan.bytes += DevicePools::BytesFor(catalog.forms[f], its.slots[f]);
  }
  return {};
}

DeviceExperts::Shape NativeEngine::Impl::DeviceShape(const ComputeDevice& there) const {
  DeviceExperts::Shape shape{.n_embd = model.spec.n_embd,
                             .activation = model.spec.experts.activation,
                             .n_used = model.spec.router.n_used,
                             .has_shared = model.spec.MostOf(&FeedForwardSpec::n_ff_shared) > 0,
                             .bias_bytes = DeviceBiases::BytesFor(there, BiasShapeOf(model))};
  for (const CopyForm& form : catalog.forms) shape.n_ff = std::max(shape.n_ff, form.n_ff);
  return shape;
}

// One after the other. With "auto" a device that is of no use is left out.
Status NativeEngine::Impl::PrepareDevices(Status (Impl::*prepare)(size_t index)) {
  for (size_t index = 0; index < gpus.size();) {
    const Status prepared = (this->*prepare)(index);
    if (prepared) {
      ++index;
      continue;
    }
    if (!is_auto()) return prepared;
    LogWarning("{}; {}", prepared.error().message,
               gpus.size() == 1 ? "the CPU computes everything" : "it is left out");
    TRY_STATUS(DropDevice(index));
  }
  return {};
}

// What was on the first is the CPU's from then on; the next one takes its number.
Status NativeEngine::Impl::DropDevice(size_t index) {
  const auto at = static_cast<std::ptrdiff_t>(index);
  if (index < device_experts.size()) device_experts.erase(device_experts.begin() + at);
  if (index == 0) slot_memory.reset();
  if (index == 0 && graph->is_on_device()) {
    TRY_STATUS(BuildDense(nullptr));  // lets go of what is there
  }
  gpus.erase(gpus.begin() + at);
  return {};
}

// For experts that are read to be copied to a device and that memory is not to keep: so many that
// the disk has enough to do, and that one is read while each device copies another. Whichever
// device copies takes the next.
uint64_t NativeEngine::Impl::StagingSlots() const {
  if (device_experts.empty() || options.device.tiers == Tiers::kInclusive) return 0;
  const uint64_t wanted = kStagingBytes / Residency::StagingSlotBytes(catalog, reader->block());
  return std::max<uint64_t>(std::min<uint64_t>(wanted, 8), 1 + device_experts.size());
}

// Memory's slots: in memory that the first device copies from directly, as far as its driver gives
// that much, else in plain memory.
Status NativeEngine::Impl::AllocateMemory() {
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
    for (const std::unique_ptr<UsedDevice>& gpu : gpus) gpu->plan.from_pinned = false;
  }
  TRY(residency, create({}));
  return {};
}

Result<ExpertKey> NativeEngine::Impl::AnyExpertOf(uint32_t form) const {
  for (uint16_t l = 0; l < catalog.layers.size(); ++l) {
    for (uint16_t e = 0; e < catalog.layers[l].experts.size(); ++e) {
      for (CopyId c = 0; c < catalog.layers[l].experts[e].size(); ++c) {
        if (catalog.layers[l].experts[e][c].form == form) return ExpertKey{{l}, {e}, c};
      }
    }
  }
  return Fail(Errc::kUnsupported, "no expert has form {}", form);
}

uint64_t NativeEngine::Impl::BytesOf(ExpertKey key) const {
  uint64_t bytes = 0;
  for (const Extent& slice : catalog.copy(key).slices) bytes += slice.length;
  return bytes;
}

}  // namespace moestro
