// SPDX-License-Identifier: MIT
// What a device is worth, found out with one real expert: whether it computes as the CPU does, and
// how long experts and their copies take, each alone and beside the other.
//
// Thread rule: the engine thread, before any step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "decide/devices/latency_model.h"
#include "device/host_memory.h"
#include "device/team.h"
#include "forward/experts/device_experts.h"
#include "forward/experts/expert_exec.h"

namespace moestro {

class DeviceProbe {
 public:
  // An expert whose bytes are in memory. Everything must outlive the probe, the kernels those of
  // its form; `slots` of that form are free to be overwritten. `memory`: as of the slots that
  // experts will be computed and copied from.
  using Biases = std::array<std::vector<float>, kMatrices>;  // [n_out]; empty: none
  struct Expert {
    ExpertKey key;
    DeviceExperts::Matrices matrices;
    uint64_t bytes = 0;
    const FormKernels& kernels;
    Activation activation = Activation::kSwiglu;
    uint32_t slots = 1;
    HostMemorySource memory = {};
    Biases biases = {};
  };
  DeviceProbe(DeviceExperts& device, Team& team, Expert expert)
      : device_(device), team_(team), expert_(std::move(expert)) {}

  // The mean squared difference between the device's results and the CPU's, as a share of these,
  // for `rows` random rows of the expert, at most the last of kRowsToTry. kDevice.
  Result<double> Difference(uint32_t rows);
  // Kernels differ by the number of rows, and of many the last tile is not whole.
  static constexpr std::array<uint32_t, 4> kRowsToTry = {1, 4, 32, 100};
  // What two products in a row may differ by: ggml holds its backends to 5e-4 for each.
  static constexpr double kMostDifference = 1e-3;

  // Costs with this one device by measurement, in about a second, the disk's aside: CPU and copies
  // alone, then each while the other works all the time; of the CPU's time beside copies and beside
  // launches the longer counts. Takes up to `scratch` bytes of memory meanwhile, for weights that
  // no cache holds. kDevice, kNoMemory.
  Result<LatencyModel> Measure(uint64_t scratch = kScratch);
  static constexpr uint64_t kScratch = uint64_t{96} << 20;  // more than caches of small machines

 private:
  // What an expert of one row takes on the CPU, and its copy.
  struct Pair {
    double host = 0.0;
    double copy = 0.0;
  };
  Status MakeCopies(uint64_t scratch);
  DeviceExperts::Matrices NextCopy();
  DeviceExperts::Ticket FillNext();
  // Seconds for `experts` experts with `rows` rows each.
  Result<double> DeviceSeconds(uint32_t experts, uint32_t rows);
  // `launched`: what there is on the device is computed meanwhile; null: nothing.
  Result<double> HostSeconds(uint32_t rows, const LayerPlan* launched = nullptr);
  Result<double> HostOnce(std::span<const float> x, uint32_t rows, std::span<float> y);
  Status Landed(const DeviceExperts::Ticket& ticket);
  Result<double> CopySeconds();
  Result<Pair> Together(const Pair& alone);
  Status RunOnHost(std::span<const float> x, uint32_t rows, const DeviceExperts::Matrices& matrices,
                   std::span<float> y);
  Status RunOnDevice(std::span<const float> x, uint32_t experts, uint32_t rows, std::span<float> y);
  std::vector<float> RandomRows(uint32_t rows) const;

  DeviceExperts& device_;
  Team& team_;
  Expert expert_;
  HostMemory copies_;  // of the expert, so many that no cache holds them
  size_t n_copies_ = 0;
  size_t next_copy_ = 0;
  uint32_t next_slot_ = 0;
  std::array<HostMemory, kMatrices> quantised_;  // scratch of the host's run
};

}  // namespace moestro
