// SPDX-License-Identifier: MIT
// What ggml's plug-ins find on this machine.
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
#include "core/device_info.h"
#include "device/backend_calls.h"

namespace moestro {

// All of them in ggml's order, the CPU among them; a device whose driver fails when it is asked for
// its memory has none. Loads ggml's plug-ins if they are not loaded.
std::vector<DeviceInfo> FindDevices();

// False if the system has no node of a GPU: then no driver need be loaded, which takes a hundred
// megabytes of memory, to find none. `root`: in place of "/", for tests.
bool MayHaveGpu(const std::string& root = "");

// "discrete", "integrated", "software", "remote", "cpu".
std::string_view NameOf(DeviceKind kind);

// Indices of the devices that `names` means, in that order: names with commas between them, each
// ggml's or its backend's for the first of that backend, whatever the case. "cpu": none. "auto":
// the discrete GPUs, those of one backend, those with most memory first; without any the integrated
// ones, never remote ones, and software ones only if `auto_takes_software`. kUsage: a name that
// none has, and what there is; a device named twice; auto or cpu beside another name.
Result<std::vector<size_t>> ChooseDevices(std::span<const DeviceInfo> devices,
                                          std::string_view names, bool auto_takes_software = false);

// A device that computes graphs, opened.
class ComputeDevice {
 public:
  // kDevice if it does not start.
  static Result<ComputeDevice> Open(const DeviceInfo& info);

  const DeviceInfo& info() const { return info_; }
  ggml_backend_t backend() const { return backend_.get(); }
  ggml_backend_dev_t handle() const { return ggml_backend_get_device(backend_.get()); }
  // Bytes that are free at the moment. kDevice.
  Result<uint64_t> FreeMemory() const;
  // Waits for all launches. kDevice if they, or the device, came to grief.
  Status Finish() const;

 private:
  DeviceInfo info_;
  BackendPtr backend_;
};

}  // namespace moestro
