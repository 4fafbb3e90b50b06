// SPDX-License-Identifier: MIT
#include "forward/experts/expert_stage.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace moestro {
namespace {

RouterSpec RouterOf(const ModelSpec& spec, const LittleStep& little) {
  RouterSpec router = spec.router;
  if (little.is_on()) router.n_used = little.n_used;
  return router;
}

// The rows' logits with the router's bias; `room` holds the sums if the router has a bias.
std::span<const float> WithBias(std::span<const float> logits, std::span<const float> bias,
                                std::vector<float>& room) {
  if (bias.empty()) return logits;
  room.assign(logits.begin(), logits.end());
  for (size_t i = 0; i < room.size(); ++i) room[i] += bias[i % bias.size()];
  return room;
}

}  // namespace

// Routes the rows of a layer by logits [row][n_expert].
void RowRouter::RouteLayer(ExpertLayerId layer, const RouterSpec& router,
                           std::span<const float> logits, std::span<const StepRow> rows,
                           uint32_t candidates, Routing& routing) {
  const LayerForm& form = parts_.layers[layer.value];
  logits = WithBias(logits, form.router_bias, biased_);
  if (form.of_tokens.empty()) {
    router_.Route(router, logits, form.selection_bias, candidates, routing);
    return;
  }
  const size_t k = parts_.spec.router.n_used;
  of_tokens_.clear();
  for (const StepRow& row : rows) {
    of_tokens_.append_range(form.of_tokens.subspan(static_cast<size_t>(row.token) * k, k));
  }
  router_.Follow(router, logits, of_tokens_, candidates, routing);
}

std::vector<ExpertKey> RowRouter::KnownFrom(uint32_t layer, std::span<const StepRow> rows) const {
  const size_t k = parts_.spec.router.n_used;
  std::vector<ExpertKey> keys;
  for (; layer < parts_.layers.size(); ++layer) {
    const std::span<const int32_t> table = parts_.layers[layer].of_tokens;
    if (table.empty()) break;
    const auto begin = static_cast<std::ptrdiff_t>(keys.size());
    for (const StepRow& row : rows) {
      for (const int32_t e : table.subspan(static_cast<size_t>(row.token) * k, k)) {
        keys.push_back({.layer = ExpertLayerId{static_cast<uint16_t>(layer)},
                        .expert = ExpertId{static_cast<uint16_t>(e)}});
      }
    }
    std::ranges::sort(keys.begin() + begin, keys.end());
    keys.erase(std::unique(keys.begin() + begin, keys.end()), keys.end());
  }
  return keys;
}

void RowRouter::Choose(ExpertLayerId layer, std::span<const StepRow> rows, const LittleStep& little,
                       Routing& routing) {
  const RouterSpec& router = parts_.spec.router;
  uint32_t candidates = parts_.protocol.candidates();
  if (parts_.watchers.wants_candidates) candidates = CandidatesOf(router.n_expert, router.n_used);
  if (little.is_on()) candidates = std::max(candidates, router.n_used);
  const std::span<const float> logits(parts_.buffers.router(), rows.size() * router.n_expert);
  RouteLayer(layer, RouterOf(parts_.spec, little), logits, rows, candidates, routing);
}

void RowRouter::DropOverCapacity(std::span<const StepRow> rows, Routing& routing) {
  if (parts_.capacity == 0 || !rows.front().is_source) return;
  taken_.clear();
  for (size_t row = 0; row < rows.size(); ++row) {
    for (size_t k = row * routing.n_used; k < (row + 1) * routing.n_used; ++k) {
      if (++taken_[{rows[row].sequence, routing.experts[k]}] > parts_.capacity) {
        routing.weights[k] = 0.0F;
      }
    }
  }
}

void RowRouter::Widen(ExpertLayerId layer, Routing& routing) {
  const uint32_t k = parts_.spec.router.n_used;
  widened_.resize(parts_.spec.n_main_expert_layers());
  std::vector<ExpertId>& widened = widened_[layer.value];
  widened.clear();
  for (size_t row = 0; row < routing.n_tokens; ++row) {
    widened.append_range(routing.candidates.row(row).experts.first(k));
  }
  if (parts_.protocol.candidates() == 0) routing.candidates.Clear(0);
}

