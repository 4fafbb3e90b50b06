// SPDX-License-Identifier: MIT
// Devices that ggml's plug-ins find on this machine.
//
// Thread rule: one thread at a time.
#pragma once

#include <ggml-backend.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compute/backend_calls.h"
#include "compute/host_memory.h"
#include "core/machine.h"

namespace moestro {

// All devices in ggml's order, the CPU among them. If the driver cannot say how much memory a
// device has, the device counts as having none. Loads ggml's plug-ins if they are not loaded.
std::vector<DeviceInfo> FindDevices();

// False if the system has no node of a GPU: then no driver need be loaded, which takes a hundred
// megabytes of memory, only to find no device. `root`: in place of "/", for tests.
bool MayHaveGpu(const std::string& root = "");

// "discrete", "integrated", "software", "remote", "cpu".
std::string_view NameOf(DeviceKind kind);

// Indices of the devices that `names` lists, in the order of `names`. Names have commas between
// them; each is ggml's name of a device, or the name of a backend for the backend's first device,
// in any case. "cpu": no device. "auto": the discrete GPUs of one backend, those with most memory
// first; without discrete ones the integrated ones; never remote ones, and software ones only if
// `auto_takes_software`. kUsage: a name that no device has (the message lists the known names); a
// device named twice; auto or cpu beside another name.
Result<std::vector<size_t>> ChooseDevices(std::span<const DeviceInfo> devices,
                                          std::string_view names, bool auto_takes_software = false);

// A device that computes graphs, opened.
class ComputeDevice {
 public:
  // kDevice: the device does not start.
  static Result<ComputeDevice> Open(const DeviceInfo& info);

  const DeviceInfo& info() const { return info_; }
  ggml_backend_t backend() const { return backend_.get(); }
  ggml_backend_dev_t handle() const { return ggml_backend_get_device(backend_.get()); }
  // Bytes that are free at the moment. kDevice.
  Result<uint64_t> FreeMemory() const;
  // Waits for all launches. kDevice: a launch or the device failed.
  Status Finish() const;

 private:
  DeviceInfo info_;
  BackendPtr backend_;
};

// Memory that a device copies from without a detour by a staging buffer of its driver ("pinned"),
// as given by the device's ggml backend.
//
// Thread rule: one thread at a time.

// The most bytes of one piece; 0: the device offers no such memory.
uint64_t MostPinned(const ComputeDevice& device);

// Page-aligned; may outlive the device. kNoMemory: the driver has no such memory left.
Result<HostMemory> AllocatePinned(const ComputeDevice& device, uint64_t bytes);

// False if the CPU does not cache the memory, as some drivers map theirs: the CPU then reads such
// memory a hundred times slower. REQUIRES: a MiB, touched.
bool is_cached(const HostMemory& memory);

}  // namespace moestro
