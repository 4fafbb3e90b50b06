// SPDX-License-Identifier: MIT
// Tries a device with real experts, and brings their biases to it.
//
// Thread rule: the engine thread, before any step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "compute/devices.h"
#include "compute/host_memory.h"
#include "compute/team.h"
#include "core/ids.h"
#include "devices/device.h"
#include "devices/device_pools.h"
#include "devices/device_probe.h"
#include "model/model_file.h"
#include "native/opened_model.h"
#include "store/block_reader.h"

namespace moestro {

// The memory that the trial takes.
inline constexpr uint64_t kPinnedTrialBytes = uint64_t{32} << 20;

// The source of pinned memory that the device offers. The CPU must cache this memory, and `reader`,
// if any, must read into it about as fast as into plain memory, or copies from pinned memory must
// make up for slow reads. Pages of some drivers refuse direct reads, and small pages make reads
// slow; `may_be_slow` accepts slow reads. Else nullopt, and the log gives the reason. The device
// must outlive the source. REQUIRES: the reader has no read in flight.
std::optional<HostMemorySource> PinnedSource(const ComputeDevice& device, BlockReader* reader,
                                             bool may_be_slow = false);

// Tries a device with an expert of each form, compares the results with the CPU's, and finds the
// device's costs: in a file, among costs kept from an earlier start, or by measuring.

// Loads the biases of a model's experts from its file to a device. The biases in memory are loaded
// only after devices are tried.

DeviceBiases::Shape BiasShapeOf(const ModelFile& model);

// Empty if the model has no biases. kIo, kNoMemory, kDevice.
Result<DeviceBiases> LoadBiasesOn(const ComputeDevice& device, const ModelFile& model);

// The biases of one expert. kIo.
Result<DeviceProbe::Biases> ReadBiasesOf(ExpertKey key, const ModelFile& model);

class DeviceTrial {
 public:
  struct Setting {
    const OpenedModel& opened;
    Team& team;
    // Memory of the slots from which experts are copied; nullopt: plain memory.
    const std::optional<HostMemorySource>& slot_memory;
    std::string pinned_by = {};   // the device whose driver pins slot_memory
    bool is_only_device = false;  // a file of costs without names then fits, too
  };
  explicit DeviceTrial(const Setting& setting) : s_(setting) {}

  // Bytes that a trial may take while slots are still empty: half of what a budget leaves.
  static uint64_t Scratch(const EngineOptions& options);
  // Leaves out forms whose results differ too much. kDevice: none is left.
  Status Run(Device& device) const;

 private:
  Result<double> TryForm(Device& device, uint32_t form, bool has_costs) const;
  double MostDifference(const Device& device) const;

  Setting s_;
};

}  // namespace moestro
