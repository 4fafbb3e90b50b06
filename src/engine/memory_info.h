// SPDX-License-Identifier: MIT
// What the machine and its limits leave to this process.
#pragma once

#include <cstdint>

namespace moestro {

// Bytes this process may still take without swapping or being killed: free memory and what the
// kernel can drop, within every cgroup limit (v1 and v2) on the way up. Its own resident memory is
// not included.
uint64_t AvailableMemory();

// Gives memory that was freed back to the system, so that ResidentMemory() is what is in use.
void ReturnFreedMemory();

// Resident bytes now, and the most there ever were (VmRSS, VmHWM); 0 where /proc is missing.
uint64_t ResidentMemory();
uint64_t PeakResidentMemory();

}  // namespace moestro
