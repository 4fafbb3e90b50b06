// SPDX-License-Identifier: MIT
#include "native/machine_probe.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <system_error>

#include "base/bytes.h"
#include "base/output_file.h"
#include "base/system_limits.h"
#include "device/cpu_device.h"
#include "device/rate_probe.h"
#include "device/team.h"
#include "engine/plan/io_depth.h"
#include "store/block_reader.h"
#include "store/probe.h"

namespace moestro {
namespace {

constexpr uint64_t kFileBytes = 256 * kMiB;
constexpr uint64_t kLeastFile = 64 * kMiB;       // a smaller one may lie in some cache of the disk
constexpr uint64_t kRegionBytes = 3 * kMiB / 4;  // as an expert's matrices are
constexpr uint64_t kMostRead = 128 * kMiB;       // with one number of reads at a time
constexpr double kMostSeconds = 0.3;             // the same

// It is removed when it goes.
Result<OutputFile> WriteFile(const std::string& path) {
  TRY(OutputFile file, OutputFile::Create(path));
  std::mt19937_64 random(1);
  std::vector<uint64_t> words(kMiB / sizeof(uint64_t));
  for (uint64_t written = 0; written < kFileBytes; written += kMiB) {
    for (uint64_t& word : words) word = random();  // no file system makes it smaller
    TRY_STATUS(file.Write(std::as_bytes(std::span(words))));
  }
  TRY_STATUS(file.Publish());
  return file;
}

Status MeasureDisk(const std::string& path, MachineRates& rates) {
  std::error_code unknown;
  const uint64_t bytes = std::filesystem::file_size(path, unknown);
  if (unknown) return Fail(Errc::kIo, "cannot examine {}: {}", path, unknown.message());
  TRY(const std::unique_ptr<BlockReader> reader, OpenReader({}, {path}));
  std::vector<Extent> regions;
  for (uint64_t at = 0; at + kRegionBytes <= bytes; at += kRegionBytes) {
    regions.push_back({.file = 0, .offset = at, .length = kRegionBytes});
  }
  std::vector<DepthSpeed> speeds;
  for (const uint32_t depth : kIoDepths) {
    TRY(const BandwidthProbe probe, ProbeBandwidth(*reader, regions,
                                                   {.reads = {.max_in_flight = depth},
                                                    .total = kMostRead,
                                                    .most_seconds = kMostSeconds,
                                                    .seed = depth}));
    speeds.push_back({.depth = depth, .bytes_per_second = probe.bytes_per_second});
  }
  rates.io_depth = FewestThatFill(speeds);
  rates.disk = std::ranges::find(speeds, rates.io_depth, &DepthSpeed::depth)->bytes_per_second;
  return {};
}

Status MeasureDisk(const ProbedDisk& disk, MachineRates& rates) {
  std::error_code unknown;
  const bool is_large = !disk.file.empty() &&
                        std::filesystem::file_size(disk.file, unknown) >= kLeastFile && !unknown;
  if (is_large) return MeasureDisk(disk.file, rates);
  const std::string path = disk.folder + "/disk-probe";
  TRY(const OutputFile written, WriteFile(path));
  return MeasureDisk(path, rates);
}

}  // namespace

Result<std::string> ProcessorName(uint32_t threads) {
  TRY(const CpuDevice device, CpuDevice::Open(threads));
  return device.description();
}

Result<MachineRates> MeasureMachine(const MachineProbe& probe) {
  TRY(CpuDevice device, CpuDevice::Open(probe.threads));
  MachineRates rates{.cpu = device.description(),
                     .threads = device.threads(),
                     .memory = AvailableMemory() + ResidentMemory()};
  TRY_STATUS(MeasureDisk(probe.disk, rates));
  TRY(Team team, Team::Create(device));
  TRY(rates.kernels, ProbeKernelRates(team, probe.types));
  return rates;
}

}  // namespace moestro
