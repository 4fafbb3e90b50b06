// SPDX-License-Identifier: MIT
// The main path: rows in, logits in StepBuffers out. step.cc is the file to read first.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "base/stop_signal.h"
#include "core/batch.h"
#include "core/ids.h"
#include "core/interlude.h"
#include "core/model_spec.h"
#include "core/routing.h"
#include "decide/layer/layer_protocol.h"
#include "engine/watchers.h"
#include "forward/dense/layer_graph.h"
#include "forward/experts/device_side.h"
#include "forward/experts/expert_exec.h"
#include "residency/lease_stream.h"
#include "residency/residency.h"

namespace moestro {

class Forward {
 public:
  // Everything is borrowed and must outlive this; layers: those with experts.
  struct Parts {
    const ModelSpec& spec;
    LayerGraph& graph;
    StepBuffers& buffers;
    Residency& residency;
    LayerProtocol& protocol;
    PrefetchPlanner& planner;
    ExpertExec& experts;
    std::span<const LayerForm> layers;
    const Clock& clock;
    StopSignal& stop;               // the step ends soon after it is requested
    DeviceSide* devices = nullptr;  // null: the CPU computes everything
  };
  explicit Forward(const Parts& parts, Watchers watchers = {})
      : parts_(parts), watchers_(std::move(watchers)) {}

  struct Hooks {
    // Called before every layer; the step ends with its error. May be empty.
    std::function<Status(uint32_t layers_done)> layer_begins = {};
    // Step() may be called within it. REQUIRES: empty if a row decodes or the graph is on a device.
    Interlude interlude = {};
  };
  // Rows through all layers, at most a chunk of them; leaves the last layer's output in
  // buffers.hidden(). kinds: [rows]. kIo, kInterrupted: nothing but the rows' cells has changed.
  // kInvalidFile: a layer gave NaN or infinity; the message names it.
  Status Step(std::span<const StepRow> rows, std::span<const RowKind> kinds,
              const LittleStep& little, const Hooks& hooks);

  // Of the last little step: the K experts of each row, of which it used the first: [layer][row][K]
  // in router order.
  std::span<const std::vector<ExpertId>> widened() const { return widened_; }

  // Seconds of evaluating the layers' dense parts, since creation.
  double dense_seconds() const { return dense_seconds_; }
  // Layers whose rows stayed on the first device, since creation.
  uint64_t layers_there() const { return layers_there_; }

  // REQUIRES: the look-ahead is within the limit of the buffers.
  Watchers& watchers() { return watchers_; }

 private:
  Status CheckStop() const;
  Status StepAside(const Interlude& interlude);
  Status Attend(LayerId layer, size_t n_rows, uint32_t look_ahead);
  // kInvalidFile: the layer's rows are no finite numbers. A layer without experts whose rows stay
  // on a device is left to the next router.
  Status CheckFinite(LayerId layer, size_t n_rows) const;
  // K experts of each row; K' in a little step.
  Routing RouteRows(ExpertLayerId layer, size_t n_rows, const LittleStep& little) const;
  // What the routers of the `look_ahead` layers after `layer` choose: [distance - 1][row][K or K'].
  RoutedAhead RouteAhead(ExpertLayerId layer, size_t n_rows, uint32_t look_ahead,
                         const LittleStep& little) const;
  void Widen(ExpertLayerId layer, Routing& routing);
  LeaseStream ReadAhead(ExpertLayerId layer, std::span<const RowKind> kinds) const;
  ExpertRows RowsOf(LayerId layer) const;
  // Whether a layer's rows may stay on the first device.
  bool StaysThere(const LayerPlan& plan) const;
  void PlaceExperts(LayerPlan& plan);
  // The experts of a layer, where the plan says; by the CPU if a device fails.
  Status RunExperts(LayerId layer, LayerPlan& plan, LeaseStream& leases, LeaseStream& read_ahead);
  void OverrideCopies(LayerPlan& plan) const;
  void ShowExperts(const LayerPlan& plan) const;

  Parts parts_;
  Watchers watchers_;
  double dense_seconds_ = 0.0;
  uint64_t layers_there_ = 0;
  std::vector<std::vector<ExpertId>> widened_;
};

}  // namespace moestro
