// SPDX-License-Identifier: MIT
// Graphs of few rows on the CPU that stay built: a decode step runs the same nodes for every token,
// with other values. Each place has one graph, the last that was built for it.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/stop_signal.h"
#include "device/cpu_device.h"
#include "device/graph_arena.h"

namespace moestro {

class KeptGraphs {
 public:
  // Prompts have more rows; building a graph takes a hundredth of their time.
  static constexpr uint32_t kMostRows = 16;

  // What the nodes of a graph were built for.
  struct Key {
    uint32_t first = 0;  // row of the step
    uint32_t rows = 0;
    uint32_t look_ahead = 0;
    bool operator==(const Key&) const = default;
  };

  // max_nodes: of the largest graph. `cpu` and `stop` must outlive this; stop may be null.
  KeptGraphs(CpuDevice& cpu, StopSignal* stop, size_t places, size_t max_nodes);

  bool Has(size_t place, const Key& key) const { return graphs_[place].key == key; }
  // Room to build another graph of the place.
  GraphRoom& Begin(size_t place);
  // The graph that was built there may run from now on. kNoMemory. REQUIRES: it is placed.
  Status Add(size_t place, const Key& key);
  // kInterrupted; the results are undefined then. REQUIRES: Has(place, ...).
  Status Run(size_t place) const;
  // The memory of the graphs' values has moved: all must be built again.
  void Drop();

 private:
  struct Kept {
    std::optional<Key> key;
    std::optional<GraphRoom> room;
    PlanPtr plan;
  };

  CpuDevice* cpu_;
  StopSignal* stop_;
  size_t max_nodes_;
  std::vector<Kept> graphs_;  // [place]
};

}  // namespace moestro
