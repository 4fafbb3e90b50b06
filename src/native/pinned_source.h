// SPDX-License-Identifier: MIT
// Gives memory for slots from which a device copies directly, if that pays.
#pragma once

#include <cstdint>
#include <optional>

#include "compute/devices.h"
#include "compute/host_memory.h"
#include "store/block_reader.h"

namespace moestro {

// The memory that the trial takes.
inline constexpr uint64_t kPinnedTrialBytes = uint64_t{32} << 20;

// The source of pinned memory that the device offers. The CPU must cache this memory, and `reader`,
// if any, must read into it about as fast as into plain memory, or copies from pinned memory must
// make up for slow reads. Pages of some drivers refuse direct reads, and small pages make reads
// slow; `may_be_slow` accepts slow reads. Else nullopt, and the log gives the reason. The device
// must outlive the source. REQUIRES: the reader has no read in flight.
std::optional<HostMemorySource> PinnedSource(const ComputeDevice& device, BlockReader* reader,
                                             bool may_be_slow = false);

}  // namespace moestro
