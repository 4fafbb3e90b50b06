// SPDX-License-Identifier: MIT
// Tests a device with one real expert: whether the device computes as the CPU does, and the time of
// experts and of their copies, each alone and beside the other.
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
#include "compute/expert_kernel.h"
#include "compute/host_memory.h"
#include "compute/team.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "decide/devices/latency_model.h"
#include "devices/device.h"

namespace moestro {

class DeviceProbe {
 public:
  // An expert whose bytes are in memory. All members must outlive the probe. The kernels are those
  // of the expert's form. The probe may overwrite `slots` of this form. `memory`: the kind of
  // memory of the slots from which experts are computed and copied.
  using Biases = std::array<std::vector<float>, kMatrices>;  // [n_out]; empty: none
  struct Expert {
    ExpertKey key;
    Device::Matrices matrices;
    uint64_t bytes = 0;
    const FormKernels& kernels;
    Activation activation = Activation::kSwiglu;
    uint32_t slots = 1;
    HostMemorySource memory = {};
    Biases biases = {};
    Transport::CopyWay own_copies = Transport::CopyWay::kRing;  // how the device copies itself
  };
  DeviceProbe(Device& device, Team& team, Expert expert)
      : device_(device), team_(team), expert_(std::move(expert)) {}

  // The mean squared difference between the device's results and the CPU's, as a share of the CPU's
  // results, for `rows` random rows, at most the last of kRowsToTry. kDevice.
  Result<double> Difference(uint32_t rows);
  // Kernels depend on the number of rows, and with many rows the last tile may be partial.
  static constexpr std::array<uint32_t, 4> kRowsToTry = {1, 4, 32, 100};
  // The most difference of two products in sequence: ggml allows its backends 5e-4 for each.
  static constexpr double kMostDifference = 1e-3;

  // Measures the costs with this one device, without the disk, in about a second: first both ways
  // of copies, of which the faster is taken, unless the device has another than the driver's
  // already; then the CPU and copies alone, then each while the other works. For the CPU beside
  // other work, the longer time counts: beside copies or beside launches. Takes up to `scratch`
  // bytes of memory meanwhile, for weights that do not fit in a cache. kDevice, kNoMemory.
  Result<LatencyModel> Measure(uint64_t scratch = kScratch);
  // Whether costs of an earlier measurement still hold: the quickest of some launches takes neither
  // an eighth nor eight times as long as the costs promise. Less is what other work on the machine
  // makes of a launch. kDevice.
  Result<bool> AreLike(const LatencyModel& kept);
  static constexpr double kUnlike = 8.0;
  static constexpr uint64_t kScratch = uint64_t{96} << 20;  // more than caches of small machines

 private:
  // The time of an expert with one row on the CPU, and of its copy.
  struct Pair {
    double host = 0.0;
    double copy = 0.0;
  };
  Status MakeCopies(uint64_t scratch);
  Result<double> SecondsOfCopiesBesideLaunch();
  Status ChooseCopyWay();
  Device::Matrices NextCopy();
  Device::Ticket FillNext();
  // Seconds for `experts` experts with `rows` rows each.
  Result<double> DeviceSeconds(uint32_t experts, uint32_t rows);
  // `launched`: the device computes this plan meanwhile; null: no launch.
  Result<double> HostSeconds(uint32_t rows, const LayerPlan* launched = nullptr);
  Result<double> HostOnce(std::span<const float> x, uint32_t rows, std::span<float> y);
  Status MeasureRows(LatencyModel& model);
  Status MeasureCalls(const LayerPlan& launched, double longest, DeviceCosts& costs);
  Status Landed(const Device::Ticket& ticket);
  Result<double> CopySeconds();
  Result<Pair> Together(const Pair& alone);
  Status RunOnHost(std::span<const float> x, uint32_t rows, const Device::Matrices& matrices,
                   std::span<float> y);
  Status RunOnDevice(std::span<const float> x, uint32_t experts, uint32_t rows, std::span<float> y);
  std::vector<float> RandomRows(uint32_t rows) const;

  Device& device_;
  Team& team_;
  Expert expert_;
  HostMemory copies_;  // copies of the expert, more than a cache holds
  size_t n_copies_ = 0;
  size_t next_copy_ = 0;
  uint32_t next_slot_ = 0;
  std::array<HostMemory, kMatrices> quantised_;  // scratch of the host's run
};

}  // namespace moestro
