// SPDX-License-Identifier: MIT
// Runs the graphs of a model's dense part, one after the other, on the CPU or on a device. Graphs
// of few rows stay built (GraphCache).
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/wait_word.h"
#include "base/work_limit.h"
#include "compute/backend_buffer.h"
#include "compute/team.h"
#include "devices/device_link.h"

namespace moestro {

// Graphs of few rows that stay built: a decode step runs equal nodes for every token, with other
// values. Each place has its last kGraphs graphs. On the CPU a graph of nodes of ours alone is run
// by the team, node after node, with barriers that make no system call; ggml runs the other graphs.
//
// Thread rule: the engine thread.

class GraphCache {
 public:
  // Rows of a kept graph, at most. Prompts have more rows, and take so long that building a graph
  // does not count.
  static constexpr uint32_t kMostRows = 16;
  // Graphs kept for a place: steps with and without look-ahead take turns, or drafts and their
  // checks.
  static constexpr size_t kGraphs = 2;

  // The properties of a step that the nodes of a graph depend on.
  struct Key {
    uint32_t first = 0;  // first row, in the step
    uint32_t rows = 0;
    uint32_t look_ahead = 0;
    uint64_t visited = 0;  // cells that attention on a device visits
    uint32_t whole = 0;    // layers that a device computes whole; 0: the dense part of one layer
    uint32_t slots = 0;    // WholeLayers::version(), for such layers
    bool adds_partial = false;  // to the layer's input
    bool operator==(const Key&) const = default;
  };

  // The processor that runs the graphs. All must outlive the kept graphs.
  struct Runner {
    Team& team;
    StopSignal* stop = nullptr;  // read within graphs on the CPU; may be null
    DeviceLink* link = nullptr;  // to the device that runs the graphs; null: the CPU
  };
  // max_nodes: nodes of the largest graph.
  GraphCache(const Runner& runner, size_t places, size_t max_nodes);

  bool Has(size_t place, const Key& key) const { return Find(place, key) != nullptr; }
  // Whether the team runs the graphs of places [first, end), all with `key`.
  bool AreForTeam(size_t first, size_t end, const Key& key) const;
  // Room to build another graph of the place, which may not run until Add().
  GraphRoom& Begin(size_t place);
  // Lets the graph in the room of Begin() run from now on. REQUIRES: the graph is placed.
  void Add(size_t place, const Key& key);
  // Runs a kept graph; returns while a device computes. kInterrupted, kNoMemory, kDevice: the
  // results are undefined. REQUIRES: Has(place, key).
  Status Run(size_t place, const Key& key);
  // Drops all graphs, because the memory of their values has moved.
  void Drop();

 private:
  struct Node {
    CustomCall call;
    ggml_tensor* result = nullptr;
  };
  struct CachedGraph {
    std::optional<Key> key;
    std::optional<GraphRoom> room;
    std::vector<Node> nodes;  // run by the team; empty: ggml runs the graph
    uint64_t last_run = 0;
  };
  using GraphSet = std::array<CachedGraph, kGraphs>;
  const CachedGraph* Find(size_t place, const Key& key) const;
  std::vector<Node> NodesOf(ggml_cgraph* graph) const;
  Status RunOnTeam(const std::vector<Node>& nodes);

  Runner runner_;
  CustomCalls calls_;
  WaitWord arrived_;  // threads at the barriers of a run
  size_t max_nodes_;
  std::vector<GraphSet> places_;
  CachedGraph* begun_ = nullptr;  // owns the room that Begin() has given
  uint64_t runs_ = 0;
};

class GraphRunner {
 public:
  // Everything is borrowed and must outlive this.
  struct Parts {
    Team& team;
    DeviceLink* link = nullptr;  // of the device that computes the graphs; null: the CPU
    StopSignal* stop = nullptr;  // read within graphs on the CPU; may be null
    size_t places = 0;           // graphs that differ in more than their number of rows
    size_t max_nodes = 0;        // nodes of the largest graph
  };
  explicit GraphRunner(const Parts& parts);

  // Begins an empty graph, for Reserve(). context() and graph() are those of the graph under way.
  void Begin() { arena_.Begin(); }
  ggml_context* context() const { return arena_.context(); }
  ggml_cgraph* graph() const { return arena_.graph(); }
  // Sizes the memory for the graph just built, the largest of its kind. kNoMemory, kDevice.
  Status Reserve();
  // Bytes of the values of all graphs, where the graphs run; and of the nodes of kept graphs, in
  // memory.
  uint64_t value_bytes() const { return arena_.buffer_bytes(); }
  uint64_t node_bytes() const { return GraphCache::kGraphs * parts_.places * node_bytes_; }

  // Runs the graph of a place. `build` adds the nodes, unless the graph is kept from an earlier
  // step. Without rows in the key the graph is not kept. On a device this returns while the device
  // computes. kInterrupted, kNoMemory, kDevice: the results are undefined.
  template <class Build>
  Status Run(size_t place, const GraphCache::Key& key, Build&& build) {
    if (key.rows == 0 || key.rows > GraphCache::kMostRows) {
      arena_.Begin();
      build();
      return Compute();
    }
    if (!kept_.Has(place, key)) {
      arena_.Begin(&kept_.Begin(place));
      build();
      TRY_STATUS(Place());
      kept_.Add(place, key);
    }
    TRY_STATUS(kept_.Run(place, key));
    return Interrupted();
  }
  // Whether the team runs the graphs of places [first, end), all with `key` (Team::Hold()).
  bool AreForTeam(size_t first, size_t end, const GraphCache::Key& key) const {
    return kept_.AreForTeam(first, end, key);
  }

 private:
  Status Place();
  Status Compute();
  Status Interrupted() const;

  Parts parts_;
  GraphArena arena_;
  GraphCache kept_;
  uint64_t placed_bytes_ = 0;  // bytes of the arena when the kept graphs were placed
  uint64_t node_bytes_ = 0;    // bytes of the largest graph's nodes
};

}  // namespace moestro
