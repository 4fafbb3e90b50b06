// SPDX-License-Identifier: MIT
// Makes a PrefetchPlanner's wishes true: asks for absent experts at low priority, keeps those that
// are there, and lets go of both when their layer's router has spoken.
//
// Thread rule: engine thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "decide/prefetch_planner.h"
#include "residency/residency.h"

namespace moestro {

class Prefetcher {
 public:
  // Both must outlive this.
  Prefetcher(PrefetchPlanner& planner, Residency& residency, uint32_t layers);

  uint32_t look_ahead() const { return planner_->look_ahead(); }
  // The router of a layer has spoken: what was wrongly expected of this layer is given up, so that
  // its slots are free for what is wanted. The rest stays pinned until LookAhead().
  void RouterSpoke(const Predictor::Seen& seen);
  // After the layer's own experts have been asked for.
  void LookAhead();
  // Gives up everything: a token ended early.
  void Clear();

 private:
  PrefetchPlanner* planner_;
  Residency* residency_;
  std::vector<std::vector<Lease>> held_;  // [layer]
  size_t layer_ = 0;
};

}  // namespace moestro
