// SPDX-License-Identifier: MIT
#include "native/machine_probe.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <system_error>
#include <utility>

#include "base/number.h"
#include "base/output_file.h"
#include "base/system_limits.h"
#include "base/terminal.h"
#include "base/text.h"
#include "compute/cpu_device.h"
#include "compute/devices.h"
#include "compute/rate_probe.h"
#include "compute/team.h"
#include "core/expert_catalog.h"
#include "devices/device.h"
#include "devices/device_pools.h"
#include "devices/device_probe.h"
#include "devices/local_transport.h"
#include "engine/plan/io_depth.h"
#include "kit/expert_slots.h"
#include "learned/kept_facts.h"
#include "model/model_file.h"
#include "native/catalog.h"
#include "native/device_trial.h"
#include "store/block_reader.h"
#include "store/open_files.h"
#include "store/probe.h"

namespace moestro {
namespace {

constexpr uint64_t kFileBytes = 256 * kMiB;
constexpr uint64_t kLeastFile = 64 * kMiB;       // a smaller file may lie in some cache of the disk
constexpr uint64_t kRegionBytes = 3 * kMiB / 4;  // about an expert's matrix
constexpr uint64_t kMostRead = 64 * kMiB;        // bytes read at one depth in a round
constexpr double kMostSeconds = 0.15;            // seconds read at one depth in a round
constexpr int kRounds = 3;
// Seconds that a disk is read without a pause, first to use up what it gives at once, then to see
// what it gives for long, and the tries of that.
constexpr double kBurstSeconds = 0.25;
constexpr double kLastingSeconds = 0.35;
constexpr int kLastingTries = 2;
// A lasting rate below this share of the best round's counts in place of it.
constexpr double kLastingShare = 0.7;

// Writes a file of random bytes. The file is removed when the OutputFile is destroyed.
Result<OutputFile> WriteFile(const std::string& path) {
  TRY(OutputFile file, OutputFile::Create(OutputPath::OfOwn(path)));
  std::mt19937_64 random(1);
  std::vector<uint64_t> words(kMiB / sizeof(uint64_t));
  for (uint64_t written = 0; written < kFileBytes; written += kMiB) {
    for (uint64_t& word : words) word = random();  // no file system can compress them
    TRY_STATUS(file.Write(std::as_bytes(std::span(words))));
  }
  TRY_STATUS(file.Publish());
  return file;
}

// Measures the disk of one file by the number of reads at a time: the best of several rounds, since
// the speed of a shared disk may be ten times higher from one moment to the next.
class DiskProbe {
 public:
  // kIo.
  Status Open(const std::string& path);
  Status Round();
  // Reads for longer than a round. Disks that are rented, and groups of processes with a limit,
  // give the first part of a second's bytes at once; what an engine gets is what lasts. (A limit of
  // 0.45 GB/s was measured as 2 GB/s by rounds alone.) REQUIRES: Round().
  Status Sustain();
  void Put(MachineRates& rates) const;

 private:
  Result<BandwidthProbe> Read(uint32_t depth, uint64_t bytes, double seconds);
  double best() const;  // of the rounds, at the depth that is chosen

