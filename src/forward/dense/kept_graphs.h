// SPDX-License-Identifier: MIT
// Graphs of few rows that stay built: a decode step runs equal nodes for every token, with other
// values. Each place has its last kGraphs graphs. On the CPU a graph of nodes of ours alone is run
// by the team, node after node, with barriers that make no system call; ggml runs the other graphs.
//
// Thread rule: the engine thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/stop_signal.h"
#include "base/wait_word.h"
#include "device/custom_calls.h"
#include "device/graph_arena.h"
#include "device/team.h"
#include "devices/device_link.h"

namespace moestro {

class KeptGraphs {
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
    uint32_t visited = 0;  // cells that attention on a device visits
    bool operator==(const Key&) const = default;
  };

  // The processor that runs the graphs. All must outlive the kept graphs.
  struct Runner {
    Team& team;
    StopSignal* stop = nullptr;  // read within graphs on the CPU; may be null
    DeviceLink* link = nullptr;  // to the device that runs the graphs; null: the CPU
  };
  // max_nodes: nodes of the largest graph.
  KeptGraphs(const Runner& runner, size_t places, size_t max_nodes);

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
  struct Kept {
    std::optional<Key> key;
    std::optional<GraphRoom> room;
    std::vector<Node> nodes;  // run by the team; empty: ggml runs the graph
    uint64_t last_run = 0;
  };
  using Place = std::array<Kept, kGraphs>;
  const Kept* Find(size_t place, const Key& key) const;
  std::vector<Node> NodesOf(ggml_cgraph* graph) const;
  Status RunOnTeam(const std::vector<Node>& nodes);

  Runner runner_;
  CustomCalls calls_;
  WaitWord arrived_;  // threads at the barriers of a run
  size_t max_nodes_;
  std::vector<Place> places_;
  Kept* begun_ = nullptr;  // owns the room that Begin() has given
  uint64_t runs_ = 0;
};

}  // namespace moestro
