// SPDX-License-Identifier: MIT
// START HERE: the rows of a batch through all layers. A row is one token of one sequence; a prompt
// is many rows of the same one. An expert is read once for all rows that need it.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/routing.h"
#include "decide/layer/layer_planner.h"
#include "forward/dense/layer_graph.h"
#include "forward/forward.h"
#include "residency/lease_stream.h"

namespace moestro {

Forward::Forward(const Parts& p)
    : parts_(p),
      router_({.spec = p.spec,
               .buffers = p.buffers,
               .protocol = p.protocol,
               .layers = p.layers,
               .watchers = p.watchers}),
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
  const Watchers& watchers = parts_.watchers;
  const RouterSpec& router = parts_.spec.router;
  const bool decodes = std::ranges::contains(kinds, RowKind::kDecode);
  const auto prompt_rows = static_cast<size_t>(std::ranges::count(kinds, RowKind::kPrompt));
  const uint32_t look_ahead =
      std::max(decodes ? parts_.planner.look_ahead() : 0, watchers.look_ahead);
  experts_.BeginStep();
  TRY_STATUS(parts_.graph.SetRows(rows));  // embeddings -> hidden
  LeaseStream read_ahead;                  // a prompt's, of the layer about to run
  for (uint16_t l = 0; l < parts_.spec.n_layer(); ++l) {
    if (hooks.layer_begins) TRY_STATUS(hooks.layer_begins(l));
    if (parts_.stop.is_requested()) return Fail(Errc::kInterrupted, "stopped on request");
    if (hooks.interlude.is_due && hooks.interlude.is_due()) {
      read_ahead = {};  // others need its slots
      TRY_STATUS(parts_.graph.StepAside(hooks.interlude));
    }
    // The disk reads meanwhile: a prompt's experts of this layer, or what is likely to be needed.
    parts_.residency.PumpAhead(decodes ? parts_.planner.bytes_beside_dense()
                                       : ReadQueue::kAllThatWaits);
    TRY_STATUS(parts_.graph.Attend(LayerId{l}, look_ahead));  // dense part, router logits
    if (!parts_.spec.has_experts(l)) continue;
    const ExpertLayerId layer = parts_.spec.expert_layer(LayerId{l});
    Routing routing = router_.Choose(layer, rows.size(), little);  // experts with their weights
    RoutedAhead ahead = router_.ChooseAhead(layer, rows.size(), look_ahead, little);
    if (watchers.routing) watchers.routing(layer, routing, ahead);
    if (watchers.route) {
      watchers.route({layer, routing, kinds, ahead.experts, ahead.weights, little.is_on()});
    }
    if (little.is_on()) router_.Widen(layer, routing);
    LayerPlan plan =
        parts_.protocol.AfterRouting({layer, routing, kinds, ahead.experts, ahead.weights});
    watchers.OverrideCopies(plan);
    const std::span<const float> scale = parts_.layers[layer.value].result_scale;
    if (!scale.empty()) plan.ScaleWeights(scale);
    experts_.Place(plan);                        // on the CPU or on devices
    LeaseStream leases(parts_.residency, plan);  // present experts are pinned, absent ones start
    leases.Advance();                            // to be read
    const std::vector<ExpertKey> next = PlanReadAhead(layer, parts_.spec.n_expert_layers(),
                                                      router.n_expert, router.n_used, prompt_rows);
    read_ahead = {parts_.residency, next, Urgency::kSpeculative};  // lets go of this layer's
    parts_.protocol.Prefetch();  // for later layers, behind this layer's own
    TRY_STATUS(experts_.Run(LayerId{l}, plan, leases, read_ahead));
    if (watchers.plan) watchers.plan(plan);
    experts_.Show(plan);
  }
  return parts_.graph.Finish();  // a device may still compute
}

}  // namespace moestro
