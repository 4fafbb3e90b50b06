// SPDX-License-Identifier: MIT
// Runs the graphs of a model's dense part, one after the other, on the CPU or on a device. Graphs
// of few rows stay built (kept_graphs.h).
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "base/stop_signal.h"
#include "device/graph_arena.h"
#include "device/team.h"
#include "devices/device_link.h"
#include "forward/dense/kept_graphs.h"

namespace moestro {

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
  uint64_t node_bytes() const { return KeptGraphs::kGraphs * parts_.places * node_bytes_; }

  // Runs the graph of a place. `build` adds the nodes, unless the graph is kept from an earlier
  // step. Without rows in the key the graph is not kept. On a device this returns while the device
  // computes. kInterrupted, kNoMemory, kDevice: the results are undefined.
  template <class Build>
  Status Run(size_t place, const KeptGraphs::Key& key, Build&& build) {
    if (key.rows == 0 || key.rows > KeptGraphs::kMostRows) {
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
  bool AreForTeam(size_t first, size_t end, const KeptGraphs::Key& key) const {
    return kept_.AreForTeam(first, end, key);
  }

 private:
  Status Place();
  Status Compute();
  Status Interrupted() const;

  Parts parts_;
  GraphArena arena_;
  KeptGraphs kept_;
  uint64_t placed_bytes_ = 0;  // bytes of the arena when the kept graphs were placed
  uint64_t node_bytes_ = 0;    // bytes of the largest graph's nodes
};

}  // namespace moestro
