// SPDX-License-Identifier: MIT
#include "forward/forward.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "base/format.h"
#include "decide/layer/layer_planner.h"
#include "decide/layer/router.h"
#include "forward/dense/finite.h"

namespace moestro {
namespace {

RouterSpec RouterOf(const ModelSpec& spec, const LittleStep& little) {
  RouterSpec router = spec.router;
  if (little.is_on()) router.n_used = little.n_used;
  return router;
}

}  // namespace

Status Forward::CheckStop() const {
  if (!parts_.stop.is_requested()) return {};
  return Fail(Errc::kInterrupted, "stopped on request");
}

Status Forward::Attend(LayerId layer, size_t n_rows, uint32_t look_ahead) {
  const double start = parts_.clock();
  TRY_STATUS(parts_.graph.Attend(layer, look_ahead));
  dense_seconds_ += parts_.clock() - start;
  return CheckFinite(layer, n_rows);
}

Status Forward::CheckFinite(LayerId layer, size_t n_rows) const {
  const ModelSpec& spec = parts_.spec;
  const bool has_router = spec.has_experts(layer.value);
  const bool is_there = parts_.graph.is_on_device();
  if (!has_router && is_there) return {};
  const std::span<const float> hidden(parts_.buffers.hidden(), n_rows * spec.n_embd);
  const auto row = has_router
                       ? FirstRowNotFinite({parts_.buffers.router(), n_rows * spec.router.n_expert},
                                           spec.router.n_expert)
                       : FirstRowNotFinite(hidden, spec.n_embd);
  if (!row) return {};
  // With a router, hidden is still what came into the layer.
  const bool came_in = has_router && !is_there && FirstRowNotFinite(hidden, spec.n_embd);
  const std::string where = !came_in          ? Format("layer {}", layer.value)
                            : layer.value > 0 ? Format("layer {}'s experts", layer.value - 1)
                                              : "the embedding";
  return Fail(Errc::kInvalidFile,
              "position {}: {} computed NaN or infinity; the weights are damaged, or their values "
              "too large for this type of keys and values: fetch the model again",
              parts_.buffers.positions()[*row], where);
}

// Others' rows take the places of this step's first ones.
Status Forward::StepAside(const Interlude& interlude) {
  const LayerGraph::Rows kept = parts_.graph.KeepRows(interlude.most_rows);
  TRY_STATUS(interlude.run());
  parts_.graph.BringBack(kept);
  return {};
}

Routing Forward::RouteRows(ExpertLayerId layer, size_t n_rows, const LittleStep& little) const {
  const RouterSpec& router = parts_.spec.router;
  uint32_t candidates = parts_.protocol.candidates();
  if (watchers_.wants_candidates) candidates = CandidatesOf(router.n_expert, router.n_used);
  if (little.is_on()) candidates = std::max(candidates, router.n_used);
  return Route(RouterOf(parts_.spec, little), {parts_.buffers.router(), n_rows * router.n_expert},
               parts_.layers[layer.value].selection_bias, candidates);
}

// Keeps the K best of each row, of which the routing has the first. Code that chooses among
// candidates has asked for more than K of them.
void Forward::Widen(ExpertLayerId layer, Routing& routing) {
  const uint32_t k = parts_.spec.router.n_used;
  widened_.resize(parts_.spec.n_expert_layers());
  std::vector<ExpertId>& widened = widened_[layer.value];
  widened.clear();
  for (size_t row = 0; row < routing.n_tokens; ++row) {
    widened.append_range(routing.candidates.row(row).experts.first(k));
  }
  if (parts_.protocol.candidates() == 0) routing.candidates = {};
}

RoutedAhead Forward::RouteAhead(ExpertLayerId layer, size_t n_rows, uint32_t look_ahead,
                                const LittleStep& little) const {
  const uint32_t layers = std::min(look_ahead, parts_.spec.n_expert_layers() - 1 - layer.value);
  const RouterSpec router = RouterOf(parts_.spec, little);
  const size_t logits = n_rows * router.n_expert;  // of one layer
  RoutedAhead ahead;
  for (uint32_t i = 0; i < layers; ++i) {
    const Routing routing = Route(router, {parts_.buffers.ahead() + i * logits, logits},
                                  parts_.layers[layer.value + 1 + i].selection_bias);
    ahead.experts.append_range(routing.experts);
    ahead.weights.append_range(routing.weights);
  }
  return ahead;
}

LeaseStream Forward::ReadAhead(ExpertLayerId layer, std::span<const RowKind> kinds) const {
  const RouterSpec& router = parts_.spec.router;
  const auto prompt_rows = static_cast<size_t>(std::ranges::count(kinds, RowKind::kPrompt));
  const std::vector<ExpertKey> keys = PlanReadAhead(layer, parts_.spec.n_expert_layers(),
                                                    router.n_expert, router.n_used, prompt_rows);
  if (keys.empty()) return {};
  return {parts_.residency, keys, Urgency::kSpeculative};
}

ExpertRows Forward::RowsOf(LayerId layer) const {
  const bool has_shared = parts_.spec.layers[layer.value].feed_forward.n_ff_shared > 0;
  return {.ffn_in = parts_.buffers.ffn_in(),
          .shared = has_shared ? parts_.buffers.shared() : nullptr,
          .residual = parts_.buffers.residual(),
          .hidden = parts_.buffers.hidden()};
}

void Forward::PlaceExperts(LayerPlan& plan) {
  // An observer of experts wants what the CPU has in between, too.
  if (parts_.devices != nullptr && !watchers_.experts) parts_.devices->Assign(plan);
}

bool Forward::StaysThere(const LayerPlan& plan) const {
  const auto is_there = [](const PlannedExpert& e) {
    return e.place != Place::kHost && e.device == 0;
  };
  return parts_.graph.is_on_device() && std::ranges::all_of(plan.experts, is_there) &&
         !std::ranges::contains(plan.pair_of, kNoPair);
}

Status Forward::RunExperts(LayerId layer, LayerPlan& plan, LeaseStream& leases,
                           LeaseStream& read_ahead) {
  ExpertRows its_rows = RowsOf(layer);
  const bool stays = StaysThere(plan);
  if (stays) {
    its_rows.there = &parts_.buffers;
  } else {
    TRY_STATUS(parts_.graph.FetchRows());
  }
  Status ran = parts_.experts.Run(plan, its_rows, leases, &read_ahead);
  if (ran && stays) {
    parts_.graph.HiddenIsThere();
    ++layers_there_;
  }
  if (parts_.devices == nullptr || watchers_.experts) return ran;
  if (ran) {
    parts_.devices->Done(plan, parts_.experts.lane_seconds());
    return ran;
  }
  TRY_STATUS(parts_.devices->Failed(plan, ran.error()));
  if (ran.error().code != Errc::kDevice) return ran;
  leases = {};  // their slots are free for all of the plan, and those of the next layer's experts
  read_ahead = {};
  leases = LeaseStream(parts_.residency, plan);
  leases.Advance();
  TRY_STATUS(parts_.graph.FetchRows());
  return parts_.experts.Run(plan, RowsOf(layer), leases, &read_ahead);
}

void Forward::OverrideCopies(LayerPlan& plan) const {
  for (PlannedExpert& expert : plan.experts) expert.key.copy = watchers_.copies(expert.key);
}

void Forward::ShowExperts(const LayerPlan& plan) const {
  const std::span inputs(parts_.buffers.ffn_in(), size_t{plan.n_rows} * parts_.spec.n_embd);
  watchers_.experts({plan, inputs, parts_.experts.products(plan), parts_.experts.results(plan)});
}

}  // namespace moestro
