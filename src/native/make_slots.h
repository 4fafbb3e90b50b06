// SPDX-License-Identifier: MIT
// Turns the rest of the budget into slots.
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

// Sets the tiers of devices of this machine where the options leave the choice open: TiersFor() the
// slots that MakeSlots() would make without staging slots. Budgets without room for staging slots
// have inclusive tiers.
void ChooseTiers(const OpenedModel& opened, const FixedBytes& fixed, DeviceSetup& devices);

// Measures how many reads the disk gets at a time if no number was requested. The slots lie in
// memory that the first device copies from directly, if its driver gives enough, else in plain
// memory. `opened` and the memory that `devices` copy from must outlive the slots. kInvalidRequest:
// the budget is too small (names the smallest that works); kNoMemory; kUsage.
Result<std::unique_ptr<ExpertSlots>> MakeSlots(const OpenedModel& opened, DeviceSetup& devices,
                                               const FixedBytes& fixed);
// Bytes of the budget beyond the smallest that works; 0: none.
uint64_t RoomIn(const OpenedModel& opened, const FixedBytes& fixed);

}  // namespace moestro
