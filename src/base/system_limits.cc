// SPDX-License-Identifier: MIT
#include "base/system_limits.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <fstream>
#include <limits>
#include <optional>
#include <ranges>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/number.h"
#include "base/text.h"

namespace moestro {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The number behind `field` in a file of "Field  123" lines.
std::optional<uint64_t> Field(const std::string& path, const std::string& field) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size()));
    uint64_t value = 0;
    if (words >> value) return value;
  }
  return std::nullopt;
}

uint64_t KibField(const std::string& path, const std::string& field) {
  return Field(path, field).value_or(0) * kKiB;
}

std::optional<double> NumberIn(const std::string& path) {
  std::ifstream file(path);
  double value = 0.0;
  if (!(file >> value)) return std::nullopt;  // missing, or "max"
  return value;
}

// The control groups of this process and all groups above them: each may hold a smaller limit. In a
// container the names of groups may be the host's; a missing folder holds no limit.
struct Groups {
  std::vector<std::string> v1;
  std::vector<std::string> v2;
};

void AddUpwards(const std::string& mount, std::string path, std::vector<std::string>& folders) {
  for (;;) {
    folders.push_back(mount + path);
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return;
    path.resize(slash);
  }
}

// Whether `controller` is in a list such as "cpu,cpuacct": controllers may share a hierarchy.
bool IsAmong(std::string_view controller, std::string_view list) {
  return std::ranges::any_of(std::views::split(list, ','), [&](const auto& name) {
    return std::string_view(name.begin(), name.end()) == controller;
  });
}

Groups GroupsOf(const std::string& root, std::string_view controller) {
  const std::string mounts = root + "/sys/fs/cgroup";
  Groups groups;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      AddUpwards(mounts, path, groups.v2);
      AddUpwards(mounts + "/unified", path, groups.v2);
    } else if (IsAmong(controller, controllers)) {
      AddUpwards(mounts + "/" + controllers, path, groups.v1);
      if (controllers != controller) {
        AddUpwards(mounts + "/" + std::string(controller), path, groups.v1);
      }
    }
  }
  return groups;
}

// Page cache of the group that the kernel drops before it refuses memory. v1 has both lines, of
// which only the first counts groups below.
uint64_t Droppable(const std::string& folder) {
  const std::string stat = folder + "/memory.stat";
  return Field(stat, "total_inactive_file ")
      .or_else([&] { return Field(stat, "inactive_file "); })
      .value_or(0);
}

uint64_t RoomIn(const std::string& folder, const char* limit_name, const char* usage_name) {
  const std::optional<double> limit = NumberIn(folder + "/" + limit_name);
  const std::optional<double> usage = NumberIn(folder + "/" + usage_name);
  if (!limit || !usage) return kUnlimited;
  const double used = *usage - std::min(*usage, static_cast<double>(Droppable(folder)));
  return static_cast<uint64_t>(*limit - std::min(*limit, used));
}

double Quota(std::optional<double> time, std::optional<double> period) {
  if (!time || !period || *time <= 0.0 || *period <= 0.0) return kNoQuota;
  return *time / *period;
}

double QuotaIn(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  double time = 0.0;
  double period = 0.0;
  if (!(file >> time >> period)) return kNoQuota;  // missing, or "max 100000"
  return Quota(time, period);
}

// The lowest CPU number that shares a core with `cpu`, which stands for the core. Without sysfs
// every CPU counts as a core of its own.
uint32_t CoreOf(const std::string& root, uint32_t cpu) {
  std::ifstream file(
      Format("{}/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", root, cpu));
  uint32_t first = cpu;
  file >> first;
  return file.fail() ? cpu : first;
}

// The number in a file of each CPU's folder; empty: a CPU has none.
std::vector<double> SpeedsIn(const std::string& root, std::span<const uint32_t> cpus,
                             const char* name) {
  std::vector<double> speeds;
  for (const uint32_t cpu : cpus) {
    const std::optional<double> speed =
        NumberIn(Format("{}/sys/devices/system/cpu/cpu{}/{}", root, cpu, name));
    if (!speed || !(*speed > 0.0)) return {};
    speeds.push_back(*speed);
  }
  return speeds;
}

}  // namespace

uint64_t AvailableMemory(const std::string& root) {
  uint64_t room = KibField(root + "/proc/meminfo", "MemAvailable:");
  room = std::min(room, PromisedMemory(root).value_or(kUnlimited));
  const Groups groups = GroupsOf(root, "memory");
  for (const std::string& folder : groups.v1) {
    room = std::min(room, RoomIn(folder, "memory.limit_in_bytes", "memory.usage_in_bytes"));
  }
  for (const std::string& folder : groups.v2) {
    room = std::min(room, RoomIn(folder, "memory.max", "memory.current"));
  }
  return room;
}

