// SPDX-License-Identifier: MIT
#include "engine/asked_bytes.h"

#include "core/layer_plan.h"

namespace moestro {

AskedBytes::AskedBytes(Engine& engine) : engine_(engine), model_(engine.MakeResidentModel()) {
  engine.SetPlanObserver([this](const LayerPlan& plan) { See(plan); });
}

AskedBytes::~AskedBytes() { engine_.SetPlanObserver({}); }

void AskedBytes::See(const LayerPlan& plan) {
  model_.BeginLayer(plan.layer);
  for (const PlannedExpert& expert : plan.experts) {
    const bool is_asked = expert.use == Use::kDecode && !model_.contains(expert.key);
    if (is_asked) bytes_ += engine_.place_of(expert.key).bytes;
  }
  model_.Run(plan);
}

}  // namespace moestro
