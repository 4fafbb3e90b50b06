// SPDX-License-Identifier: MIT
// The flags that say what computes beside the CPU.
#pragma once

#include "cli/flags.h"
#include "engine/device_options.h"

namespace moestro {

// `options` must outlive the parsing.
void AddDeviceFlags(Flags flags, DeviceOptions& options);

}  // namespace moestro
