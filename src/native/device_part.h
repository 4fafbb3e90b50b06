// SPDX-License-Identifier: MIT
// The devices beside the CPU: found, opened, given slots, tried with experts of the model. With the
// device "auto" whatever is wrong with one is said, and the others and the CPU compute; a device
// that was asked for by name fails then. joined_devices.h is what they do afterwards.
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
#include "forward/experts/device_probe.h"
#include "native/dense_part.h"
#include "native/opened_model.h"
#include "store/extent_reader.h"

namespace moestro {

// A device beside the CPU that is in use.
struct UsedDevice {
  ComputeDevice device;
  DevicePlan plan;
  uint64_t vram = 0;                            // bytes that may be taken there
  std::vector<bool> computes = {};              // by form
  std::vector<uint64_t> slots = {};             // by form
  std::unique_ptr<DeviceExperts> experts = {};  // in these; null: not yet, or joined
};

// What experts of the model ask of a device.
DeviceExperts::Shape DeviceShapeOf(const OpenedModel& opened, const ComputeDevice& there);

class DevicePart {
 public:
  // None if the CPU is to compute everything. kDevice, kUsage; kInvalidRequest: sizes that do not
  // fit the devices. `opened` must outlive this.
  static Result<std::unique_ptr<DevicePart>> Open(const OpenedModel& opened);
  DevicePart(const DevicePart&) = delete;
  DevicePart& operator=(const DevicePart&) = delete;

  bool empty() const { return used_.empty(); }
  // As plans number them; the dense part may be on the first.
  std::span<const std::unique_ptr<UsedDevice>> used() const { return used_; }
  // null: there is none.
  UsedDevice* first() { return used_.empty() ? nullptr : used_.front().get(); }
  bool is_auto() const { return opened_.options.device.name == "auto"; }
  // A device that is lost does not end the run.
  bool goes_on_if_lost() const { return is_auto() || opened_.options.device.goes_on_if_lost; }

  // Slots for experts in what the dense part leaves; then an expert of each form, read and computed
  // there and by the CPU: forms that differ too much are the CPU's. Costs are measured where they
  // are not known. Before memory is planned: a driver compiles what it launches, and keeps that in
  // memory. A device that is dropped gives the dense part to the CPU.
  Status AllocateSlots(DensePart& dense);
  Status Try(DensePart& dense, Team& team);

  // Adds what they take in memory. An integrated GPU's memory is the machine's own.
  void AddTo(FixedBytes& fixed) const;
  // Slots for experts that are read to be copied to a device and that memory is not to keep.
  uint64_t staging_slots() const;
  // Memory that the first device copies from directly; nullopt: plain memory is as good.
  const std::optional<HostMemorySource>& slot_memory() const { return slot_memory_; }
  // Slots lie in plain memory, since the driver gives no more.
  void CopyFromPlainMemory();
  // Experts that get slots there before the first token, the most popular first.
  std::span<const ExpertKey> fill_first() const { return fill_first_; }

 private:
  explicit DevicePart(const OpenedModel& opened) : opened_(opened) {}
  Status OpenOne(const DeviceInfo& info, uint64_t vram);
  Status ForEach(DensePart& dense, const std::function<Status(size_t index)>& prepare);
  Status Drop(size_t index, DensePart& dense);
  Status AllocateSlotsOn(size_t index, bool has_dense);
  Status TryOne(size_t index, Team& team);
  struct Trial {
    size_t index;  // of the device
    uint32_t form;
    bool has_costs;  // of the device
  };
  Result<double> TryForm(const Trial& trial, const ExtentReader& file, Team& team);
  Status FindCosts(const Trial& trial, DeviceProbe& probe);
  Status ChooseFirst();

  const OpenedModel& opened_;
  std::vector<std::unique_ptr<UsedDevice>> used_;
  std::optional<HostMemorySource> slot_memory_;
  std::vector<ExpertKey> fill_first_;
};

}  // namespace moestro
