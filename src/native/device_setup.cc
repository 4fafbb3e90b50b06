// SPDX-License-Identifier: MIT
#include "native/device_setup.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "base/input_file.h"
#include "base/number.h"
#include "base/terminal.h"
#include "compute/backend_buffer.h"
#include "compute/devices.h"
#include "decide/slots/first_experts.h"
#include "devices/device_pools.h"
#include "devices/local_transport.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"
#include "native/device_trial.h"
#include "remote/remote_transport.h"
#include "residency/residency.h"
#include "store/open_files.h"

namespace moestro {
namespace {

// Bytes of a trial: enough that plain memory comes in huge pages, as slots do.
constexpr uint64_t kSample = kPinnedTrialBytes / 2;
constexpr uint64_t kRead = kMiB;
constexpr int kReads = 5;
// The most that reads may take relative to reads into plain memory. Slower reads are accepted if
// reading and copying together are faster than from plain memory.
constexpr double kMostSlower = 1.25;

// Seconds for kRead bytes, the least of kReads trials.
struct Trial {
  double read = std::numeric_limits<double>::infinity();  // from the disk to this memory
  double copy = std::numeric_limits<double>::infinity();  // from this memory to the device

  double both() const { return read + copy; }
};

// Seconds of reading the beginning of the first file into `memory`.
Result<double> ReadInto(std::span<std::byte> memory, BlockReader& reader) {
  const auto start = std::chrono::steady_clock::now();
  std::array<BlockDone, 1> done;
  if (!reader.Submit({.file = 0, .offset = 0, .to = memory.first(kRead)}) ||
      reader.Wait(done) != 1) {
    return Fail(Errc::kIo, "a busy reader");
  }
  if (done[0].error != 0) return Fail(Errc::kIo, "{}", ErrnoText(done[0].error));
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

Status ReadAndCopy(std::span<std::byte> memory, BlockReader& reader, const BackendBuffer& there,
                   Trial& trial) {
  TRY(const double read, ReadInto(memory, reader));
  const auto start = std::chrono::steady_clock::now();
  TRY_STATUS(there.Write(0, memory.first(kRead)));
  const std::chrono::duration<double> copy = std::chrono::steady_clock::now() - start;
  trial = {.read = std::min(trial.read, read), .copy = std::min(trial.copy, copy.count())};
  return {};
}

// Succeeds if reads into pinned memory are about as fast, or faster copies make up for slow reads.
Status Compare(const ComputeDevice& device, const HostMemory& pinned, BlockReader& reader,
               bool may_be_slow) {
  TRY(const HostMemory plain, HostMemory::Allocate(kSample));
  plain.Populate(0, plain.size());
  TRY(const BackendBuffer there, BackendBuffer::On(device.backend(), kRead));
  Trial of_pinned;
  Trial of_plain;
  for (int i = 0; i < kReads; ++i) {
    const uint64_t at = static_cast<uint64_t>(i) * kRead;
    TRY_STATUS(ReadAndCopy(pinned.bytes().subspan(at), reader, there, of_pinned));
    TRY_STATUS(ReadAndCopy(plain.bytes().subspan(at), reader, there, of_plain));
  }
  const double slower = of_pinned.read / of_plain.read;
  if (may_be_slow || slower <= kMostSlower || of_pinned.both() < of_plain.both()) return {};
  return Fail(Errc::kIo, "reads into it take {:.2f} times as long, copies from it {:.2f} times",
              slower, of_pinned.copy / of_plain.copy);
}

Status Try(const ComputeDevice& device, BlockReader* reader, bool may_be_slow) {
  TRY(const HostMemory sample, AllocatePinned(device, kSample));
  sample.Populate(0, sample.size());
  if (!is_cached(sample)) return Fail(Errc::kDevice, "the CPU does not cache it");
  if (reader == nullptr) return {};
  return Compare(device, sample, *reader, may_be_slow);
}

}  // namespace

std::optional<HostMemorySource> PinnedSource(const ComputeDevice& device, BlockReader* reader,
                                             bool may_be_slow) {
  const uint64_t most = MostPinned(device);
  if (most == 0) return std::nullopt;
  const Status tried = Try(device, reader, may_be_slow);
  if (!tried) {
    LogInfo("no pinned memory of {} is used: {}", device.info().name, tried.error().message);
    return std::nullopt;
  }
  return HostMemorySource{
      .allocate = [&device](uint64_t bytes) { return AllocatePinned(device, bytes); },
      .most_bytes = most};
}

namespace {

// Memory of a device that is left free when the user names no size.
constexpr uint64_t kLeastVramMargin = 256 * kMiB;
// Memory for experts on their way from the disk to devices, if experts are small.
constexpr uint64_t kStagingBytes = 32 * kMiB;

// The size that the user allows each device, 0: no size.
Result<std::vector<uint64_t>> SizesFor(const std::vector<uint64_t>& vram, size_t devices) {
  if (vram.empty()) return std::vector<uint64_t>(devices, 0);
  if (vram.size() == 1) return std::vector<uint64_t>(devices, vram.front());
  if (vram.size() == devices) return vram;
  return Fail(Errc::kInvalidRequest,
              "--vram has {} sizes for {} devices; give one for all, or one for each", vram.size(),
              devices);
}

bool HasBiases(const ModelFile& model) {
  return std::ranges::any_of(BiasShapeOf(model).has,
                             [](const auto& layer) { return std::ranges::contains(layer, true); });
}

LaunchShape ShapeOf(const OpenedModel& opened) {
  const ModelSpec& spec = opened.model.spec;
  LaunchShape shape{.n_embd = spec.n_embd_expert(),
                    .activation = spec.experts.activation,
                    .n_used = spec.router.n_used,
                    .has_shared = spec.any_layer(&ModelSpec::has_shared_result) &&
                                  !spec.any_layer(&ModelSpec::adds_shared_in_next),
                    .adds_residual = !spec.any_layer(&ModelSpec::ends_in_next)};
  for (const CopyForm& form : opened.catalog.forms) shape.n_ff = std::max(shape.n_ff, form.n_ff);
  return shape;
}

// The model as remote hosts get it. `opened` must outlive the result.
RemoteModel RemoteModelOf(const OpenedModel& opened) {
  return {
      .catalog = opened.catalog,
      .paths = opened.paths(),
      .kernels = opened.kernels,
      .shape = RemoteTransport::ShapeOf(ShapeOf(opened), opened.options.device.remote.is_exact()),
      .moe = opened.model.id.shape};
}

}  // namespace

LaunchShape LaunchShapeOf(const OpenedModel& opened, const ComputeDevice& there) {
  LaunchShape shape = ShapeOf(opened);
  shape.bias_bytes = DeviceBiases::BytesFor(there, BiasShapeOf(opened.model));
  return shape;
}

Status CheckForRemotes(const ModelFile& model, const RemoteOptions& remote) {
  if (HasBiases(model)) {
    return Fail(Errc::kUnsupported, "--remote: this model's experts have biases, which hosts lack");
  }
  if (remote.is_exact() && !HasExactForm(model.spec.experts.activation)) {
    return Fail(Errc::kUnsupported,
                "--remote: the activation of this model's experts has no form that gives the same "
                "bits there; --remote-inexact takes the other");
  }
  return {};
}

// Opens the chosen devices: finds the forms that each device computes and the bytes that may be
// used on the device.
Result<std::unique_ptr<DeviceSetup>> DeviceSetup::Open(const OpenedModel& opened) {
  std::unique_ptr<DeviceSetup> part(new DeviceSetup(opened));
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

Status DeviceSetup::OpenOne(const DeviceInfo& info, uint64_t vram) {
  TRY(ComputeDevice gpu, ComputeDevice::Open(info));
  const LaunchShape shape = LaunchShapeOf(opened_, gpu);
  std::vector<bool> computes;
  for (const CopyForm& form : opened_.catalog.forms) {
    computes.push_back(LocalTransport::Supports(gpu, form, shape));
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
  devices_.push_back(std::make_unique<Device>(std::move(gpu), opened_.catalog,
                                              vram > 0 ? vram : usual, std::move(computes)));
  return {};
}

Status DeviceSetup::AddRemotes() {
  const RemoteOptions& remote = opened_.options.device.remote;
  if (remote.hosts.empty()) return {};
  TRY_STATUS(CheckForRemotes(opened_.model, remote));
  const RemoteModel model = RemoteModelOf(opened_);
  for (const RemoteHost& host : remote.hosts) {
    Result<std::unique_ptr<RemoteTransport>> opened = RemoteTransport::Open(host, remote, model);
    if (opened) {
      const std::span<const uint64_t> slots = (*opened)->slots();
      devices_.push_back(std::make_unique<Device>(
          *std::move(opened), opened_.catalog, std::vector<uint64_t>(slots.begin(), slots.end())));
      continue;
    }
    const Errc code = opened.error().code;
    if (code == Errc::kUsage || code == Errc::kUnsupported) {
      return std::unexpected(opened.error());
    }
    LogWarning("{}; this machine goes on without it", opened.error().message);
  }
  return {};
}

Status DeviceSetup::AllocateSlots(DenseModel& dense) {
  return ForEach(dense, [&](size_t i) -> Status {
    Device& device = *devices_[i];
    if (device.here() != nullptr) {
      return AllocateSlotsOn(device, i == 0 && dense.is_on_device());
    }
    DeviceBudget& plan = device.plan();
    plan.bytes = LocalTransport::WorkBytes(device.transport().shape());
    for (size_t f = 0; f < device.slots().size(); ++f) {
      plan.bytes += DevicePools::BytesFor(opened_.catalog.forms[f], device.slots()[f]);
    }
    return {};
  });
}

Status DeviceSetup::Try(DenseModel& dense, Team& team) {
  return ForEach(dense, [&](size_t i) -> Status {
    Device& device = *devices_[i];
    const bool has_room = DeviceTrial::Scratch(opened_.options) >= kPinnedTrialBytes;
    if (i == 0 && device.here() != nullptr && has_room) {
      slot_memory_ = PinnedSource(*device.here(), opened_.reader.get(),
                                  opened_.options.device.pins_slow_memory);
    }
    const DeviceTrial trial({.opened = opened_,
                             .team = team,
                             .slot_memory = slot_memory_,
                             .pinned_by = devices_.front()->info().name,
                             .is_only_device = devices_.size() == 1});
    TRY_STATUS(trial.Run(device));
    return i == 0 ? ChooseFirst() : Status();
  });
}

Status DeviceSetup::AllocateSlotsOn(Device& device, bool has_dense) {
  const ComputeDevice& here = *device.here();
  DeviceBudget& plan = device.plan();
  const std::vector<CopyForm>& forms = opened_.catalog.forms;
  const LaunchShape shape = LaunchShapeOf(opened_, here);
  const uint64_t work = LocalTransport::WorkBytes(shape);
  const std::string& faulty = opened_.options.device.faults_of;
  const bool has_faults = faulty.empty() || faulty == plan.info.name;
  DeviceFaults faults = has_faults ? opened_.options.device.faults : DeviceFaults{};
  TRY(DeviceBiases biases, LoadBiasesOn(here, opened_.model));
  std::vector<uint64_t> experts = opened_.catalog.copies_by_form();
  for (uint32_t f = 0; f < experts.size(); ++f) {
    if (!device.computes(f)) experts[f] = 0;
  }
  std::vector<DevicePools::Size> sizes;
  std::optional<DevicePools> pools;
  for (uint64_t bytes = device.vram() - std::min(device.vram(), plan.bytes); !pools;
       bytes = work + (bytes - work) / 2) {
    sizes = DevicePools::Divide(here, bytes - std::min(bytes, work), forms, experts);
    if (std::ranges::none_of(sizes, [](const auto& size) { return size.slots > 0; })) {
      return Fail(Errc::kInvalidRequest,
                  "{} on {} hold no expert beside the {} that computing them takes; raise --vram",
                  FormatBytes(bytes), plan.info.name, FormatBytes(work));
    }
    Result<DevicePools> allocated = DevicePools::Allocate(here, forms, sizes);
    if (allocated) {
      pools = *std::move(allocated);
    } else if (allocated.error().code == Errc::kNoMemory) {
      LogWarning("{}; trying half of it", allocated.error().message);
    } else {
      return std::unexpected(allocated.error());
    }
  }
  auto transport = std::make_unique<LocalTransport>(
      *device.link(), forms,
      LocalTransport::Weights{.pools = *std::move(pools), .biases = std::move(biases)}, shape,
      faults.spoils_results);
  if (has_dense) {
    const uint64_t pairs = uint64_t{opened_.plan.chunk} * opened_.model.spec.router.n_used;
    TRY_STATUS(transport->ReserveThere(pairs));
  }
  plan.bytes += work;
  std::vector<uint64_t> slots;
  for (size_t f = 0; f < sizes.size(); ++f) {
    slots.push_back(sizes[f].slots);
    plan.bytes += DevicePools::BytesFor(forms[f], sizes[f].slots, sizes[f].of_piece);
  }
  device.TakeSlots(std::move(transport), std::move(slots), std::move(faults));
  return {};
}

// Prepares one device after the other. With "auto" a device that is of no use is left out.
Status DeviceSetup::ForEach(DenseModel& dense, const std::function<Status(size_t index)>& prepare) {
  for (size_t index = 0; index < devices_.size();) {
    const Status prepared = prepare(index);
    if (prepared) {
      ++index;
      continue;
    }
    if (!is_auto() && devices_[index]->here() != nullptr) return prepared;
    LogWarning("{}; {}", prepared.error().message,
               devices_.size() == 1 ? "the CPU computes everything" : "it is left out");
    TRY_STATUS(Drop(index, dense));
  }
  return {};
}

// Removes device `index`. Work of device 0 (dense part, slot memory) returns to the CPU; later
// devices move down by one.
Status DeviceSetup::Drop(size_t index, DenseModel& dense) {
  devices_[index]->GiveUpSlots();
  if (index == 0) slot_memory_.reset();
  if (index == 0 && dense.is_on_device()) TRY_STATUS(dense.MoveToCpu());
  devices_.erase(devices_.begin() + static_cast<std::ptrdiff_t>(index));
  return {};
}

// Enough slots that the disk is busy, and that one expert is read while each device copies another.
// Slots are shared: a device that copies takes the next one that has landed.
uint64_t DeviceSetup::staging_slots() const {
  if (!has_one_here() || opened_.options.device.tiers == Tiers::kInclusive) return 0;
  const uint64_t wanted =
      kStagingBytes / Residency::StagingSlotBytes(opened_.catalog, opened_.reader->block());
  return std::max<uint64_t>(std::min<uint64_t>(wanted, 8), 1 + devices_.size());
}

void DeviceSetup::AddTo(FixedBytes& fixed) const {
  fixed.devices = static_cast<uint32_t>(
      std::ranges::count_if(devices_, [](const auto& one) { return one->here() != nullptr; }));
  const size_t n_hosts = opened_.options.device.remote.hosts.size();
  if (n_hosts > 0) fixed.work += n_hosts * RemoteTransport::BytesHere(RemoteModelOf(opened_));
  fixed.work +=
      staging_slots() * Residency::StagingSlotBytes(opened_.catalog, opened_.planned_block());
  // Pinned slots are resident before weights are read.
  if (slot_memory()) fixed.work = std::max(fixed.work, fixed.staging);
  // A software device's memory is in use already.
  for (const std::unique_ptr<Device>& one : devices_) {
    if (one->info().kind == DeviceKind::kIntegrated) fixed.work += one->plan().bytes;
  }
}

void DeviceSetup::CopyFromPlainMemory() {
  for (const std::unique_ptr<Device>& one : devices_) one->plan().from_pinned = false;
}

// Orders the experts by the paths that 'moestro profile' has written, beside the model or at
// --paths. Without paths the devices are empty until a prompt has been read. Call before memory is
// planned: the table takes memory while it is read.
Status DeviceSetup::ChooseFirst() {
  std::shared_ptr<const PathTable> paths = opened_.predictor.paths;
  if (paths == nullptr) {
    std::string path = opened_.options.paths;
    if (path.empty()) {
      path = PathsBeside(opened_.model.gguf.paths().front());
      if (IsAbsent(path)) return {};
    }
    TRY(paths, ReadPathsFor(opened_.model.id, path));
  }
  fill_first_ = ByPopularity(*paths);
  return {};
}

}  // namespace moestro