  std::unique_ptr<BlockReader> reader_;
  std::vector<Extent> regions_;
  std::vector<DepthSpeed> speeds_;
  double lasting_ = 0.0;  // bytes a second; 0: not measured
  uint64_t seed_ = 1;
};

Status DiskProbe::Open(const std::string& path) {
  std::error_code unknown;
  const uint64_t bytes = std::filesystem::file_size(path, unknown);
  if (unknown) return Fail(Errc::kIo, "cannot examine {}: {}", path, unknown.message());
  TRY(reader_, OpenReader({}, {path}));
  for (uint64_t at = 0; at + kRegionBytes <= bytes; at += kRegionBytes) {
    regions_.push_back({.file = 0, .offset = at, .length = kRegionBytes});
  }
  if (regions_.empty()) regions_.push_back({.file = 0, .offset = 0, .length = bytes});
  for (const uint32_t depth : kIoDepths) speeds_.push_back({.depth = depth});
  return {};
}

Result<BandwidthProbe> DiskProbe::Read(uint32_t depth, uint64_t bytes, double seconds) {
  return ProbeBandwidth(*reader_, regions_,
                        {.reads = {.max_in_flight = depth},
                         .total = bytes,
                         .most_seconds = seconds,
                         .seed = ++seed_});
}

Status DiskProbe::Round() {
  for (DepthSpeed& speed : speeds_) {
    TRY(const BandwidthProbe probe, Read(speed.depth, kMostRead, kMostSeconds));
    speed.bytes_per_second = std::max(speed.bytes_per_second, probe.bytes_per_second);
  }
  return {};
}

double DiskProbe::best() const {
  return std::ranges::find(speeds_, FewestThatFill(speeds_), &DepthSpeed::depth)->bytes_per_second;
}

Status DiskProbe::Sustain() {
  constexpr uint64_t kMostAtOnce = 4096 * kMiB;
  // A file of few bytes would be read many thousand times, out of some cache.
  if (regions_.size() * kRegionBytes < kLeastFile - kRegionBytes) return {};
  const uint32_t depth = FewestThatFill(speeds_);
  for (int i = 0; i < kLastingTries && lasting_ < kLastingShare * best(); ++i) {
    double bytes = 0.0;
    double seconds = 0.0;
    // A small file is read several times.
    for (const double most : {kBurstSeconds, kLastingSeconds}) {
      bytes = seconds = 0.0;
      while (seconds < most) {
        TRY(const BandwidthProbe probe, Read(depth, kMostAtOnce, most - seconds));
        bytes += static_cast<double>(probe.bytes);
        seconds += probe.seconds;
      }
    }
    lasting_ = std::max(lasting_, bytes / seconds);
  }
  return {};
}

void DiskProbe::Put(MachineRates& rates) const {
  rates.io_depth = FewestThatFill(speeds_);
  rates.disk = lasting_ < kLastingShare * best() ? lasting_ : best();
}

bool IsLarge(const std::string& file) {
  std::error_code unknown;
  return !file.empty() && std::filesystem::file_size(file, unknown) >= kLeastFile && !unknown;
}

// Opens a large file, or writes one. Reads go on after the written file is removed.
Status OpenDisk(const ProbedDisk& where, DiskProbe& disk) {
  if (IsLarge(where.file)) return disk.Open(where.file);
  const std::string path = Format("{}/.moestro-disk-probe-{}", where.folder, ::getpid());
  const Result<OutputFile> written = WriteFile(path);
  if (written) return disk.Open(path);
  // A folder that takes no file may still hold a small one to read.
  if (!where.file.empty()) return disk.Open(where.file);
  return std::unexpected(written.error());
}

}  // namespace

Result<std::string> ProcessorName(uint32_t threads) {
  TRY(const CpuDevice device, CpuDevice::Open(threads));
  return device.description();
}

Result<std::vector<KernelRate>> MeasureKernels(uint32_t threads,
                                               const std::vector<std::string>& types) {
  TRY(CpuDevice device, CpuDevice::Open(threads));
  TRY(Team team, Team::Create(device));
  TRY(KernelProbe kernels, KernelProbe::Create(team, types));
  for (int round = 0; round < kRounds; ++round) TRY_STATUS(kernels.Round());
  return kernels.rates();
}

Result<MachineRates> MeasureMachine(const MachineProbe& probe) {
  TRY(CpuDevice device, CpuDevice::Open(probe.threads));
  MachineRates rates{.cpu = device.description(),
                     .threads = device.threads(),
                     .memory = UnhinderedMemory() + ResidentMemory()};
  DiskProbe disk;
  TRY_STATUS(OpenDisk(probe.disk, disk));
  TRY(Team team, Team::Create(device));
  TRY(KernelProbe kernels, KernelProbe::Create(team, probe.types));
  for (int round = 0; round < kRounds; ++round) {
    TRY_STATUS(disk.Round());
    TRY_STATUS(kernels.Round());
  }
  TRY_STATUS(disk.Sustain());
  TRY(rates.barrier, ProbeBarrier(team));
  rates.kernels = kernels.rates();
  disk.Put(rates);
  return rates;
}

namespace {

constexpr uint32_t kEmbd = 2048;
constexpr uint32_t kFf = 768;
constexpr ggml_type kType = GGML_TYPE_Q4_K;
constexpr uint64_t kMostSlots = 16;
// Bytes that the disk's bandwidth is measured with.
constexpr uint64_t kDiskProbeBytes = 64 * kMiB;

// An expert to measure, the first of its catalog and of the catalog's first form.
struct Subject {
  ExpertCatalog catalog;
  Activation activation = Activation::kSwiglu;
  std::array<std::vector<std::byte>, kMatrices> matrices;
  std::vector<std::string> paths = {};  // files of the model; empty: random weights

