// SPDX-License-Identifier: MIT
// The experts of a layer: chosen for each row, and run in the places of the plan, on the CPU and on
// devices. If a device fails, the CPU runs all experts of the layer.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "core/batch.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/router.h"
#include "devices/device_list.h"
#include "devices/step_buffers.h"
#include "engine/watchers.h"
#include "forward/dense/layer_graph.h"
#include "forward/dense/step_rows.h"
#include "forward/experts/expert_exec.h"
#include "residency/leases.h"
#include "residency/residency.h"

namespace moestro {

// All that the forward pass works with, in the pass itself and in its two stages below. Everything
// is borrowed and must outlive them.
struct ForwardParts {
  const ModelSpec& spec;
  LayerGraph& graph;  // the source and the target of the rows
  StepBuffers& buffers;
  Residency& residency;
  LayerProtocol& protocol;
  PrefetchPlanner& planner;
  ExpertExec& experts;
  Team& team;
  std::span<const LayerForm> layers;  // layers with experts
  const Clock& clock;
  StopSignal& stop;  // the step ends soon after a request
  // Read in every step. REQUIRES: watchers.look_ahead is within the limit of the buffers.
  const Watchers& watchers;
  DeviceList* devices = nullptr;  // null: the CPU computes everything
  uint32_t capacity = 0;          // rows of a source that an expert computes; 0: any number
};

// Chooses the experts of a step's rows from the router logits that a layer's graph left in the
// StepBuffers.
//
// Thread rule: the engine thread.

class RowRouter {
 public:
  explicit RowRouter(const ForwardParts& parts) : parts_(parts) {}

  // Chooses K experts of each row; K' in a little step. Output parameters, here and below, keep
  // their memory for the next call.
  void Choose(ExpertLayerId layer, std::span<const StepRow> rows, const LittleStep& little,
              Routing& routing);
  // For sources, where an expert has a capacity: gives weight 0 to an expert's rows beyond
  // `capacity` rows of a sequence. The layer adds nothing to these rows' residual. Source: W.
  // Fedus, B. Zoph, N. Shazeer, "Switch Transformers", 2021, section 2.2.
  void DropOverCapacity(std::span<const StepRow> rows, Routing& routing);
  // The experts that the routers of the `look_ahead` layers after `layer` choose: [distance -
  // 1][row][K or K'].
  void ChooseAhead(ExpertLayerId layer, std::span<const StepRow> rows, uint32_t look_ahead,
                   const LittleStep& little, RoutedAhead& ahead);
  // The experts of the layers from `layer` on that follow from the rows' tokens, each once, layer
  // by layer.
  std::vector<ExpertKey> KnownFrom(uint32_t layer, std::span<const StepRow> rows) const;
  // Whether Choose() would choose these experts [rows][K], in this order, by logits
  // [rows][n_expert].
  bool IsRule(ExpertLayerId layer, std::span<const float> logits,
              std::span<const ExpertId> experts);
  // Keeps the K best experts of each row of a little step, whose routing has the first of these K.
  // Drops the routing's candidates if no code chooses among them.
  void Widen(ExpertLayerId layer, Routing& routing);
  // For the last little step: the K experts of each row, [layer][row][K] in router order.
  std::span<const std::vector<ExpertId>> widened() const { return widened_; }

 private:
  void RouteLayer(ExpertLayerId layer, const RouterSpec& router, std::span<const float> logits,
                  std::span<const StepRow> rows, uint32_t candidates, Routing& routing);

  ForwardParts parts_;
  std::vector<std::vector<ExpertId>> widened_;
  Router router_;
  // Scratch memory.
  std::vector<float> biased_;
  std::vector<int32_t> of_tokens_;
  std::map<std::pair<SequenceId, ExpertId>, uint32_t> taken_;
  Routing of_later_;
};

class ExpertStage {
 public:
  explicit ExpertStage(const ForwardParts& parts) : parts_(parts) {}

  // kDevice.
  Status BeginStep();
  // Whether the first device computes all layers whole.
  bool are_all_whole() const {
    return parts_.graph.whole() != nullptr && parts_.devices->whole()->has_all();
  }
  // Chooses the experts that devices compute.
  void Place(LayerPlan& plan);
  // ffn_in -> hidden, through the plan's experts. `leases` are the plan's, `read_ahead` the next
  // layer's; both are released if a device has failed. kIo, kInterrupted; kDevice: a device is lost
  // and the step must not go on without the device.
  Status Run(LayerId layer, LayerPlan& plan, LeaseStream& leases, LeaseStream& read_ahead);
  // Call in place of Run() after the first device has computed the layer whole, in `seconds`.
  void DoneWhole(LayerPlan& plan, double seconds);
  // Gives the inputs and results of the plan's experts to the observer, if any. REQUIRES: Run().
  void Show(const LayerPlan& plan) const;
  // Layers whose rows stayed on the first device, since creation.
  uint64_t layers_there() const { return layers_there_; }

 private:
  // An observer of experts also needs the CPU's intermediate results.
  bool uses_devices() const { return parts_.devices != nullptr && !parts_.watchers.experts; }
  ExpertRows RowsOf(LayerId layer) const;
  // Experts of a layer with rows on the first device that this device computes.
  enum class There : uint8_t { kNone, kSome, kAll };
  There OnFirst(const LayerPlan& plan) const;

  ForwardParts parts_;
  uint64_t layers_there_ = 0;
};

}  // namespace moestro
