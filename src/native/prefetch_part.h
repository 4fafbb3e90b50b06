// SPDX-License-Identifier: MIT
// Holds the decisions around each layer of a step: the layer's plan, and the experts that are read
// before a layer requests them.
//
// Thread rule: the engine thread.
#pragma once

#include <memory>
#include <optional>

#include "base/result.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/device_tier.h"
#include "decide/layer/layer_protocol.h"
#include "native/opened_model.h"
#include "native/slot_part.h"
#include "residency/prefetched_experts.h"

namespace moestro {

class PrefetchPart {
 public:
  // tier: null without devices. is_fixed: prefetch must not depend on timing. All must outlive
  // this. kUsage.
  static Result<std::unique_ptr<PrefetchPart>> Create(const OpenedModel& opened, SlotPart& slots,
                                                      DeviceTier* tier, const LossyParts& lossy,
                                                      bool is_fixed);
  PrefetchPart(const PrefetchPart&) = delete;
  PrefetchPart& operator=(const PrefetchPart&) = delete;

  PrefetchPlanner& planner() { return *planner_; }
  const PrefetchPlanner& planner() const { return *planner_; }
  LayerProtocol& protocol() { return *protocol_; }

 private:
  PrefetchPart() = default;

  std::optional<PrefetchPlanner> planner_;
  std::optional<PrefetchedExperts> prefetched_;
  std::optional<LayerProtocol> protocol_;
};

}  // namespace moestro
