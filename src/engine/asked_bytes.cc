// SPDX-License-Identifier: MIT
#include "engine/asked_bytes.h"

#include "core/layer_plan.h"
#include "decide/slot_table.h"

namespace moestro {

AskedBytes::AskedBytes(Engine& engine) : engine_(engine) {
  engine.SetPlanObserver([this](const LayerPlan& plan) {
    for (const PlannedExpert& expert : plan.experts) {
      const bool is_asked = !expert.is_present && expert.use == Use::kDecode;
      if (is_asked) bytes_ += engine_.copy_bytes(expert.key);
    }
  });
  engine.SetRequestObserver([this](ExpertKey key, Use use, const Placement& placement) {
    const bool is_asked = use == Use::kPrefetch && placement.was == Placement::Was::kAbsent;
    if (is_asked) bytes_ += engine_.copy_bytes(key);
  });
}

AskedBytes::~AskedBytes() {
  engine_.SetPlanObserver({});
  engine_.SetRequestObserver({});
}

}  // namespace moestro
