// SPDX-License-Identifier: MIT
// START HERE: the rows of a batch through all layers. A row is one token of one sequence; a prompt
// is many rows of one sequence. An expert is read once for all rows that need the expert.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "decide/layer/layer_planner.h"
#include "forward/dense/layer_graph.h"
#include "forward/forward.h"
#include "residency/lease_stream.h"

namespace moestro {
namespace {

// Holds a layer's leases; however the layer ends, the leases end with it.
class LayerLeases {
 public:
  LayerLeases(LeaseStream& leases, Residency& residency, const LayerPlan& plan) : leases_(leases) {
    leases_.Begin(residency, plan);
  }
  LayerLeases(const LayerLeases&) = delete;
  LayerLeases& operator=(const LayerLeases&) = delete;
  ~LayerLeases() { leases_.LetAllGo(); }

 private:
  LeaseStream& leases_;
};

}  // namespace

Forward::Forward(const Parts& p)
    : parts_(p),
      router_({.spec = p.spec,
               .buffers = p.buffers,
               .protocol = p.protocol,
               .layers = p.layers,
               .watchers = p.watchers,
               .capacity = p.capacity}),
      experts_({.spec = p.spec,
                .graph = p.graph,
                .buffers = p.buffers,
                .residency = p.residency,
                .experts = p.experts,
                .layers = p.layers,
                .watchers = p.watchers,
                .devices = p.devices}) {}

Status Forward::Step(std::span<const StepRow> rows, std::span<const RowKind> kinds,
                     const LittleStep& little, const Hooks& hooks) {
  StepInput step{.rows = rows, .kinds = kinds, .little = little, .hooks = hooks};
  step.decodes = std::ranges::contains(kinds, RowKind::kDecode);
  step.prompt_rows = static_cast<size_t>(std::ranges::count(kinds, RowKind::kPrompt));
  step.look_ahead =
      std::max(step.decodes ? parts_.planner.look_ahead() : 0, parts_.watchers.look_ahead);
  step.layers = LayersOf(rows);
  experts_.BeginStep();
  TRY_STATUS(parts_.graph.SetRows(rows));  // embeddings -> hidden
  TRY_STATUS(IsForTeam(step) ? RunHeld(step) : RunLayers(step));
  if (rows.front().is_source) TRY_STATUS(parts_.graph.RememberSource());
  return parts_.graph.Finish();  // a device may still compute
}

LayerRange Forward::LayersOf(std::span<const StepRow> rows) const {
  const auto all = static_cast<uint16_t>(parts_.spec.n_layer());
  if (!parts_.spec.encoder) return {.first = 0, .end = all};
  const auto encoder = static_cast<uint16_t>(parts_.spec.encoder->n_layer);
  return rows.front().is_source ? LayerRange{.first = 0, .end = encoder}
                                : LayerRange{.first = encoder, .end = all};
}

// Whether threads may stay together: no graph of the step needs ggml's threads, no interlude runs
// other steps, and no device's driver has threads of its own.
bool Forward::IsForTeam(const StepInput& step) const {
  return parts_.devices == nullptr && !step.hooks.interlude.is_due &&
         parts_.graph.IsForTeam(step.layers, step.rows.size(), step.look_ahead);
}

Status Forward::RunHeld(const StepInput& step) {
  const TeamTime& team_time = parts_.team.time();
  const double before = parts_.clock() - team_time.seconds();
  Status ran;
  TRY_STATUS(parts_.team.Hold([&] { ran = RunLayers(step); }));
  TRY_STATUS(ran);
  serial_.seconds += std::max(parts_.clock() - team_time.seconds() - before, 0.0);
  ++serial_.steps;
  return {};
}

Status Forward::RunLayers(const StepInput& step) {
  const Interlude& interlude = step.hooks.interlude;
  LeaseStream read_ahead;  // reads for a prompt, of the layer about to run
  for (uint16_t l = step.layers.first; l < step.layers.end; ++l) {
    if (step.hooks.layer_begins) TRY_STATUS(step.hooks.layer_begins(l));
    if (parts_.stop.is_requested()) return Fail(Errc::kInterrupted, "stopped on request");
    if (interlude.is_due && interlude.is_due()) {
      read_ahead = {};  // steps in the interlude need the slots
      TRY_STATUS(parts_.graph.StepAside(interlude));
    }
    // The disk reads during the dense part: a prompt's experts of this layer, or experts likely to
    // be needed.
    parts_.residency.PumpAhead(step.decodes ? parts_.planner.bytes_beside_dense()
                                            : ReadQueue::kAllThatWaits);
    TRY_STATUS(parts_.graph.Attend(LayerId{l}, step.look_ahead));  // dense part, router logits
    if (parts_.spec.has_experts(l)) TRY_STATUS(RunExperts(LayerId{l}, step, read_ahead));
  }
  return {};
}

Status Forward::RunExperts(LayerId l, const StepInput& step, LeaseStream& read_ahead) {
  const Watchers& watchers = parts_.watchers;
  const RouterSpec& router = parts_.spec.router;
  const LittleStep& little = step.little;
  const ExpertLayerId layer = parts_.spec.expert_layer(l);
  const size_t n_rows = step.rows.size();
  router_.Choose(layer, n_rows, little, routing_);  // experts with their weights
  router_.DropOverCapacity(step.rows, routing_);
  router_.ChooseAhead(layer, n_rows, step.look_ahead, little, ahead_);
  if (watchers.routing) watchers.routing(layer, routing_, ahead_);
  if (watchers.route) {
    watchers.route({layer, routing_, step.kinds, ahead_.experts, ahead_.weights, little.is_on()});
  }
  if (little.is_on()) router_.Widen(layer, routing_);
  parts_.protocol.AfterRouting({layer, routing_, step.kinds, ahead_.experts, ahead_.weights},
                               plan_);
  watchers.OverrideCopies(plan_);
  const std::span<const float> scale = parts_.layers[layer.value].result_scale;
  if (!scale.empty()) ScaleWeights(scale, plan_);
  experts_.Place(plan_);  // on the CPU or on devices
  const LayerLeases held(leases_, parts_.residency, plan_);
  leases_.Advance();  // present experts are pinned, absent ones start to be read
  const std::vector<ExpertKey> next =
      PlanReadAhead(layer, parts_.spec.expert_layers_before(step.layers.end), router.n_expert,
                    router.n_used, step.prompt_rows);
  // Releases leases on this layer's experts.
  read_ahead = {parts_.residency, next, Urgency::kSpeculative};
  leases_.Advance();           // takes the slots that became free
  parts_.protocol.Prefetch();  // reads for later layers, after this layer's own
  TRY_STATUS(experts_.Run(l, plan_, leases_, read_ahead));
  if (watchers.plan) watchers.plan(plan_);
  experts_.Show(plan_);
  return {};
}

}  // namespace moestro
