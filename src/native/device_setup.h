// SPDX-License-Identifier: MIT
// Finds and opens the devices beside the CPU, gives them slots, tries them with experts of the
// model, and owns them. With the device "auto" a fault of a device is logged, and the other devices
// and the CPU compute. For a device that was requested by name a fault is an error.
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
#include "compute/devices.h"
#include "compute/host_memory.h"
#include "compute/team.h"
#include "core/ids.h"
#include "devices/device.h"
#include "devices/device_list.h"
#include "devices/transport.h"
#include "engine/engine_options.h"
#include "engine/plan/memory_plan.h"
#include "kit/expert_slots.h"
#include "native/dense_model.h"
#include "native/opened_model.h"
#include "residency/residency.h"
#include "store/block_reader.h"

namespace moestro {

// The shape of launches on device `there`: the model's experts and the biases.
LaunchShape LaunchShapeOf(const OpenedModel& opened, const ComputeDevice& there);

// Whether remote hosts can compute the model's experts. kUnsupported.
Status CheckForRemotes(const ModelFile& model, const RemoteOptions& remote);

class DeviceSetup {
 public:
  // No device if the CPU computes everything. kDevice, kUsage; kInvalidRequest: sizes that do not
  // fit the devices. `opened` must outlive this.
  static Result<std::unique_ptr<DeviceSetup>> Open(const OpenedModel& opened);
  // Whether Open() would open a GPU, whose driver has a thread of its own. Errors of the choice are
  // left to Open().
  static bool UsesGpu(const EngineOptions& options);
  DeviceSetup(const DeviceSetup&) = delete;
  DeviceSetup& operator=(const DeviceSetup&) = delete;

  bool empty() const { return devices_.empty(); }
  // The devices in the order of plans; the dense part may be on the first device. Remote hosts are
  // the last.
  std::span<const std::unique_ptr<Device>> devices() const { return devices_; }
  // null: no device of this machine is in use.
  Device* first_here() const { return has_one_here() ? devices_.front().get() : nullptr; }
  bool is_auto() const { return opened_.options.device.name == "auto"; }
  // Whether the run goes on after a device is lost.
  bool goes_on_if_lost() const { return is_auto() || opened_.options.device.goes_on_if_lost; }

  // Adds the remote hosts, with slots for experts. A host that is of no use is left out with a
  // warning. kUsage: an address that may not be used; kUnsupported: experts that cannot be
  // computed there.
  Status AddRemotes();

  // AllocateSlots() makes expert slots in the memory that the dense part leaves. Try() computes an
  // expert of each form on the device and on the CPU. The CPU computes the forms whose results
  // differ too much. Try() also measures costs that are not known. Call both before memory is
  // planned, because a driver keeps compiled kernels in memory. If the first device is dropped, the
  // CPU gets the dense part.
  Status AllocateSlots(DenseModel& dense);
  Status Try(DenseModel& dense, Team& team);

  // Adds the bytes that the devices take in memory. An integrated GPU uses the machine's own
  // memory.
  void AddTo(FixedBytes& fixed) const;
  // The tiers of a run whose options leave the choice open; inclusive until the choice.
  void SetTiers(Tiers tiers) { tiers_ = tiers; }
  Tiers tiers() const { return tiers_; }
  // Slots for experts that are read for a copy to a device and do not stay in memory.
  uint64_t staging_slots() const;
  uint64_t staging_bytes() const {
    return staging_slots() * Residency::StagingSlotBytes(opened_.catalog, opened_.planned_block());
  }
  // Memory from which the first device copies directly; nullopt: plain memory is as good.
  const std::optional<HostMemorySource>& slot_memory() const { return slot_memory_; }
  // Puts slots in plain memory, because the driver gives no more pinned memory.
  void CopyFromPlainMemory();
  // Rows of steps for which the first device has memory to compute layers whole; 0: none.
  uint32_t whole_rows() const { return whole_rows_; }
  // Experts that get device slots before the first token, the most popular first.
  std::span<const ExpertKey> fill_first() const { return fill_first_; }
  // [layer][expert], of these experts; empty: not known.
  std::vector<double> popularity() const { return popularity_; }

 private:
  explicit DeviceSetup(const OpenedModel& opened)
      : opened_(opened), tiers_(opened.options.device.tiers.value_or(Tiers::kInclusive)) {}
  bool has_one_here() const { return !devices_.empty() && devices_.front()->here() != nullptr; }
  Status OpenOne(const DeviceInfo& info, uint64_t vram);
  Status AllocateSlotsOn(Device& device, const DenseModel* dense);
  uint32_t RowsOfWhole(const Device& device, uint64_t room, uint32_t most) const;
  Status ForEach(DenseModel& dense, const std::function<Status(size_t index)>& prepare);
  Status Drop(size_t index, DenseModel& dense);
  Status ChooseFirst();

  const OpenedModel& opened_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::optional<HostMemorySource> slot_memory_;
  std::vector<ExpertKey> fill_first_;
  std::vector<double> popularity_;
  uint32_t whole_rows_ = 0;
  Tiers tiers_;
};

// Joins the devices beside the CPU in one list with one tier of slots, beside memory and its
// policy.
//
// All must outlive the list. The devices' plans then have the costs of the disk. kIo; kUsage.
// REQUIRES: `devices` is not empty. Thread rule here and below: the engine thread.
Result<std::unique_ptr<DeviceList>> JoinDevices(const OpenedModel& opened, DeviceSetup& devices,
                                                ExpertSlots& slots, DenseModel& dense);

// Begins to bring remote hosts their experts: the most popular ones, if known, except those that
// memory keeps. If plans are expected to be slower with the hosts, they are turned off. kIo.
Status BringToRemotes(const OpenedModel& opened, const DeviceSetup& devices,
                      const ExpertSlots& slots, DeviceList& list);

}  // namespace moestro
