// SPDX-License-Identifier: MIT
// The table of mounted file systems, /proc/self/mountinfo. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {

struct Mount {
  std::string point = {};        // folder where the mount begins
  std::string file_system = {};  // "ext4"
  std::string source = {};       // "/dev/sda1"
  std::string options = {};      // of the mount and of the file system
  uint32_t major = 0;            // number of the device; 0: no device
  uint32_t minor = 0;
};

// Parses a table of mounts. Malformed lines are left out.
std::vector<Mount> ParseMounts(std::string_view text);

// The mount that `path` is in, the last of several at one point. REQUIRES: `path` is absolute and
// has no links in it.
std::optional<Mount> FindMount(const std::vector<Mount>& mounts, std::string_view path);

}  // namespace moestro
