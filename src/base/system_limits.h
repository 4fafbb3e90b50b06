// SPDX-License-Identifier: MIT
// Memory and processors that the machine and its limits leave to this process. `root` stands before
// /proc and /sys: a folder of made-up files, for tests.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace moestro {

// Bytes that this process may still take without swapping or being killed: free memory and memory
// that the kernel can drop, within what it still promises and the limit of every cgroup (v1 and v2)
// on the way up. The
// process's own resident memory is not included.
uint64_t AvailableMemory(const std::string& root = "");

// Bytes that the kernel still promises to any process, where it promises no more than it has
// (vm.overcommit_memory=2); nullopt: it promises more.
std::optional<uint64_t> PromisedMemory(const std::string& root = "");

// Bytes this process may still take before a cgroup (v2) slows it down on purpose (memory.high);
// the largest value if no group does.
uint64_t MemoryUntilSlowed(const std::string& root = "");

// The smaller of AvailableMemory() and MemoryUntilSlowed(): the base of a budget.
uint64_t UnhinderedMemory(const std::string& root = "");

// The most that this process and its whole control group may take: the smallest limit on the way
// up; nullopt without a limit.
std::optional<uint64_t> MemoryLimit(const std::string& root = "");

// Processors' worth of time that cgroups grant: the smallest quota on the way up.
inline constexpr double kNoQuota = std::numeric_limits<double>::infinity();
double ProcessorQuota(const std::string& root = "");

// CPUs on which this process may run (its affinity mask), ascending.
std::vector<uint32_t> AllowedCpus();

// CPUs of `allowed` that are about as fast as the fastest of them, where others are much slower
// (big.LITTLE): by the kernel's cpu_capacity or, where a CPU has none, by the highest clocks. Empty
// if all are about as fast, or if the speed of one is not known.
std::vector<uint32_t> FastCpus(std::span<const uint32_t> allowed, const std::string& root = "");

// Cores, not hyper-threads, within this process's affinity mask and processor quota; of two kinds
// of cores only the fast ones.
uint32_t PhysicalCores(const std::string& root = "");

// Gives freed memory back to the system, so that ResidentMemory() is the memory in use.
void ReturnFreedMemory();

// Makes the C library give blocks of 128 KiB and more back to the system as soon as they are freed.
// Without this call it keeps such blocks after the first, up to 32 MiB each and for each thread.
// For processes that take large blocks again and again.
void ReturnLargeBlocksAtOnce();

// Resident bytes now, and the largest value so far (VmRSS, VmHWM); 0 where /proc is missing.
uint64_t ResidentMemory(const std::string& root = "");
uint64_t PeakResidentMemory(const std::string& root = "");

}  // namespace moestro
