// SPDX-License-Identifier: MIT
// Reads a machine's memory nodes from /sys and /proc.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/numa_topology.h"

namespace moestro {

// Parses a list of numbers as the kernel writes it, "0-3,8\n", ascending and apart. nullopt: `text`
// is no such list, or a number is larger than any CPU's.
std::optional<std::vector<uint32_t>> ParseCpuList(std::string_view text);

// `root` stands before /proc and /sys: a folder of made-up files, for tests. allowed: the CPUs on
// which this process may run. If anything is missing, cut off or contradictory, the topology has no
// known nodes.
NumaTopology ReadNumaTopology(const std::string& root, std::span<const uint32_t> allowed);

}  // namespace moestro