  uint64_t bytes() const { return matrices[0].size() + matrices[1].size() + matrices[2].size(); }
};

// A matrix with weights as large as a trained model's. kRows rows are repeated, since quantising
// takes long.
std::vector<std::byte> RandomMatrix(uint32_t n_in, uint32_t n_out, uint32_t seed) {
  constexpr uint32_t kRows = 16;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 0.02F);
  std::vector<float> floats(size_t{kRows} * n_in);
  for (float& value : floats) value = normal(random);
  const size_t row = ggml_row_size(kType, n_in);
  std::vector<std::byte> matrix(row * n_out);
  ggml_quantize_chunk(kType, floats.data(), matrix.data(), 0, kRows, n_in, nullptr);
  for (size_t at = kRows * row; at < matrix.size(); at += kRows * row) {
    std::copy_n(matrix.begin(), kRows * row, matrix.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return matrix;
}

Subject RandomSubject() {
  Subject subject;
  std::array<Extent, kMatrices> slices;
  for (Extent& slice : slices) slice.length = ggml_row_size(kType, kEmbd) * kFf;
  subject.catalog.Add(ExpertLayerId{0}, ExpertId{0},
                      {.types = {kType, kType, kType}, .n_embd = kEmbd, .n_ff = kFf}, slices);
  subject.matrices = {RandomMatrix(kEmbd, kFf, 1), RandomMatrix(kEmbd, kFf, 2),
                      RandomMatrix(kFf, kEmbd, 3)};
  return subject;
}

Result<Subject> SubjectOf(const std::string& path) {
  TRY(const ModelFile model, ModelFile::Open(path));
  Subject subject{.catalog = MakeCatalog(model.weights),
                  .activation = model.spec.experts.activation,
                  .matrices = {},
                  .paths = model.gguf.paths()};
  if (subject.catalog.forms.empty()) {
    return Fail(Errc::kInvalidRequest, "{} has no experts to measure", path);
  }
  TRY(const ExtentReader file, ExtentReader::Open(subject.paths));
  for (size_t m = 0; m < kMatrices; ++m) {
    TRY(const ExtentBytes read, file.Read(subject.catalog.copy({}).matrix(static_cast<Matrix>(m))));
    subject.matrices[m].assign(read.bytes.begin(), read.bytes.end());
  }
  return subject;
}

// Slots by form: as many of the first form as a quarter of the device's free memory holds,
// kMostSlots at most; none of other forms.
Result<std::vector<DevicePools::Size>> SlotsFor(const Subject& subject,
                                                const ComputeDevice& device) {
  TRY(const uint64_t available, device.FreeMemory());
  const uint64_t room = available / 4 / std::max<uint64_t>(subject.bytes(), 1);
  std::vector<DevicePools::Size> sizes(subject.catalog.forms.size());
  sizes[0].slots = std::min(std::clamp<uint64_t>(room, 1, kMostSlots),
                            DevicePools::SlotsOfPiece(device, subject.catalog.forms[0]));
  return sizes;
}

}  // namespace

std::vector<DeviceInfo> ListDevices() { return FindDevices(); }

std::string_view KindName(DeviceKind kind) { return NameOf(kind); }

Result<DeviceProfile> ProfileDevice(const DeviceInfo& info, const ProfileRequest& request) {
  Subject subject;
  if (request.model.empty()) {
    subject = RandomSubject();
  } else {
    TRY(subject, SubjectOf(request.model));
  }
  TRY(CpuDevice cpu, CpuDevice::Open(request.threads));
  TRY(Team team, Team::Create(cpu));
  TRY(ComputeDevice opened, ComputeDevice::Open(info));
  const ExpertCatalog& catalog = subject.catalog;
  TRY(const std::vector<FormKernels> kernels, FindFormKernels(catalog, true));
  const CopyForm& form = catalog.forms[0];
  const LaunchShape shape{
      .n_embd = form.n_embd, .n_ff = form.n_ff, .activation = subject.activation};
  if (!LocalTransport::Supports(opened, form, shape)) {
    return Fail(Errc::kDevice, "{} does not compute such experts", info.name);
  }
  Device device(std::move(opened), catalog, 0, std::vector<bool>(catalog.forms.size(), true));
  const ComputeDevice& here = *device.here();
  std::unique_ptr<BlockReader> reader;
  if (!subject.paths.empty()) {
    TRY(reader, OpenReader({}, subject.paths));
  }
  TRY(const std::vector<DevicePools::Size> sizes, SlotsFor(subject, here));
  TRY(DevicePools pools, DevicePools::Allocate(here, catalog.forms, sizes));
  device.TakeSlots(
      std::make_unique<LocalTransport>(*device.link(), catalog.forms,
                                       LocalTransport::Weights{.pools = std::move(pools)}, shape),
      {}, {});
  const std::optional<HostMemorySource> pinned =
      PinnedSource(here, reader.get(), request.pins_slow_memory);
  DeviceProbe probe(
      device, team,
      {.key = {},
       .matrices = {subject.matrices[0].data(), subject.matrices[1].data(),
                    subject.matrices[2].data()},
       .bytes = subject.bytes(),
       .kernels = kernels[0],
       .activation = subject.activation,
       .slots = static_cast<uint32_t>(sizes[0].slots),
       .memory = pinned.value_or(HostMemorySource()),
       .own_copies = pinned ? Transport::CopyWay::kPinned : Transport::CopyWay::kRing});
  DeviceProfile profile{.latency = {}, .from_pinned = pinned.has_value()};
  for (const uint32_t rows : DeviceProbe::kRowsToTry) {
    TRY(const double difference, probe.Difference(rows));
    profile.difference = std::max(profile.difference, difference);
  }
  TRY(profile.latency, probe.Measure());
  ForgetCosts(request.cost_folder, info);
  KeepCosts(request.cost_folder,
            {.cpu = cpu.description(),
             .kernel = kernels[0].kernel.back().name,
             .device = info,
             .pinned_by = profile.from_pinned ? info.name : "",
             .expert = form},
            profile.latency);
  if (reader) {
    TRY(const BandwidthProbe disk,
        ProbeBandwidth(*reader, OwnSlices(catalog), {.reads = {}, .total = kDiskProbeBytes}));
    profile.latency.disk = {.per_byte = 1.0 / disk.bytes_per_second};
  }
  return profile;
}

Result<LatencyFile> ProfileFirst(const std::string& names, const ProfileRequest& request) {
  LatencyFile file;
  const bool is_auto = names == "auto";
  if (names == "cpu" || (is_auto && !MayHaveGpu())) return file;
  const std::vector<DeviceInfo> found = FindDevices();
  TRY(const std::vector<size_t> chosen, ChooseDevices(found, names));
  if (chosen.empty()) return file;
  const DeviceInfo& first = found[chosen.front()];
  Result<DeviceProfile> profile = ProfileDevice(first, request);
  if (!profile && is_auto) {
    LogWarning("{} is left out: {}", first.name, profile.error().message);
    return file;
  }
  TRY_STATUS(profile);
  file.devices = {first.name};
  file.memory = {first.memory_free};
  file.is_remote = {false};
  file.model = profile->latency;
  return file;
}

}  // namespace moestro
