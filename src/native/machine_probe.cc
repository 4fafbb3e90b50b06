// SPDX-License-Identifier: MIT
#include "native/machine_probe.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <system_error>

#include "base/bytes.h"
#include "base/format.h"
#include "base/output_file.h"
#include "base/system_limits.h"
#include "compute/cpu_device.h"
#include "compute/rate_probe.h"
#include "compute/team.h"
#include "engine/plan/io_depth.h"
#include "store/block_reader.h"
#include "store/probe.h"

namespace moestro {
namespace {

constexpr uint64_t kFileBytes = 256 * kMiB;
constexpr uint64_t kLeastFile = 64 * kMiB;       // a smaller file may lie in some cache of the disk
constexpr uint64_t kRegionBytes = 3 * kMiB / 4;  // about an expert's matrix
constexpr uint64_t kMostRead = 64 * kMiB;        // bytes read at one depth in a round
constexpr double kMostSeconds = 0.15;            // seconds read at one depth in a round
constexpr int kRounds = 3;

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
  void Put(MachineRates& rates) const;

 private:
  std::unique_ptr<BlockReader> reader_;
  std::vector<Extent> regions_;
  std::vector<DepthSpeed> speeds_;
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

Status DiskProbe::Round() {
  for (DepthSpeed& speed : speeds_) {
    TRY(const BandwidthProbe probe, ProbeBandwidth(*reader_, regions_,
                                                   {.reads = {.max_in_flight = speed.depth},
                                                    .total = kMostRead,
                                                    .most_seconds = kMostSeconds,
                                                    .seed = ++seed_}));
    speed.bytes_per_second = std::max(speed.bytes_per_second, probe.bytes_per_second);
  }
  return {};
}

void DiskProbe::Put(MachineRates& rates) const {
  rates.io_depth = FewestThatFill(speeds_);
  rates.disk = std::ranges::find(speeds_, rates.io_depth, &DepthSpeed::depth)->bytes_per_second;
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
  TRY(rates.barrier, ProbeBarrier(team));
  rates.kernels = kernels.rates();
  disk.Put(rates);
  return rates;
}

}  // namespace moestro
