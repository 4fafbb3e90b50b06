// SPDX-License-Identifier: MIT
// Whether a device of this machine pays: the ways to decode with the device and without, priced by
// the engine's own sizes and costs (decide/devices/way_planner.h).
//
// Thread rule: the engine thread.
#pragma once

#include <optional>
#include <string>

#include "decide/devices/device_tier.h"
#include "decide/devices/way_planner.h"
#include "kit/expert_slots.h"
#include "native/dense_model.h"
#include "native/device_setup.h"
#include "native/opened_model.h"

namespace moestro {

struct DeviceWays {
  WayCase of = {};        // without uses
  WayPrices prices = {};  // by the costs at the start
  // "auto" may leave the device out for the CPU alone. No user has asked for the device, for a
  // place of experts, or for another machine; software devices are for tests, which may give costs.
  bool may_leave_at_start = false;
  bool may_leave_later = false;  // plans may depend on timing, too
};

// At the start costs are guesses: the uses of experts are taken to be even if no profile is known,
// and prompts gain more by a device than single tokens do.
inline constexpr double kGainToLeaveDevice = 0.2;

// nullopt: the first device is not one of this machine. Call before weights are read.
std::optional<DeviceWays> FindDeviceWays(const OpenedModel& opened, const DeviceSetup& devices,
                                         const ExpertSlots& slots, const DenseModel& dense,
                                         const DeviceTier& tier);

// "a token is expected to take 14.2 ms with Vulkan0 (dense part and most used experts there), and
// 30.1 with the CPU alone".
std::string TextOf(const WayPrices& prices, const std::string& device);

}  // namespace moestro
