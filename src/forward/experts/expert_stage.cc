// SPDX-License-Identifier: MIT
#include "forward/experts/expert_stage.h"

#include <algorithm>
#include <cstddef>
#include <span>

namespace moestro {

void ExpertStage::BeginStep() {
  if (parts_.devices != nullptr) parts_.devices->BeginStep();
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

// Whether the layer's rows may stay on the first device.
bool ExpertStage::StaysThere(const LayerPlan& plan) const {
  const auto is_there = [](const PlannedExpert& e) {
    return e.place != Place::kHost && e.device == 0;
  };
  return parts_.graph.is_on_device() && std::ranges::all_of(plan.experts, is_there) &&
         !std::ranges::contains(plan.pair_of, kNoPair);
}

Status ExpertStage::Run(LayerId layer, LayerPlan& plan, LeaseStream& leases,
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
