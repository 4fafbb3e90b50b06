// SPDX-License-Identifier: MIT
#include "doctor/machine_findings.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "base/terminal.h"
#include "base/text.h"
#include "doctor/access.h"

namespace moestro {
namespace {

using Environment = std::map<std::string, std::string>;

void AddProcessors(const SystemFacts& facts, Findings& findings) {
  const ProcessorFacts& processor = facts.processor;
  if (processor.allowed == 0) return;
  if (processor.quota < processor.allowed) {
    findings.push_back(Warning(
        "processors",
        Format("a cgroup grants {:.1f} processors' time on {}: threads that use it up wait for the "
               "next period",
               processor.quota, processor.allowed),
        "raise cpu.max (CPUQuota=, --cpus), or pin the container to whole CPUs (--cpuset-cpus)"));
  } else if (processor.allowed < processor.online) {
    findings.push_back(Fine("processors", Format("this process may run on {} of {} CPUs",
                                                 processor.allowed, processor.online)));
  } else {
    findings.push_back(Fine("processors", Format("{} CPUs", processor.allowed)));
  }
  if (processor.fast > 0) {
    findings.push_back(Fine("processors", Format("{} of these CPUs are fast, and threads compute "
                                                 "there; more --threads take the slow ones, too",
                                                 processor.fast)));
  }
}

// Kernels let a clock fall at a limit of temperature; a board's firmware, where the voltage is low.
void AddHeat(const ProcessorFacts& processor, Findings& findings) {
  constexpr double kFewDegrees = 5.0;
  const std::string cooling = "cool it: a heat sink, a fan, room for air";
  if (!processor.slowed_by.empty()) {
    findings.push_back(Warning(
        "heat",
        Format("the clock is held down against heat ({})", Printable(processor.slowed_by.front())),
        cooling));
  } else if (processor.hottest && *processor.hottest <= kFewDegrees) {
    findings.push_back(
        Warning("heat", Format("{:.0f} degrees are left until the clock falls", *processor.hottest),
                cooling));
  } else if (processor.hottest) {
    findings.push_back(
        Fine("heat", Format("{:.0f} degrees are left until the clock falls; ask while a model runs",
                            *processor.hottest)));
  }
  if (processor.has_low_voltage) {
    findings.push_back(Warning("heat", "the voltage is low, and the firmware holds the clock down",
                               "a stronger power supply, a shorter cable"));
  }
}

// Whether the governor follows the load. Two drivers, intel_pstate and amd-pstate, call such a
// governor "powersave"; their energy preference decides.
bool FollowsLoad(const ProcessorFacts& processor) {
  const bool is_own = processor.governor_driver == "intel_pstate" ||
                      processor.governor_driver.starts_with("amd-pstate");
  return is_own && !processor.energy_preference.contains("power");
}

void AddGovernor(const ProcessorFacts& processor, Findings& findings) {
  if (processor.governor.empty()) {
    findings.push_back(Fine("governor", "the machine sets the clock itself"));
    return;
  }
  const std::string& name = processor.governor;
  const bool is_slow =
      name == "powersave" ? !FollowsLoad(processor) : name == "conservative" || name == "userspace";
  if (is_slow) {
    const std::string preference =
        processor.energy_preference.empty() ? "" : ", " + processor.energy_preference;
    findings.push_back(Warning(
        "governor", Format("{}{}: the clock stays low", name, preference),
        "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"));
  } else {
    findings.push_back(Fine("governor", name));
  }
}

void AddNodes(const SystemFacts& facts, Findings& findings) {
  const auto is_full = [](const NumaNode& node) { return node.has_memory && !node.cpus.empty(); };
  const auto nodes = std::ranges::count_if(facts.numa.nodes, is_full);
  if (nodes < 2) {
    findings.push_back(Fine("memory nodes", "one"));
  } else if (!facts.numa.is_whole) {
    findings.push_back(Warning(
        "memory nodes",
        Format("{}, but this process may not run on every CPU: pages are spread over them and "
               "threads stay where the kernel puts them",
               nodes),
        "allow all CPUs (taskset, cpuset), or only those and the memory of one node (numactl -N 0 "
        "-m 0)"));
  } else if (facts.sandbox.has_filter && !facts.sandbox.container.empty()) {
    findings.push_back(Warning(
        "memory nodes", Format("{}, and containers are often not allowed to place pages", nodes),
        "start the container with --cap-add SYS_NICE"));
  } else {
    findings.push_back(
        Fine("memory nodes", Format("{}: threads and pages are placed on them", nodes)));
  }
}

std::string ValueOf(const Environment& environment, const std::string& name) {
  const auto found = environment.find(name);
  return found == environment.end() ? "" : found->second;
}

// The program sets GOMP_SPINCOUNT itself where it is not set, and then starts itself once more
// (commands/main.cc).
bool HasOddSpinCount(const Environment& environment) {
  constexpr uint64_t kMost = 100'000;  // a millisecond or so
  const std::string count = ValueOf(environment, "GOMP_SPINCOUNT");
  if (count.empty() || environment.contains("MOESTRO_STARTED_AGAIN")) return false;
  const std::optional<uint64_t> number = ParseNumber<uint64_t>(count);
  return !number || *number == 0 || *number > kMost;
}

void AddVariables(const SystemFacts& facts, Findings& findings) {
  const Environment& environment = facts.environment;
  const size_t before = findings.size();
  const auto warn = [&](const std::string& name, std::string_view why) {
    findings.push_back(
        Warning("threads", Format("{}={}: {}", name, Printable(ValueOf(environment, name)), why),
                "unset " + name));
  };
  if (HasOddSpinCount(environment)) {
    warn("GOMP_SPINCOUNT", "threads sleep too soon, or hold cores that reads need");
  }
  for (const char* name : {"GOMP_CPU_AFFINITY", "OMP_PLACES"}) {
    if (environment.contains(name)) {
      warn(name, "threads are bound, and those that read get the same CPUs");
    }
  }
  const std::string bind = ValueOf(environment, "OMP_PROC_BIND");
  if (!bind.empty() && bind != "false" && bind != "FALSE") {
    warn("OMP_PROC_BIND", "the first thread is bound to one CPU, and the program sees one core");
  }
  const std::optional<uint64_t> limit =
      ParseNumber<uint64_t>(ValueOf(environment, "OMP_THREAD_LIMIT"));
  if (limit && *limit < facts.processor.allowed) {
    warn("OMP_THREAD_LIMIT", "fewer threads than CPUs");
  }
  const std::string dynamic = ValueOf(environment, "OMP_DYNAMIC");
  if (dynamic == "true" || dynamic == "TRUE") {
    warn("OMP_DYNAMIC", "a busy machine takes threads away");
  }
  if (findings.size() == before) {
    findings.push_back(Fine("threads", "no variable of OpenMP stands in the way"));
  }
}

}  // namespace

void AddProcessorFindings(const SystemFacts& facts, Findings& findings) {
  AddProcessors(facts, findings);
  AddGovernor(facts.processor, findings);
  AddHeat(facts.processor, findings);
  AddNodes(facts, findings);
  AddVariables(facts, findings);
}

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
  const bool is_limited =
      memory.here_free <
      std::min(memory.machine_free, memory.promised.value_or(memory.machine_free));
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
  if (memory.promised) {
    const std::string promised =
        Format("the kernel promises {} more at most (vm.overcommit_memory=2)",
               FormatBytes(*memory.promised));
    if (*memory.promised < memory.machine_free) {
      findings.push_back(Warning("memory", promised + ", though more is free",
                                 "sudo sysctl vm.overcommit_memory=0, or a larger "
                                 "vm.overcommit_ratio"));
    } else {
      findings.push_back(Fine("memory", promised));
    }
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
  const auto is_card = [](std::string_view path) { return path.starts_with("/dev/mmcblk"); };
  if (memory.swap_total == 0) {
    findings.push_back(
        Fine("swap", "there is none, and none is needed: --ram is the most that a model takes"));
  } else if (std::ranges::any_of(memory.swaps, is_card)) {
    findings.push_back(
        Warning("swap",
                "swap lies on a card: a program that is swapped out stands still for "
                "seconds, and the card wears out",
                "sudo swapoff -a, or swap in compressed memory (zram)"));
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

namespace {

void AddSandbox(const SandboxFacts& sandbox, Findings& findings) {
  const std::string where =
      sandbox.container.empty() ? "no container" : Printable(sandbox.container);
  findings.push_back(Fine(
      "sandbox", where + (sandbox.has_filter ? ", with a filter of system calls (seccomp)" : "")));
}

void AddLibraries(const GgmlFacts& ggml, Findings& findings) {
  for (const LibraryFacts& library : ggml.libraries) {
    if (library.running.empty()) continue;
    if (library.running == library.built) {
      findings.push_back(Fine("libraries", Format("{} {}, as it was built with", library.name,
                                                  Printable(library.running))));
      continue;
    }
    findings.push_back(Warning(
        "libraries",
        Format("{} {}, but this program was built with {}: only equal versions are tested together",
               library.name, Printable(library.running), Printable(library.built)),
        Format("install {} {}, or build Moestro again (make build)", library.name,
               Printable(library.built))));
  }
}

// Whether a plug-in is for processors without AVX2, with which a token takes several times as long.
bool IsForOldProcessors(std::string_view variant) {
  constexpr std::array<std::string_view, 5> kOld = {"x64", "sse42", "sandybridge", "ivybridge",
                                                    "piledriver"};
  return std::ranges::contains(kOld, variant);
}

void AddVariant(const SystemFacts& facts, Findings& findings) {
  const GgmlFacts& ggml = facts.ggml;
  const std::string folder = Printable(ggml.plug_in_folder, 4096);
  if (!ggml.has_cpu) {
    findings.push_back(Fault("CPU variant", Format("no CPU plug-in of ggml's in {} works", folder),
                             "sudo apt install --reinstall libggml0"));
    return;
  }
  const auto best = std::ranges::max_element(ggml.variants, {}, &CpuVariantFacts::score);
  if (best == ggml.variants.end() || best->score == 0) {
    findings.push_back(Warning("CPU variant",
                               Format("no variants in {}: ggml's plain code computes", folder),
                               "sudo apt install --reinstall libggml0"));
    return;
  }
  const auto usable = std::ranges::count_if(
      ggml.variants, [](const CpuVariantFacts& variant) { return variant.score > 0; });
  const std::string text = Format("{}, the best of {} that this CPU runs ({} installed)",
                                  Printable(best->name), usable, ggml.variants.size());
  if (facts.processor.has_avx2 && IsForOldProcessors(best->name)) {
    findings.push_back(Warning("CPU variant", text + ", though it has AVX2",
                               "sudo apt install --reinstall libggml0"));
  } else {
    findings.push_back(Fine("CPU variant", text));
  }
}

}  // namespace

void AddSoftwareFindings(const SystemFacts& facts, Findings& findings) {
  AddSandbox(facts.sandbox, findings);
  AddLibraries(facts.ggml, findings);
  AddVariant(facts, findings);
}

}  // namespace moestro
