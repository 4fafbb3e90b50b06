// SPDX-License-Identifier: MIT
// Runs the experts of a layer in the places of the plan: on the CPU and on devices. If a device
// fails, the CPU runs all experts of the layer.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "devices/device_list.h"
#include "devices/step_buffers.h"
#include "engine/watchers.h"
#include "forward/dense/layer_graph.h"
#include "forward/experts/expert_exec.h"
#include "residency/lease_stream.h"
#include "residency/residency.h"

namespace moestro {

class ExpertStage {
 public:
  // Everything is borrowed and must outlive this.
  struct Parts {
    const ModelSpec& spec;
    LayerGraph& graph;  // the source and the target of the rows
    StepBuffers& buffers;
    Residency& residency;
    ExpertExec& experts;
    std::span<const LayerForm> layers;  // layers with experts
    const Watchers& watchers;
    DeviceList* devices = nullptr;  // null: the CPU computes everything
  };
  explicit ExpertStage(const Parts& parts) : parts_(parts) {}

  void BeginStep();
  // Chooses the experts that devices compute.
  void Place(LayerPlan& plan);
  // ffn_in -> hidden, through the plan's experts. `leases` are the plan's, `read_ahead` the next
  // layer's; both are released if a device has failed. kIo, kInterrupted; kDevice: a device is lost
  // and the step must not go on without the device.
  Status Run(LayerId layer, LayerPlan& plan, LeaseStream& leases, LeaseStream& read_ahead);
  // Gives the inputs and results of the plan's experts to the observer, if any. REQUIRES: Run().
  void Show(const LayerPlan& plan) const;
  // Layers whose rows stayed on the first device, since creation.
  uint64_t layers_there() const { return layers_there_; }

 private:
  // An observer of experts also needs the CPU's intermediate results.
  bool uses_devices() const { return parts_.devices != nullptr && !parts_.watchers.experts; }
  ExpertRows RowsOf(LayerId layer) const;
  bool StaysThere(const LayerPlan& plan) const;

  Parts parts_;
  uint64_t layers_there_ = 0;
};

}  // namespace moestro
