// SPDX-License-Identifier: MIT
// Many tokens through all layers, each expert read at most once per chunk. While a layer computes,
// the next layer's experts are already on their way.
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "core/routing.h"
#include "decide/router.h"
#include "engine/expert_jobs.h"
#include "engine/forward.h"
#include "graph/layer_graph.h"
#include "residency/lease_stream.h"

namespace moestro {
namespace {

// Reading a layer's experts before its router has spoken pays only if nearly all will be needed:
// with T tokens of K from E experts, even routing leaves out (1 - K/E)^T of them.
bool IsWorthReadingAhead(const RouterSpec& router, size_t n_tokens) {
  constexpr double kLeastShare = 0.8;
  const double skipped = 1.0 - static_cast<double>(router.n_used) / router.n_expert;
  return 1.0 - std::pow(skipped, static_cast<double>(n_tokens)) >= kLeastShare;
}

std::vector<ExpertKey> AllKeys(LayerId layer, uint32_t n_expert) {
  std::vector<ExpertKey> keys;
  for (uint16_t e = 0; e < n_expert; ++e) keys.push_back({.layer = layer, .expert = {e}});
  return keys;
}

}  // namespace

Status Forward::Prefill(std::span<const Token> tokens, uint32_t first,
                        const std::function<void(uint32_t layers_done)>& layer_done) {
  const Batch batch{.first = first, .n_tokens = static_cast<uint32_t>(tokens.size())};
  const RouterSpec& router = parts_.spec.router;
  const bool read_ahead = IsWorthReadingAhead(router, tokens.size());
  parts_.graph.Embed(tokens);
  parts_.graph.SetBatch(batch);
  LeaseStream ahead;  // of the layer about to run
  for (uint16_t l = 0; l < parts_.spec.n_layer; ++l) {
    TRY_STATUS(CheckStop());
    TRY_STATUS(Attend(LayerId{l}, batch, observed_ahead_));
    if (!parts_.spec.has_experts(l)) {
      layer_done(l + 1U);
      continue;
    }
    const LayerId layer{static_cast<uint16_t>(parts_.spec.expert_layers_before(l))};
    const LayerKernels& kernels = parts_.kernels[layer.value];
    const Routing routing = Route(router, router_logits(batch.n_tokens), kernels.selection_bias);
    ExpertJobs jobs = GroupByExpert(routing, router.n_expert);
    Observe({layer, routing, Use::kPrefill, RouteAhead(layer, batch.n_tokens, observed_ahead_)});
    ResidentFirst(layer, jobs);
    LeaseStream leases(parts_.residency, KeysOf(layer, jobs), Use::kPrefill, Urgency::kDemand);
    leases.Advance();  // pins what was read ahead before the other leases on it go
    ahead = {};
    if (read_ahead && layer.value + 1U < parts_.spec.n_expert_layers()) {
      ahead = LeaseStream(parts_.residency,
                          AllKeys(LayerId{static_cast<uint16_t>(layer.value + 1)}, router.n_expert),
                          Use::kPrefill, Urgency::kSpeculative);
    }
    TRY_STATUS(parts_.experts.Run(kernels, routing, jobs, rows(), leases, &ahead));
    layer_done(l + 1U);
  }
  return {};
}

}  // namespace moestro