void RowRouter::ChooseAhead(ExpertLayerId layer, std::span<const StepRow> rows, uint32_t look_ahead,
                            const LittleStep& little, RoutedAhead& ahead) {
  const uint32_t end = parts_.spec.n_main_expert_layers();
  const uint32_t layers = std::min(look_ahead, end - std::min(end, layer.value + 1U));
  const RouterSpec router = RouterOf(parts_.spec, little);
  const size_t logits = rows.size() * router.n_expert;  // values of one layer
  ahead.experts.clear();
  ahead.weights.clear();
  for (uint32_t i = 0; i < layers; ++i) {
    const ExpertLayerId later{static_cast<uint16_t>(layer.value + 1 + i)};
    const std::span<const float> its(parts_.buffers.ahead() + i * logits, logits);
    RouteLayer(later, router, its, rows, 0, of_later_);
    ahead.experts.append_range(of_later_.experts);
    ahead.weights.append_range(of_later_.weights);
  }
}

bool RowRouter::IsRule(ExpertLayerId layer, std::span<const float> logits,
                       std::span<const ExpertId> experts) {
  const LayerForm& form = parts_.layers[layer.value];
  return router_.AreChoices(parts_.spec.router, WithBias(logits, form.router_bias, biased_),
                            form.selection_bias, experts);
}

Status ExpertStage::BeginStep() {
  return parts_.devices != nullptr ? parts_.devices->BeginStep() : Status();
}

void ExpertStage::DoneWhole(LayerPlan& plan, double seconds) {
  parts_.devices->DoneWhole(plan, seconds);
  ++layers_there_;
}

void ExpertStage::Place(LayerPlan& plan) {
  if (uses_devices()) parts_.devices->Assign(plan);
}

ExpertRows ExpertStage::RowsOf(LayerId layer) const {
  const ModelSpec& spec = parts_.spec;
  const bool adds_shared =
      spec.has_shared_result(layer.value) && !spec.adds_shared_in_next(layer.value);
  const bool adds_residual = !spec.ends_in_next(layer.value);
  return {.ffn_in = parts_.buffers.ffn_in(),
          .shared = adds_shared ? parts_.buffers.shared() : nullptr,
          .residual = adds_residual ? parts_.buffers.residual() : nullptr,
          .hidden = parts_.buffers.hidden(),
          .hidden_stride = parts_.spec.n_embd};
}

ExpertStage::There ExpertStage::OnFirst(const LayerPlan& plan) const {
  const auto is_there = [](const PlannedExpert& e) {
    return e.place != Place::kHost && e.device == 0;
  };
  if (!parts_.graph.is_on_device() || std::ranges::none_of(plan.experts, is_there)) {
    return There::kNone;
  }
  return std::ranges::all_of(plan.experts, is_there) ? There::kAll : There::kSome;
}

Status ExpertStage::Run(LayerId layer, LayerPlan& plan, LeaseStream& leases,
                        LeaseStream& read_ahead) {
  const There there = OnFirst(plan);
  ExpertRows its_rows = RowsOf(layer);
  if (there != There::kNone) {
    its_rows = {.ffn_in = its_rows.ffn_in, .there = &parts_.buffers};
    if (there == There::kSome) its_rows.hidden = parts_.buffers.partial();
  }
  if (there == There::kNone) TRY_STATUS(parts_.graph.FetchRows());
  if (there == There::kSome) TRY_STATUS(parts_.graph.FetchInputs());
  Status ran = parts_.experts.Run(plan, its_rows, leases, &read_ahead);
  if (ran && there != There::kNone) parts_.graph.HiddenIsThere(there == There::kSome);
  if (ran && there == There::kAll) ++layers_there_;
  if (!uses_devices()) return ran;
  if (ran) {
    parts_.devices->Done(plan, parts_.experts.lane_seconds());
    return ran;
  }
  TRY_STATUS(parts_.devices->Failed(plan, ran.error()));
  if (ran.error().code != Errc::kDevice) return ran;
  leases = {};  // frees the slots of both streams for all experts of the plan
  read_ahead = {};
  leases = LeaseStream(parts_.residency, plan);
  leases.Advance();
  TRY_STATUS(parts_.graph.FetchRows());
  TRY_STATUS(parts_.experts.Run(plan, RowsOf(layer), leases, &read_ahead));
  return parts_.devices->Judge(parts_.experts.results(plan), parts_.spec.n_embd_expert());
}

void ExpertStage::Show(const LayerPlan& plan) const {
  if (!parts_.watchers.experts) return;
  const std::span inputs(parts_.buffers.ffn_in(),
                         size_t{plan.n_rows} * parts_.spec.n_embd_expert());
  parts_.watchers.experts({plan, inputs, parts_.experts.products(plan),
                           parts_.experts.results(plan),
                           parts_.layers[plan.layer.value].result_scale});
}

}  // namespace moestro
