// SPDX-License-Identifier: MIT
#include "doctor/processor_findings.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/format.h"
#include "base/printable.h"

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

std::optional<uint64_t> NumberOf(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_whole = error == std::errc{} && end == text.data() + text.size();
  return is_whole ? std::optional(value) : std::nullopt;
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
  const std::optional<uint64_t> number = NumberOf(count);
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
  const std::optional<uint64_t> limit = NumberOf(ValueOf(environment, "OMP_THREAD_LIMIT"));
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
  AddNodes(facts, findings);
  AddVariables(facts, findings);
}

}  // namespace moestro
