// SPDX-License-Identifier: MIT
// Plans which threads and pages belong to which memory node (docs/decisions/0034). Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/expert_catalog.h"
#include "core/machine.h"

namespace moestro {

struct NumaPlan {
  struct Thread {
    uint32_t node = 0;           // the kernel's number; kNoNode: the node has no memory for us
    std::vector<uint32_t> cpus;  // CPUs of the node
  };
  static constexpr uint32_t kNoNode = UINT32_MAX;

  // The nodes that pages are interleaved on, by the kernel's numbers, ascending; empty: nothing is
  // done.
  std::vector<uint32_t> nodes = {};
  // By thread, threads of a node side by side; empty: threads go where the kernel puts them, and no
  // row belongs to a node.
  std::vector<Thread> threads = {};

  bool is_on() const { return !nodes.empty(); }
  bool has_rows() const { return is_on() && !threads.empty(); }
};

// Plans a team of `threads` on this machine. The plan is empty unless two nodes have both CPUs and
// memory for this process. Threads belong to nodes if all CPUs are this process's, with a thread
// for each core or for each CPU. Nodes without CPUs get no pages; the kernel takes pages from them
// when other nodes are full.
NumaPlan PlanNuma(const NumaTopology& machine, uint32_t threads);
// "2 NUMA nodes: ..."; empty: nothing is done.
std::string ToText(const NumaPlan& plan);

// A matrix in memory.
struct RowExtent {
  uint64_t begin = 0;  // bytes from the caller's origin
  uint64_t row_bytes = 0;
  uint32_t rows = 0;
};
struct NodeBytes {
  uint64_t begin = 0;
  uint64_t end = 0;
  uint32_t node = 0;  // the kernel's number, or kNoNode
  bool operator==(const NodeBytes&) const = default;
};

// Adds the place and the node of each thread's rows, for matrices that the team multiplies one
// after the other: the tiles of all matrices are divided among the threads. REQUIRES:
// plan.has_rows().
void AddRows(const NumaPlan& plan, std::span<const RowExtent> matrices,
             std::vector<NodeBytes>& rows);
// The pages of which one node's threads alone read rows, ascending and apart. A matrix may lie up
// to `slack` bytes further on than `rows` say. Pages that are left out belong to several nodes, or
// to none.
std::vector<NodeBytes> PagesOfNodes(std::vector<NodeBytes> rows, uint64_t slack, uint64_t page);

// The matrices of an expert in a slot of the pool, each divided among the threads on its own.
// `offset`: the window of each read, in a slot.
std::vector<RowExtent> MatricesOfSlot(const ExpertCatalog& catalog, uint32_t pool,
                                      std::span<const uint64_t, kMatrices> offset);

}  // namespace moestro
