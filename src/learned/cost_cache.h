// SPDX-License-Identifier: MIT
// What experts were measured to cost on this machine, kept from one start to the next: a latency
// file (latency_file.h) for each device and form of expert, in a folder of the user's cache.
// Whatever is wrong with the folder or a file costs a measurement and is no error.
//
// Thread rule: none, calls share nothing but the file system.
#pragma once

#include <optional>
#include <string>

#include "core/device_info.h"
#include "core/expert_catalog.h"
#include "decide/devices/latency_model.h"

namespace moestro {

// What a measurement is good for; if anything of it changes, so may the costs.
struct CostKey {
  std::string cpu = {};     // its name, and how many threads compute
  std::string kernel = {};  // by which it multiplies
  DeviceInfo device = {};
  std::string pinned_by = {};  // the device that pins the memory of copies; empty: none
  CopyForm expert = {};

  // One line that holds all of it.
  std::string text() const;
};

// Costs measured for exactly this; nullopt: there are none. `folder` may be empty: none either.
std::optional<LatencyModel> KeptCosts(const std::string& folder, const CostKey& key);
// Keeps them, in place of older ones. The disk's are not kept: every model may lie on another.
void KeepCosts(const std::string& folder, const CostKey& key, const LatencyModel& model);
// Forgets what is kept of a device, for all forms.
void ForgetCosts(const std::string& folder, const DeviceInfo& device);

// The file of that key, for tests.
std::string CostFile(const std::string& folder, const CostKey& key);

}  // namespace moestro
