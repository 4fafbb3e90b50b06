// SPDX-License-Identifier: MIT
// Joins the devices beside the CPU in one list with one tier of slots, beside memory and its
// policy.
#pragma once

#include <memory>

#include "base/result.h"
#include "devices/device_list.h"
#include "native/device_setup.h"
#include "native/make_slots.h"
#include "native/opened_model.h"

namespace moestro {

// All must outlive the list. The devices' plans then have the costs of the disk. kIo; kUsage.
// REQUIRES: `devices` is not empty. Thread rule here and below: the engine thread.
Result<std::unique_ptr<DeviceList>> JoinDevices(const OpenedModel& opened, DeviceSetup& devices,
                                                ExpertSlots& slots, bool has_dense);

// Begins to bring remote hosts their experts: the most popular ones, if known, except those that
// memory keeps. If plans are expected to be slower with the hosts, they are turned off. kIo.
Status BringToRemotes(const OpenedModel& opened, const DeviceSetup& devices,
                      const ExpertSlots& slots, DeviceList& list);

}  // namespace moestro
