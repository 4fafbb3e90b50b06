// SPDX-License-Identifier: MIT
// The experts of a layer, where the plan says: on the CPU and on devices; by the CPU alone if a
// device fails.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "engine/watchers.h"
#include "forward/dense/layer_graph.h"
#include "forward/dense/step_buffers.h"
#include "forward/experts/device_side.h"
#include "forward/experts/expert_exec.h"
#include "residency/lease_stream.h"
#include "residency/residency.h"

namespace moestro {

class ExpertStage {
 public:
  // Everything is borrowed and must outlive this.
  struct Parts {
    const ModelSpec& spec;
    LayerGraph& graph;  // which the rows come from and go back to
    StepBuffers& buffers;
    Residency& residency;
    ExpertExec& experts;
    const Watchers& watchers;
    DeviceSide* devices = nullptr;  // null: the CPU computes everything
  };
  explicit ExpertStage(const Parts& parts) : parts_(parts) {}

  void BeginStep();
  // Which experts devices compute.
  void Place(LayerPlan& plan);
  // ffn_in -> hidden, through the plan's experts. `leases` are the plan's, `read_ahead` the next
  // layer's; both are gone if a device has failed. kIo, kInterrupted; kDevice: a device is lost and
  // the step must not go on without it.
  Status Run(LayerId layer, LayerPlan& plan, LeaseStream& leases, LeaseStream& read_ahead);
  // What the plan's experts were given and gave, to the observer, if there is one. REQUIRES: Run().
  void Show(const LayerPlan& plan) const;
  // Layers whose rows stayed on the first device, since creation.
  uint64_t layers_there() const { return layers_there_; }

 private:
  // An observer of experts wants what the CPU has in between, too.
  bool uses_devices() const { return parts_.devices != nullptr && !parts_.watchers.experts; }
  ExpertRows RowsOf(LayerId layer) const;
  bool StaysThere(const LayerPlan& plan) const;

  Parts parts_;
  uint64_t layers_there_ = 0;
};

}  // namespace moestro
