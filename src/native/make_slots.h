// SPDX-License-Identifier: MIT
// Turns the rest of the budget into slots, and joins those of devices with them in one tier.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "devices/device_list.h"
#include "engine/plan/memory_plan.h"
#include "kit/expert_slots.h"
#include "native/device_setup.h"
#include "native/opened_model.h"

namespace moestro {

// Measures how many reads the disk gets at a time if no number was requested. The slots lie in
// memory that the first device copies from directly, if its driver gives enough, else in plain
// memory. `opened` and the memory that `devices` copy from must outlive the slots. kInvalidRequest:
// the budget is too small (names the smallest that works); kNoMemory; kUsage.
Result<std::unique_ptr<ExpertSlots>> MakeSlots(const OpenedModel& opened, DeviceSetup& devices,
                                               const FixedBytes& fixed);
// Bytes of the budget beyond the smallest that works; 0: none.
uint64_t RoomIn(const OpenedModel& opened, const FixedBytes& fixed);

// Joins the devices beside the CPU in one list with one tier of slots, beside memory and its
// policy.

// All must outlive the list. The devices' plans then have the costs of the disk. kIo; kUsage.
// REQUIRES: `devices` is not empty. Thread rule here and below: the engine thread.
Result<std::unique_ptr<DeviceList>> JoinDevices(const OpenedModel& opened, DeviceSetup& devices,
                                                ExpertSlots& slots, bool has_dense);

// Begins to bring remote hosts their experts: the most popular ones, if known, except those that
// memory keeps. If plans are expected to be slower with the hosts, they are turned off. kIo.
Status BringToRemotes(const OpenedModel& opened, const DeviceSetup& devices,
                      const ExpertSlots& slots, DeviceList& list);

}  // namespace moestro
