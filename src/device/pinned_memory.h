// SPDX-License-Identifier: MIT
// Memory that a device copies from without a detour by a staging buffer of its driver ("pinned"),
// as given by the device's ggml backend.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "device/devices.h"
#include "device/host_memory.h"

namespace moestro {

// The most bytes of one piece; 0: the device offers no such memory.
uint64_t MostPinned(const ComputeDevice& device);

// Page-aligned; may outlive the device. kNoMemory: the driver has no such memory left.
Result<HostMemory> AllocatePinned(const ComputeDevice& device, uint64_t bytes);

// False if the CPU does not cache the memory, as some drivers map theirs: the CPU then reads such
// memory a hundred times slower. REQUIRES: a MiB, touched.
bool is_cached(const HostMemory& memory);

}  // namespace moestro
