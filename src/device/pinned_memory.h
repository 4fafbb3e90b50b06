// SPDX-License-Identifier: MIT
// Memory that a device copies from without a detour by a staging buffer of its driver ("pinned"),
// as ggml's backend for it hands out.
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

// Page-aligned; it may outlive the device. kNoMemory if the driver has none to give.
Result<HostMemory> AllocatePinned(const ComputeDevice& device, uint64_t bytes);

// False if the CPU's caches leave that memory out, as some drivers map theirs: then the CPU reads
// it a hundred times slower. REQUIRES: a MiB, touched.
bool is_cached(const HostMemory& memory);

}  // namespace moestro
