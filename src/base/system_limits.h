// SPDX-License-Identifier: MIT
// What the machine and its limits leave to this process. `root` stands before /proc and /sys: a
// folder of files made up, for tests.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

namespace moestro {

// Bytes that this process may still take without swapping or being killed: free memory and memory
// that the kernel can drop, within the limit of every cgroup (v1 and v2) on the way up. The
// process's own resident memory is not included.
uint64_t AvailableMemory(const std::string& root = "");

// Bytes this process may still take before a cgroup (v2) slows it down on purpose (memory.high);
// the largest value: none does.
uint64_t MemoryUntilSlowed(const std::string& root = "");

// The smaller of both: what a budget may be made of.
uint64_t UnhinderedMemory(const std::string& root = "");

// The most that this process and its whole control group may take: the smallest limit on the way
// up; nullopt without a limit.
std::optional<uint64_t> MemoryLimit(const std::string& root = "");

// Processors' worth of time that cgroups grant: the smallest quota on the way up.
inline constexpr double kNoQuota = std::numeric_limits<double>::infinity();
double ProcessorQuota(const std::string& root = "");

// Cores, not hyper-threads, within this process's affinity mask and processor quota.
uint32_t PhysicalCores(const std::string& root = "");

// Gives memory that was freed back to the system, so that ResidentMemory() is what is in use.
void ReturnFreedMemory();

// Blocks of 128 KiB and more go back to the system as soon as they are freed. By itself the C
// library keeps such ones after the first, up to 32 MiB each and for each thread. For processes
// that take large blocks again and again.
void ReturnLargeBlocksAtOnce();

// Resident bytes now, and the most there ever were (VmRSS, VmHWM); 0 where /proc is missing.
uint64_t ResidentMemory(const std::string& root = "");
uint64_t PeakResidentMemory(const std::string& root = "");

}  // namespace moestro
