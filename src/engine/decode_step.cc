// SPDX-License-Identifier: MIT
// START HERE: one token through all layers.

#include <algorithm>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/routing.h"
#include "decide/router.h"
#include "engine/forward.h"
#include "graph/layer_graph.h"
#include "residency/lease_stream.h"

namespace moestro {

Status Forward::Decode(Token token, uint32_t position) {
  const Batch batch{.first = position, .n_tokens = 1};
  parts_.graph.Embed({&token, 1});
  parts_.graph.SetBatch(batch);
  const uint32_t look_ahead = std::max(parts_.prefetcher.look_ahead(), observed_ahead_);
  for (uint16_t l = 0; l < parts_.spec.n_layer; ++l) {
    TRY_STATUS(CheckStop());
    TRY_STATUS(Attend(LayerId{l}, batch, look_ahead));  // dense part, router logits
    if (!parts_.spec.has_experts(l)) continue;
    const LayerId layer{static_cast<uint16_t>(parts_.spec.expert_layers_before(l))};
    const LayerKernels& kernels = parts_.kernels[layer.value];
    const Routing routing =  // which experts
        Route(parts_.spec.router, router_logits(1), kernels.selection_bias);
    const std::vector<ExpertId> ahead = RouteAhead(layer, 1, look_ahead);  // and perhaps which next
    Observe({layer, routing, Use::kDecode, ahead});
    parts_.residency.BeginLayer(layer);
    parts_.prefetcher.RouterSpoke({.layer = layer, .chosen = routing.experts, .ahead = ahead});
    ExpertJobs jobs = GroupByExpert(routing, parts_.spec.router.n_expert);
    ResidentFirst(layer, jobs);  // so that none of them evicts another
    LeaseStream leases(parts_.residency, KeysOf(layer, jobs), Use::kDecode, Urgency::kDemand);
    leases.Advance();
    parts_.prefetcher.LookAhead();  // reads for later layers, behind this layer's own
    TRY_STATUS(parts_.experts.Run(kernels, routing, jobs, rows(),  // what is here first,
                                  leases, nullptr));               // the rest as it lands
  }
  return parts_.graph.Head(0, 1);
}

}  // namespace moestro
