// SPDX-License-Identifier: MIT
#include "native/profile_device.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "base/bytes.h"
#include "compute/cpu_device.h"
#include "compute/devices.h"
#include "compute/team.h"
#include "core/expert_catalog.h"
#include "devices/device.h"
#include "devices/device_pools.h"
#include "devices/device_probe.h"
#include "devices/local_transport.h"
#include "kit/expert_slots.h"
#include "learned/cost_cache.h"
#include "model/model_file.h"
#include "native/catalog.h"
#include "native/pinned_source.h"
#include "store/block_reader.h"
#include "store/open_files.h"
#include "store/probe.h"

namespace moestro {
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
  TRY(const ComputeDevice device, ComputeDevice::Open(info));
  const ExpertCatalog& catalog = subject.catalog;
  TRY(const std::vector<FormKernels> kernels, FindFormKernels(catalog, true));
  const CopyForm& form = catalog.forms[0];
  const LaunchShape shape{
      .n_embd = form.n_embd, .n_ff = form.n_ff, .activation = subject.activation};
  if (!LocalTransport::Supports(device, form, shape)) {
    return Fail(Errc::kDevice, "{} does not compute such experts", info.name);
  }
  std::unique_ptr<BlockReader> reader;
  if (!subject.paths.empty()) {
    TRY(reader, OpenReader({}, subject.paths));
  }
  TRY(const std::vector<DevicePools::Size> sizes, SlotsFor(subject, device));
  TRY(DevicePools pools, DevicePools::Allocate(device, catalog.forms, sizes));
  DeviceLink link(device);
  Device experts(
      std::make_unique<LocalTransport>(link, catalog.forms,
                                       LocalTransport::Weights{.pools = std::move(pools)}, shape),
      catalog);
  const std::optional<HostMemorySource> pinned =
      PinnedSource(device, reader.get(), request.pins_slow_memory);
  DeviceProbe probe(experts, team,
                    {.key = {},
                     .matrices = {subject.matrices[0].data(), subject.matrices[1].data(),
                                  subject.matrices[2].data()},
                     .bytes = subject.bytes(),
                     .kernels = kernels[0],
                     .activation = subject.activation,
                     .slots = static_cast<uint32_t>(sizes[0].slots),
                     .memory = pinned.value_or(HostMemorySource())});
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

}  // namespace moestro
