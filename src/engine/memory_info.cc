// SPDX-License-Identifier: MIT
#include "engine/memory_info.h"

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

#include "base/bytes.h"

namespace moestro {
namespace {

constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

// The number behind `field` in a file of "Field:  123 kB" lines, in bytes.
uint64_t KibField(const std::string& path, const std::string& field) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(field)) continue;
    std::istringstream words(line.substr(field.size()));
    uint64_t kib = 0;
    words >> kib;
    return kib * kKiB;
  }
  return 0;
}

std::optional<uint64_t> NumberIn(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (!(file >> value)) return std::nullopt;  // missing, or "max"
  return value;
}

// Page cache of the group that the kernel drops before it refuses memory.
uint64_t Droppable(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  for (std::string line; std::getline(file, line);) {
    for (const char* name : {"total_inactive_file ", "inactive_file "}) {
      if (line.starts_with(name)) return std::stoull(line.substr(std::string(name).size()));
    }
  }
  return 0;
}

uint64_t RoomIn(const std::string& folder, const char* limit_name, const char* usage_name) {
  const std::optional<uint64_t> limit = NumberIn(folder + "/" + limit_name);
  const std::optional<uint64_t> usage = NumberIn(folder + "/" + usage_name);
  if (!limit || !usage) return kUnlimited;
  const uint64_t used = *usage - std::min(*usage, Droppable(folder));
  return *limit - std::min(*limit, used);
}

// The group and all above it: each may hold a smaller limit.
uint64_t RoomUpwards(const std::string& root, std::string path, const char* limit_name,
                     const char* usage_name) {
  uint64_t room = kUnlimited;
  while (true) {
    room = std::min(room, RoomIn(root + path, limit_name, usage_name));
    const size_t slash = path.rfind('/');
    if (path.empty() || slash == std::string::npos) return room;
    path.resize(slash);
  }
}

uint64_t RoomInGroups() {
  uint64_t room = kUnlimited;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers == "memory") {
      room = std::min(room, RoomUpwards("/sys/fs/cgroup/memory", path, "memory.limit_in_bytes",
                                        "memory.usage_in_bytes"));
    } else if (controllers.empty()) {
      room = std::min(room, RoomUpwards("/sys/fs/cgroup", path, "memory.max", "memory.current"));
    }
  }
  return room;
}

}  // namespace

uint64_t AvailableMemory() {
  return std::min(KibField("/proc/meminfo", "MemAvailable:"), RoomInGroups());
}

void ReturnFreedMemory() { malloc_trim(0); }

uint64_t ResidentMemory() { return KibField("/proc/self/status", "VmRSS:"); }

uint64_t PeakResidentMemory() { return KibField("/proc/self/status", "VmHWM:"); }

}  // namespace moestro
