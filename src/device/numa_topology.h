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

// A list of numbers as the kernel writes it, "0-3,8\n", ascending and apart. nullopt: it is none,
// or a number is as large as any of a kernel's CPUs cannot be.
std::optional<std::vector<uint32_t>> ParseCpuList(std::string_view text);

// `root` stands before /proc and /sys: a folder of files made up, for tests. allowed: the CPUs on
// which this process may run. Whatever is missing, cut off or contradicts itself makes the machine
// one without known nodes.
NumaTopology ReadNumaTopology(const std::string& root, std::span<const uint32_t> allowed);

}  // namespace moestro
