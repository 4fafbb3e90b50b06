// SPDX-License-Identifier: MIT
#include "native/device_part.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "native/catalog.h"
#include "native/expert_biases.h"
#include "residency/residency.h"

namespace moestro {
namespace {

// Memory of a device that is left free when the user names no size.
constexpr uint64_t kLeastVramMargin = 256 * kMiB;
// Memory for experts on their way from the disk to devices, if experts are small.
constexpr uint64_t kStagingBytes = 32 * kMiB;

// The size that the user allows each used device, 0: no size.
Result<std::vector<uint64_t>> SizesFor(const std::vector<uint64_t>& vram, size_t devices) {
  if (vram.empty()) return std::vector<uint64_t>(devices, 0);
  if (vram.size() == 1) return std::vector<uint64_t>(devices, vram.front());
  if (vram.size() == devices) return vram;
  return Fail(Errc::kInvalidRequest,
              "--vram has {} sizes for {} devices; give one for all, or one for each", vram.size(),
              devices);
}

}  // namespace

LaunchShape DeviceShapeOf(const OpenedModel& opened, const ComputeDevice& there) {
  const ModelSpec& spec = opened.model.spec;
  LaunchShape shape{.n_embd = spec.n_embd_expert(),
                    .activation = spec.experts.activation,
                    .n_used = spec.router.n_used,
                    .has_shared = spec.any_layer(&ModelSpec::has_shared_result) &&
                                  !spec.any_layer(&ModelSpec::adds_shared_in_next),
                    .adds_residual = !spec.any_layer(&ModelSpec::ends_in_next),
                    .bias_bytes = DeviceBiases::BytesFor(there, BiasShapeOf(opened.model))};
  for (const CopyForm& form : opened.catalog.forms) shape.n_ff = std::max(shape.n_ff, form.n_ff);
  return shape;
}

// Opens the chosen devices: finds the forms that each device computes and the bytes that may be
// used on the device.
Result<std::unique_ptr<DevicePart>> DevicePart::Open(const OpenedModel& opened) {
  std::unique_ptr<DevicePart> part(new DevicePart(opened));
  const DeviceOptions& options = opened.options.device;
  const bool takes_software = options.auto_takes_software;
  const bool has_none = part->is_auto() && !takes_software && !MayHaveGpu();
  if (options.name == "cpu" || has_none) return part;
  const std::vector<DeviceInfo> found = FindDevices();
  TRY(const std::vector<size_t> chosen, ChooseDevices(found, options.name, takes_software));
  if (chosen.empty()) return part;
  TRY(const std::vector<uint64_t> sizes, SizesFor(options.vram, chosen.size()));
  for (size_t i = 0; i < chosen.size(); ++i) {
    const Status opened_one = part->OpenOne(found[chosen[i]], sizes[i]);
    if (opened_one) continue;
    if (!part->is_auto()) return std::unexpected(opened_one.error());
    LogWarning("{}; it is left out", opened_one.error().message);
  }
  if (part->empty()) LogWarning("no device is of use; the CPU computes everything");
  return part;
}

Status DevicePart::OpenOne(const DeviceInfo& info, uint64_t vram) {
  TRY(ComputeDevice gpu, ComputeDevice::Open(info));
  const LaunchShape shape = DeviceShapeOf(opened_, gpu);
  std::vector<bool> computes;
  for (const CopyForm& form : opened_.catalog.forms) {
    computes.push_back(DeviceLauncher::Supports(gpu, form, shape));
  }
  if (!std::ranges::contains(computes, true)) {
    return Fail(Errc::kDevice, "the device {} computes no expert of this model", info.name);
  }
  TRY(const uint64_t available, gpu.FreeMemory());
  if (vram > available) {
    return Fail(Errc::kInvalidRequest, "--vram {} is more than the {} that are free on {}",
                FormatBytes(vram), FormatBytes(available), info.name);
  }
  const uint64_t margin = std::max(kLeastVramMargin, available / 20);
  const uint64_t usual = available - std::min(available, margin);
  used_.push_back(std::make_unique<UsedDevice>(UsedDevice{.here = std::move(gpu),
                                                          .plan = {.info = info},
                                                          .vram = vram > 0 ? vram : usual,
                                                          .computes = std::move(computes)}));
  return {};
}

Status DevicePart::AllocateSlots(DensePart& dense) {
  return ForEach(dense, [&](size_t i) {
    return used_[i]->here ? AllocateSlotsOn(i, i == 0 && dense.is_on_device())
                          : TakeRemoteSlots(*used_[i]);
  });
}

Status DevicePart::Try(DensePart& dense, Team& team) {
  return ForEach(dense, [&](size_t i) { return TryOne(i, team); });
}

Status DevicePart::AllocateSlotsOn(size_t index, bool has_dense) {
  UsedDevice& its = *used_[index];
  const LaunchShape shape = DeviceShapeOf(opened_, *its.here);
  const uint64_t work = DeviceLauncher::WorkBytes(shape);
  const std::string& faulty = opened_.options.device.faults_of;
  const bool has_faults = faulty.empty() || faulty == its.plan.info.name;
  DeviceFaults faults = has_faults ? opened_.options.device.faults : DeviceFaults{};
  TRY(DeviceBiases biases, LoadBiasesOn(*its.here, opened_.model));
  std::vector<uint64_t> experts = CopiesByForm(opened_.catalog);
  for (size_t f = 0; f < experts.size(); ++f) {
    if (!its.computes[f]) experts[f] = 0;
  }
  std::vector<DevicePools::Size> sizes;
  uint64_t bytes = its.vram - std::min(its.vram, its.plan.bytes);
  for (;; bytes = work + (bytes - work) / 2) {
    sizes = DevicePools::Divide(*its.here, bytes - std::min(bytes, work), opened_.catalog.forms,
                                experts);
    if (std::ranges::none_of(sizes, [](const auto& size) { return size.slots > 0; })) {
      return Fail(Errc::kInvalidRequest,
                  "{} on {} hold no expert beside the {} that computing them takes; raise --vram",
                  FormatBytes(bytes), its.plan.info.name, FormatBytes(work));
    }
    Result<DevicePools> pools = DevicePools::Allocate(*its.here, opened_.catalog.forms, sizes);
    if (!pools) {
      if (pools.error().code != Errc::kNoMemory) return std::unexpected(pools.error());
      LogWarning("{}; trying half of it", pools.error().message);
      continue;
    }
    auto launcher = std::make_unique<DeviceLauncher>(
        *its.here, opened_.catalog.forms,
        DeviceLauncher::Weights{.pools = *std::move(pools), .biases = std::move(biases)}, shape,
        faults.spoils_results);
    if (has_dense) {
      const uint64_t pairs = uint64_t{opened_.plan.chunk} * opened_.model.spec.router.n_used;
      TRY_STATUS(launcher->ReserveThere(pairs));
    }
    its.experts =
        std::make_unique<DeviceExperts>(std::move(launcher), opened_.catalog, std::move(faults));
    break;
  }
  its.plan.bytes += work;
  for (size_t f = 0; f < sizes.size(); ++f) {
    const auto [slots, of_piece] = sizes[f];
    its.slots.push_back(slots);
    its.plan.slots += slots;
    its.plan.bytes += DevicePools::BytesFor(opened_.catalog.forms[f], slots, of_piece);
  }
  return {};
}

// Prepares one device after the other. With "auto" a device that is of no use is left out.
Status DevicePart::ForEach(DensePart& dense, const std::function<Status(size_t index)>& prepare) {
  for (size_t index = 0; index < used_.size();) {
    const Status prepared = prepare(index);
    if (prepared) {
      ++index;
      continue;
    }
    if (!is_auto() && used_[index]->here) return prepared;
    LogWarning("{}; {}", prepared.error().message,
               used_.size() == 1 ? "the CPU computes everything" : "it is left out");
    TRY_STATUS(Drop(index, dense));
  }
  return {};
}

// Removes device `index`. Work of device 0 (dense part, slot memory) returns to the CPU; later
// devices move down by one.
Status DevicePart::Drop(size_t index, DensePart& dense) {
  used_[index]->experts.reset();
  if (index == 0) slot_memory_.reset();
  if (index == 0 && dense.is_on_device()) TRY_STATUS(dense.MoveToCpu());
  used_.erase(used_.begin() + static_cast<std::ptrdiff_t>(index));
  return {};
}

// Enough slots that the disk is busy, and that one expert is read while each device copies another.
// Slots are shared: a device that copies takes the next one that has landed.
uint64_t DevicePart::staging_slots() const {
  if (!has_one_here() || opened_.options.device.tiers == Tiers::kInclusive) return 0;
  const uint64_t wanted =
      kStagingBytes / Residency::StagingSlotBytes(opened_.catalog, opened_.reader->block());
  return std::max<uint64_t>(std::min<uint64_t>(wanted, 8), 1 + used_.size());
}

void DevicePart::AddTo(FixedBytes& fixed) const {
  fixed.devices = static_cast<uint32_t>(
      std::ranges::count_if(used_, [](const auto& one) { return one->here.has_value(); }));
  AddRemotesTo(fixed);
  fixed.work +=
      staging_slots() * Residency::StagingSlotBytes(opened_.catalog, opened_.planned_block());
  // Pinned slots are resident before weights are read.
  if (slot_memory()) fixed.work = std::max(fixed.work, fixed.staging);
  // A software device's memory is in use already.
  for (const std::unique_ptr<UsedDevice>& one : used_) {
    if (one->plan.info.kind == DeviceKind::kIntegrated) fixed.work += one->plan.bytes;
  }
}

void DevicePart::CopyFromPlainMemory() {
  for (const std::unique_ptr<UsedDevice>& one : used_) one->plan.from_pinned = false;
}

}  // namespace moestro
