// SPDX-License-Identifier: MIT
// A machine's memory nodes, as far as this process may use them.
#pragma once

#include <cstdint>
#include <vector>

namespace moestro {

struct NumaNode {
  uint32_t id = 0;                  // the kernel's number
  std::vector<uint32_t> cpus = {};  // on which this process may run, ascending; empty: memory alone
  uint32_t cores = 0;               // cores of `cpus`; hyper-threads of a core count once
  bool has_memory = false;          // the node has memory that this process may take
  bool operator==(const NumaNode&) const = default;
};

struct NumaTopology {
  std::vector<NumaNode> nodes = {};  // ascending; empty: not known, and treated as one node
  bool is_whole = false;             // this process may run on every CPU that is online
  bool operator==(const NumaTopology&) const = default;
};

}  // namespace moestro
