// SPDX-License-Identifier: MIT
// The devices beside the CPU: found, opened, given slots, tried with experts of the model. With the
// device "auto" a fault of a device is logged, and the other devices and the CPU compute. For a
// device that was requested by name a fault is an error. joined_devices.h uses the devices
// afterwards.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "device/devices.h"
#include "device/host_memory.h"
#include "device/team.h"
#include "engine/device_options.h"
#include "engine/plan/memory_plan.h"
#include "forward/experts/device_experts.h"
#include "forward/experts/device_launcher.h"
#include "forward/experts/device_probe.h"
#include "native/dense_part.h"
#include "native/opened_model.h"
#include "remote/remote_launcher.h"
#include "remote/worker_process.h"
#include "store/extent_reader.h"

namespace moestro {

// A device beside the CPU that is in use: of this machine, or a remote host.
struct UsedDevice {
  std::optional<ComputeDevice> here = {};      // nullopt: a remote host
  std::unique_ptr<WorkerProcess> worker = {};  // of a remote host
  RemoteLauncher* launcher = nullptr;          // the launcher of `experts`, for a remote host
  DevicePlan plan;
  uint64_t vram = 0;                 // bytes that may be used on the device
  std::vector<bool> computes = {};   // by form
  std::vector<uint64_t> slots = {};  // by form
  RemoteHost host = {};              // the address of a remote host
  std::vector<float> known = {};     // a remote host's results for known rows; empty: not exact
  // experts in these slots; null: not made yet, or joined
  std::unique_ptr<DeviceExperts> experts = {};
};

// The shape of launches on device `there`: the model's experts and the biases.
LaunchShape DeviceShapeOf(const OpenedModel& opened, const ComputeDevice& there);

// Whether remote hosts can compute the model's experts. kUnsupported.
Status CheckForRemotes(const ModelFile& model, const RemoteOptions& remote);

class DevicePart {
 public:
  // No device if the CPU computes everything. kDevice, kUsage; kInvalidRequest: sizes that do not
  // fit the devices. `opened` must outlive this.
  static Result<std::unique_ptr<DevicePart>> Open(const OpenedModel& opened);
  DevicePart(const DevicePart&) = delete;
  DevicePart& operator=(const DevicePart&) = delete;

  bool empty() const { return used_.empty(); }
  // The devices in the order of plans; the dense part may be on the first device. Remote hosts are
  // the last.
  std::span<const std::unique_ptr<UsedDevice>> used() const { return used_; }
  // null: no device of this machine is in use.
  UsedDevice* first_here() { return has_one_here() ? used_.front().get() : nullptr; }
  bool has_one_here() const { return !used_.empty() && used_.front()->here; }
  bool is_auto() const { return opened_.options.device.name == "auto"; }
  // Whether the run goes on after a device is lost.
  bool goes_on_if_lost() const { return is_auto() || opened_.options.device.goes_on_if_lost; }

  // Adds the remote hosts, with slots for experts. A host that is of no use is left out with a
  // warning. kUsage: an address that may not be used; kUnsupported: experts that cannot be
  // computed there.
  Status AddRemotes();
  // Reaches a remote host that has been away. The host must compute to the same bits as before
  // where runs are exact. Any thread, also while steps run. kDevice.
  Result<std::unique_ptr<WorkerProcess>> ReachAgain(const UsedDevice& host) const;

  // AllocateSlots() makes expert slots in the memory that the dense part leaves. Try() computes an
  // expert of each form on the device and on the CPU. The CPU computes the forms whose results
  // differ too much. Try() also measures costs that are not known. Call both before memory is
  // planned, because a driver keeps compiled kernels in memory. If the first device is dropped, the
  // CPU gets the dense part.
  Status AllocateSlots(DensePart& dense);
  Status Try(DensePart& dense, Team& team);

  // Adds the bytes that the devices take in memory. An integrated GPU uses the machine's own
  // memory.
  void AddTo(FixedBytes& fixed) const;
  // Slots for experts that are read for a copy to a device and do not stay in memory.
  uint64_t staging_slots() const;
  // Memory from which the first device copies directly; nullopt: plain memory is as good.
  const std::optional<HostMemorySource>& slot_memory() const { return slot_memory_; }
  // Puts slots in plain memory, because the driver gives no more pinned memory.
  void CopyFromPlainMemory();
  // Experts that get device slots before the first token, the most popular first.
  std::span<const ExpertKey> fill_first() const { return fill_first_; }

 private:
  explicit DevicePart(const OpenedModel& opened) : opened_(opened) {}
  Status OpenOne(const DeviceInfo& info, uint64_t vram);
  Status ForEach(DensePart& dense, const std::function<Status(size_t index)>& prepare);
  Status Drop(size_t index, DensePart& dense);
  Status AllocateSlotsOn(size_t index, bool has_dense);
  Status OpenRemote(const RemoteHost& host);
  Result<std::unique_ptr<WorkerProcess>> Reach(const RemoteHost& host) const;
  Result<std::vector<float>> KnownResults(WorkerProcess& worker) const;
  Status TakeRemoteSlots(UsedDevice& host) const;
  void AddRemotesTo(FixedBytes& fixed) const;
  Status TryOne(size_t index, Team& team);
  struct Trial {
    size_t index;  // index of the device
    uint32_t form;
    bool has_costs;  // the device's costs are known
  };
  Result<double> TryForm(const Trial& trial, const ExtentReader& file, Team& team);
  Status FindCosts(const Trial& trial, DeviceProbe& probe);
  double MostDifference(const UsedDevice& of) const;
  Status ChooseFirst();

  const OpenedModel& opened_;
  std::vector<std::unique_ptr<UsedDevice>> used_;
  std::optional<HostMemorySource> slot_memory_;
  std::vector<ExpertKey> fill_first_;
};

}  // namespace moestro