std::optional<uint64_t> PromisedMemory(const std::string& root) {
  constexpr double kNoMoreThanThere = 2.0;
  if (NumberIn(root + "/proc/sys/vm/overcommit_memory") != kNoMoreThanThere) return std::nullopt;
  const uint64_t limit = KibField(root + "/proc/meminfo", "CommitLimit:");
  const uint64_t promised = KibField(root + "/proc/meminfo", "Committed_AS:");
  return limit > 0 ? std::optional(limit - std::min(limit, promised)) : std::nullopt;
}

uint64_t MemoryUntilSlowed(const std::string& root) {
  uint64_t room = kUnlimited;
  for (const std::string& folder : GroupsOf(root, "memory").v2) {
    room = std::min(room, RoomIn(folder, "memory.high", "memory.current"));
  }
  return room;
}

uint64_t UnhinderedMemory(const std::string& root) {
  return std::min(AvailableMemory(root), MemoryUntilSlowed(root));
}

std::optional<uint64_t> MemoryLimit(const std::string& root) {
  // v1 writes a number near 2^63 for "none".
  constexpr double kNoLimit = 9e18;
  double least = kNoLimit;
  const Groups groups = GroupsOf(root, "memory");
  for (const std::string& folder : groups.v1) {
    least = std::min(least, NumberIn(folder + "/memory.limit_in_bytes").value_or(kNoLimit));
  }
  for (const std::string& folder : groups.v2) {
    least = std::min(least, NumberIn(folder + "/memory.max").value_or(kNoLimit));
  }
  if (least >= kNoLimit) return std::nullopt;
  return static_cast<uint64_t>(least);
}

double ProcessorQuota(const std::string& root) {
  double quota = kNoQuota;
  const Groups groups = GroupsOf(root, "cpu");
  for (const std::string& folder : groups.v1) {
    quota = std::min(quota, Quota(NumberIn(folder + "/cpu.cfs_quota_us"),
                                  NumberIn(folder + "/cpu.cfs_period_us")));
  }
  for (const std::string& folder : groups.v2) quota = std::min(quota, QuotaIn(folder));
  return quota;
}

void ReturnFreedMemory() { malloc_trim(0); }

void ReturnLargeBlocksAtOnce() { mallopt(M_MMAP_THRESHOLD, 128 * 1024); }

uint64_t ResidentMemory(const std::string& root) {
  return KibField(root + "/proc/self/status", "VmRSS:");
}

uint64_t PeakResidentMemory(const std::string& root) {
  return KibField(root + "/proc/self/status", "VmHWM:");
}

std::vector<uint32_t> AllowedCpus() {
  constexpr size_t kMostCpus = 1U << 13;  // of any kernel
  constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
  std::array<unsigned long, kMostCpus / kWordBits> mask{};
  std::vector<uint32_t> cpus;
  if (sched_getaffinity(0, sizeof(mask), reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
    return cpus;
  }
  for (uint32_t cpu = 0; cpu < kMostCpus; ++cpu) {
    if ((mask[cpu / kWordBits] >> (cpu % kWordBits) & 1UL) != 0) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<uint32_t> FastCpus(std::span<const uint32_t> allowed, const std::string& root) {
  // Little cores have 0.25 to 0.6 of a big one's speed; cores of desktop processors that differ in
  // their clocks alone, 0.75 or more.
  constexpr double kLeastShare = 2.0 / 3.0;
  std::vector<double> speeds = SpeedsIn(root, allowed, "cpu_capacity");
  if (speeds.empty()) speeds = SpeedsIn(root, allowed, "cpufreq/cpuinfo_max_freq");
  if (speeds.empty()) return {};
  const double least = kLeastShare * std::ranges::max(speeds);
  std::vector<uint32_t> fast;
  for (size_t i = 0; i < speeds.size(); ++i) {
    if (speeds[i] >= least) fast.push_back(allowed[i]);
  }
  return fast.size() < allowed.size() ? fast : std::vector<uint32_t>();
}

uint32_t PhysicalCores(const std::string& root) {
  const std::vector<uint32_t> allowed = AllowedCpus();
  const std::vector<uint32_t> fast = FastCpus(allowed, root);
  std::set<uint32_t> cores;
  for (const uint32_t cpu : fast.empty() ? allowed : fast) cores.insert(CoreOf(root, cpu));
  const double most = std::min(static_cast<double>(cores.size()), ProcessorQuota(root));
  return std::max(static_cast<uint32_t>(most + 0.5), 1U);
}

}  // namespace moestro
