// SPDX-License-Identifier: MIT
#include "device/numa_machine.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <vector>

#include "base/bytes.h"
#include "device/numa_topology.h"

namespace moestro {
namespace {

// Bits of a word of the kernel's sets, and the most CPUs and nodes in a set.
constexpr uint32_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
constexpr uint32_t kMostNumbers = 1U << 13;
using Bits = std::array<unsigned long, kMostNumbers / kWordBits>;

// EINVAL: a number beyond the set.
int Fill(Bits& bits, std::span<const uint32_t> numbers) {
  bits.fill(0);
  for (const uint32_t n : numbers) {
    if (n >= kMostNumbers) return EINVAL;
    bits[n / kWordBits] |= 1UL << (n % kWordBits);
  }
  return 0;
}

std::vector<uint32_t> CpusOfThisProcess() {
  Bits bits{};
  if (sched_getaffinity(0, sizeof(bits), reinterpret_cast<cpu_set_t*>(bits.data())) != 0) return {};
  std::vector<uint32_t> cpus;
  for (uint32_t cpu = 0; cpu < kMostNumbers; ++cpu) {
    if ((bits[cpu / kWordBits] >> (cpu % kWordBits) & 1UL) != 0) cpus.push_back(cpu);
  }
  return cpus;
}

int ModeOf(NewPages how) {
  switch (how) {
    case NewPages::kPreferred:
      return MPOL_PREFERRED;
    case NewPages::kInterleaved:
      return MPOL_INTERLEAVE;
    case NewPages::kUsual:
      break;
  }
  return MPOL_DEFAULT;
}

}  // namespace

NumaTopology KernelNumaMachine::topology() const {
  return ReadNumaTopology("", CpusOfThisProcess());
}

bool KernelNumaMachine::has_chosen_pages() const {
  int mode = MPOL_DEFAULT;
  // A container may forbid the call; a refusal counts as no choice.
  if (syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) != 0) return false;
  return mode != MPOL_DEFAULT;
}

int KernelNumaMachine::RunOn(std::span<const uint32_t> cpus) {
  Bits bits;
  if (const int error = Fill(bits, cpus); error != 0) return error;
  const auto* set = reinterpret_cast<const cpu_set_t*>(bits.data());
  return sched_setaffinity(0, sizeof(bits), set) == 0 ? 0 : errno;
}

int KernelNumaMachine::TakePages(NewPages how, std::span<const uint32_t> nodes) {
  // The kernel refuses sets with room for more nodes than the kernel's own sets have.
  constexpr unsigned long kMostNodes = 1024;
  Bits bits;
  if (const int error = Fill(bits, nodes); error != 0) return error;
  if (std::ranges::any_of(nodes, [](uint32_t node) { return node >= kMostNodes; })) return EINVAL;
  const bool is_usual = how == NewPages::kUsual;
  // The kernel expects the number of bits plus one.
  const long done = syscall(SYS_set_mempolicy, ModeOf(how), is_usual ? nullptr : bits.data(),
                            is_usual ? 0UL : kMostNodes + 1);
  return done == 0 ? 0 : errno;
}

int KernelNumaMachine::KeepSmall(std::span<std::byte> memory) {
  return madvise(memory.data(), memory.size(), MADV_NOHUGEPAGE) == 0 ? 0 : errno;
}

int KernelNumaMachine::Touch(std::span<std::byte> memory) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(memory.data(), memory.size(), MADV_POPULATE_WRITE) == 0) return 0;
#endif
  // For kernels before 5.14.
  for (size_t at = 0; at < memory.size(); at += 4 * kKiB) {
    std::atomic_ref(reinterpret_cast<unsigned char&>(memory[at])).fetch_or(0);
  }
  return 0;
}

}  // namespace moestro
