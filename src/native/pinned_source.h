// SPDX-License-Identifier: MIT
// Slots in memory that a device copies from directly, where that costs nothing else.
#pragma once

#include <cstdint>
#include <optional>

#include "device/devices.h"
#include "device/host_memory.h"
#include "store/block_reader.h"

namespace moestro {

// Memory that trying takes.
inline constexpr uint64_t kPinnedTrialBytes = uint64_t{32} << 20;

// Where pinned memory comes from, if the device offers some that the CPU caches and that `reader`,
// if any, reads into about as fast as into plain memory: some drivers' pages refuse direct reads,
// and small pages make them slow (`may_be_slow`: that does not matter). Else nullopt, and a line of
// log says why. The device must outlive it. REQUIRES: nothing is in flight on the reader.
std::optional<HostMemorySource> PinnedSource(const ComputeDevice& device, BlockReader* reader,
                                             bool may_be_slow = false);

}  // namespace moestro
