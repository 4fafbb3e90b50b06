// SPDX-License-Identifier: MIT
// Holds the decisions around each layer of a step: the layer's plan, and the experts that are read
// before a layer requests them. The simulator makes the same decisions.
//
// Thread rule: the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/result.h"
#include "decide/ahead/predictor.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_protocol.h"
#include "kit/expert_slots.h"
#include "residency/prefetched_experts.h"

namespace moestro {

class LayerDecisions {
 public:
  struct Rules {
    uint32_t look_ahead = 0;     // layers that experts are predicted for; 0: nothing is predicted
    LossyParts lossy = {};       // without a chooser every plan is exact
    DeviceTier* tier = nullptr;  // null: no devices
    bool is_fixed = false;       // prefetch must not depend on timing
  };
  // `slots` and the parts of `rules` must outlive this. kUsage. REQUIRES: slots.Allocate().
  static Result<std::unique_ptr<LayerDecisions>> Create(const PredictorChoice& predictor,
                                                        ExpertSlots& slots, const Rules& rules);
  LayerDecisions(const LayerDecisions&) = delete;
  LayerDecisions& operator=(const LayerDecisions&) = delete;

  PrefetchPlanner& planner() { return *planner_; }
  const PrefetchPlanner& planner() const { return *planner_; }
  LayerProtocol& protocol() { return *protocol_; }
  // Scores of the predictions, by distance; empty: nothing is predicted.
  std::span<const PredictionScore> scores() const;
  // Call before the first step after all sequences have ended.
  void BeginSequence();

 private:
  LayerDecisions(Residency& residency, const Rules& rules)
      : residency_(residency), rules_(rules), prefetched_(residency, rules.tier) {}

  Residency& residency_;
  const Rules rules_;
  PrefetchedExperts prefetched_;
  std::optional<PrefetchPlanner> planner_;
  std::optional<LayerProtocol> protocol_;
};

}  // namespace moestro
