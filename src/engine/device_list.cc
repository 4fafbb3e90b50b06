// SPDX-License-Identifier: MIT
#include "engine/device_list.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <random>
#include <utility>

#include "core/expert_catalog.h"
#include "device/cpu_device.h"
#include "device/device_pools.h"
#include "device/devices.h"
#include "device/team.h"
#include "engine/catalog.h"
#include "forward/experts/device_experts.h"
#include "forward/experts/device_probe.h"

namespace moestro {
namespace {

constexpr uint32_t kEmbd = 2048;
constexpr uint32_t kFf = 768;
constexpr ggml_type kType = GGML_TYPE_Q4_K;
constexpr uint64_t kSlots = 16;

// A catalog of one expert.
ExpertCatalog OneExpert() {
  const uint64_t bytes = ggml_row_size(kType, kEmbd) * kFf;
  std::array<Extent, kMatrices> slices;
  for (Extent& slice : slices) slice.length = bytes;
  ExpertCatalog catalog;
  catalog.Add(LayerId{0}, ExpertId{0},
              {.types = {kType, kType, kType}, .n_embd = kEmbd, .n_ff = kFf}, slices);
  return catalog;
}

// Weights of a trained model's size; the few rows are repeated, quantising takes long.
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

}  // namespace

std::vector<DeviceInfo> ListDevices() { return FindDevices(); }

std::string_view KindName(DeviceKind kind) { return NameOf(kind); }

Result<DeviceProfile> ProfileDevice(const DeviceInfo& info, uint32_t threads) {
  TRY(CpuDevice cpu, CpuDevice::Open(threads));
  TRY(Team team, Team::Create(cpu));
  TRY(const ComputeDevice device, ComputeDevice::Open(info));
  const ExpertCatalog catalog = OneExpert();
  TRY(const std::vector<FormKernels> kernels, FindFormKernels(catalog, true));
  const DeviceExperts::Shape shape{.n_embd = kEmbd, .n_ff = kFf};
  if (!DeviceExperts::Supports(device, catalog.forms[0], shape)) {
    return Fail(Errc::kDevice, "{} does not compute experts", info.name);
  }
  const std::array slots{kSlots};
  TRY(DevicePools pools, DevicePools::Allocate(device, catalog.forms, slots));
  DeviceExperts experts(device, catalog, std::move(pools), shape);
  const std::array matrices = {RandomMatrix(kEmbd, kFf, 1), RandomMatrix(kEmbd, kFf, 2),
                               RandomMatrix(kFf, kEmbd, 3)};
  DeviceProbe probe(experts, team,
                    {.key = {},
                     .matrices = {matrices[0].data(), matrices[1].data(), matrices[2].data()},
                     .bytes = matrices[0].size() + matrices[1].size() + matrices[2].size(),
                     .kernels = kernels[0],
                     .slots = kSlots});
  DeviceProfile profile;
  for (const uint32_t rows : {1U, 4U, 32U}) {
    TRY(const double difference, probe.Difference(rows));
    profile.difference = std::max(profile.difference, difference);
  }
  TRY(profile.latency, probe.Measure());
  return profile;
}

}  // namespace moestro
