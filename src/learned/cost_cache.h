// SPDX-License-Identifier: MIT
// Measured costs of experts on this machine, kept from one start to the next: a latency file
// (latency_file.h) for each device and form of expert, in a folder of the user's cache. A fault of
// the folder or of a file costs a new measurement and is no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <optional>
#include <string>

#include "core/expert_catalog.h"
#include "core/machine.h"
#include "decide/devices/latency_model.h"

namespace moestro {

// Conditions of a measurement. If one of them changes, costs may change, too.
struct CostKey {
  std::string cpu = {};     // the processor's name and the number of compute threads
  std::string kernel = {};  // the kernel that multiplies
  DeviceInfo device = {};
  std::string pinned_by = {};  // the device that pins the memory of copies; empty: none
  CopyForm expert = {};

  // All members in one line.
  std::string text() const;
};

// Costs that were measured for exactly this key; nullopt: none are kept, or `folder` is empty.
std::optional<LatencyModel> KeptCosts(const std::string& folder, const CostKey& key);
// Keeps `model` in place of older costs. The disk's costs are left out, because every model may lie
// on another disk.
void KeepCosts(const std::string& folder, const CostKey& key, const LatencyModel& model);
// Deletes the kept costs of a device, for all forms.
void ForgetCosts(const std::string& folder, const DeviceInfo& device);

// The file of that key, for tests.
std::string CostFile(const std::string& folder, const CostKey& key);

}  // namespace moestro
