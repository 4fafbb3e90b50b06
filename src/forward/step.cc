// SPDX-License-Identifier: MIT
// START HERE: the rows of a batch through all layers. A row is one token of one sequence; a prompt
// is many rows of the same one. An expert is read once for all rows that need it.

#include <algorithm>

#include "base/result.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/routing.h"
#include "forward/dense/layer_graph.h"
#include "forward/forward.h"
#include "residency/lease_stream.h"

namespace moestro {

Status Forward::Step(std::span<const StepRow> rows, std::span<const RowKind> kinds,
                     const LittleStep& little, const Hooks& hooks) {
  const bool decodes = std::ranges::contains(kinds, RowKind::kDecode);
  const uint32_t look_ahead =
      std::max(decodes ? parts_.planner.look_ahead() : 0, watchers_.look_ahead);
  if (parts_.devices != nullptr) parts_.devices->BeginStep();
  TRY_STATUS(parts_.graph.SetRows(rows));  // embeddings -> hidden
  LeaseStream read_ahead;                  // a prompt's, of the layer about to run
  for (uint16_t l = 0; l < parts_.spec.n_layer(); ++l) {
    if (hooks.layer_begins) TRY_STATUS(hooks.layer_begins(l));
    TRY_STATUS(CheckStop());
    if (hooks.interlude.is_due && hooks.interlude.is_due()) {
      read_ahead = {};  // others need its slots
      TRY_STATUS(StepAside(hooks.interlude));
    }
    if (!decodes) parts_.residency.PumpAhead();  // the disk reads this layer's experts meanwhile
    TRY_STATUS(Attend(LayerId{l}, rows.size(), look_ahead));  // dense part, router logits
    if (!parts_.spec.has_experts(l)) continue;
    const ExpertLayerId layer = parts_.spec.expert_layer(LayerId{l});
    Routing routing = RouteRows(layer, rows.size(), little);  // which experts, with what weight
    RoutedAhead ahead = RouteAhead(layer, rows.size(), look_ahead, little);
    if (watchers_.routing) watchers_.routing(layer, routing, ahead);
    if (watchers_.route) {
      watchers_.route({layer, routing, kinds, ahead.experts, ahead.weights, little.is_on()});
    }
    if (little.is_on()) Widen(layer, routing);
    LayerPlan plan =
        parts_.protocol.AfterRouting({layer, routing, kinds, ahead.experts, ahead.weights});
    if (watchers_.copies) OverrideCopies(plan);
    PlaceExperts(plan);                          // on the CPU or on devices
    LeaseStream leases(parts_.residency, plan);  // present experts are pinned, absent ones start
    leases.Advance();                            // to be read
    read_ahead = ReadAhead(layer, kinds);        // lets go of this layer's, takes the next one's
    parts_.protocol.Prefetch();                  // for later layers, behind this layer's own
    TRY_STATUS(RunExperts(LayerId{l}, plan, leases, read_ahead));
    if (watchers_.plan) watchers_.plan(plan);
    if (watchers_.experts) ShowExperts(plan);
  }
  return parts_.graph.Finish();  // a device may still compute
}

}  // namespace moestro
