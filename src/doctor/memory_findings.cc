// SPDX-License-Identifier: MIT
#include "doctor/memory_findings.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/format.h"
#include "base/printable.h"
#include "doctor/access.h"

namespace moestro {
namespace {

constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kLittleMemory = kGiB;

constexpr std::string_view kFallBack = "; four threads with pread read instead";

std::string RingRemedy(const SystemFacts& facts) {
  if (facts.ring.switched_off.value_or(0) > 0) {
    return "sudo sysctl kernel.io_uring_disabled=0, and the same line in /etc/sysctl.d";
  }
  if (facts.sandbox.has_filter) {
    return "start the container or service with a seccomp profile that allows io_uring_setup, "
           "io_uring_enter and io_uring_register";
  }
  return "ask whoever set up this machine's security policy to allow io_uring";
}

void AddRing(const SystemFacts& facts, Findings& findings) {
  const RingFacts& ring = facts.ring;
  switch (ring.state) {
    case RingState::kWorks:
      findings.push_back(Fine("io_uring", "experts are read through io_uring"));
      return;
    case RingState::kMissing:
      findings.push_back(Warning("io_uring", Format("the kernel has none{}", kFallBack),
                                 "a kernel from 5.19 on with CONFIG_IO_URING"));
      return;
    case RingState::kForbidden:
      findings.push_back(
          Warning("io_uring", Format("it is forbidden here{}", kFallBack), RingRemedy(facts)));
      return;
    case RingState::kFails:
      findings.push_back(
          Warning("io_uring", Format("it fails: {}{}", Printable(ring.error), kFallBack),
                  "raise the limit of locked memory (ulimit -l) or see the kernel's log (dmesg)"));
      return;
  }
}

// Pinned slots save a sixth to a third of the processor's time for reads, which only fast drives
// take much of (docs/decisions/0035).
void AddLockedMemory(const SystemFacts& facts, Findings& findings) {
  const auto& lockable = facts.memory.lockable;
  if (!lockable) return;
  const bool is_enough = *lockable >= facts.memory.here_free || facts.sandbox.is_root;
  if (is_enough) {
    findings.push_back(Fine("locked memory", "slots may be pinned for reads"));
    return;
  }
  findings.push_back(
      Fine("locked memory",
           Format("up to {} may be pinned: less than the slots; it matters to drives above 4 GB/s "
                  "(LimitMEMLOCK=infinity, ulimit -l)",
                  FormatBytes(*lockable))));
}

void AddBudget(const MemoryFacts& memory, Findings& findings) {
  if (memory.machine == 0) return;
  const bool is_limited = memory.here_free < memory.machine_free;
  const std::string text = Format(
      "{} of {} are free for a model{}", FormatBytes(memory.here_free), FormatBytes(memory.machine),
      is_limited ? " (a cgroup's limit, which the default budget follows)" : "");
  if (memory.here_free < kLittleMemory) {
    findings.push_back(
        Warning("memory", text,
                is_limited ? "raise memory.max (MemoryMax=, --memory) or stop what is in the group"
                           : "stop other programs, or choose a smaller model"));
  } else {
    findings.push_back(Fine("memory", text));
  }
  if (memory.until_slowed < memory.here_free) {
    findings.push_back(Warning(
        "memory",
        Format("a cgroup slows its processes down from {} more on, before its limit is reached",
               FormatBytes(memory.until_slowed)),
        Format("raise memory.high (MemoryHigh=) or give --ram {} at most",
               FormatBytes(memory.until_slowed))));
  }
}

void AddHugePages(const MemoryFacts& memory, Findings& findings) {
  if (memory.transparent_pages == "never") {
    findings.push_back(
        Warning("huge pages",
                "transparent huge pages are off: reads of experts take up to twice "
                "as long",
                "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled"));
  } else if (!memory.transparent_pages.empty()) {
    findings.push_back(
        Fine("huge pages", Format("transparent huge pages: {}", memory.transparent_pages)));
  }
  if (memory.machine > 0 && memory.reserved_free > memory.machine / 20) {
    findings.push_back(
        Warning("huge pages",
                Format("{} are reserved as huge pages, unused and of no use to a model",
                       FormatBytes(memory.reserved_free)),
                "sudo sysctl vm.nr_hugepages=0, unless another program needs them"));
  }
}

void AddSwap(const MemoryFacts& memory, Findings& findings) {
  if (memory.machine == 0) return;
  const uint64_t used = memory.swap_total - std::min(memory.swap_free, memory.swap_total);
  if (memory.swap_total == 0) {
    findings.push_back(Fine("swap", "there is none, and none is needed"));
  } else if (used > memory.machine / 20) {
    findings.push_back(Warning("swap",
                               Format("{} of {} are swapped out: memory is short, and swapping "
                                      "takes the disk from experts",
                                      FormatBytes(used), FormatBytes(memory.swap_total)),
                               "stop other programs or give a smaller --ram"));
  } else {
    findings.push_back(Fine(
        "swap", Format("{} of {} are in use", FormatBytes(used), FormatBytes(memory.swap_total))));
  }
}

}  // namespace

void AddReaderFindings(const SystemFacts& facts, Findings& findings) {
  AddRing(facts, findings);
  AddLockedMemory(facts, findings);
}

void AddMemoryFindings(const SystemFacts& facts, Findings& findings) {
  AddBudget(facts.memory, findings);
  AddHugePages(facts.memory, findings);
  AddSwap(facts.memory, findings);
}

void AddFolderFindings(const std::vector<FolderFacts>& folders, Findings& findings) {
  for (const FolderFacts& folder : folders) {
    const std::string path = Printable(folder.path, 4096);
    if (folder.path.empty()) {
      findings.push_back(Warning("space", Format("no folder for {}", folder.purpose),
                                 "set HOME or XDG_CACHE_HOME to an absolute path"));
    } else if (!folder.is_writable) {
      findings.push_back(
          Warning("space", Format("{}, for {}, cannot be written", path, folder.purpose),
                  Format("mkdir -p {0} && sudo chown $(id -u) {0}", ShellWord(folder.path))));
    } else if (folder.available && *folder.available < folder.wanted) {
      findings.push_back(Warning(
          "space",
          Format("{} left in {}, for {}", FormatBytes(*folder.available), path, folder.purpose),
          "free some space there, or choose another disk (HF_HOME, "
          "XDG_CACHE_HOME)"));
    } else if (folder.available) {
      findings.push_back(Fine(
          "space",
          Format("{} left in {}, for {}", FormatBytes(*folder.available), path, folder.purpose)));
    }
  }
}

}  // namespace moestro
