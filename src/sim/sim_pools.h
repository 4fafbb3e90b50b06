// SPDX-License-Identifier: MIT
// The pools of slots of a replay: the pools of the trace's model, and one more for low copies. Pure
// values; used by replay.cc and the player.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/run_identity.h"
#include "sim/replay.h"
#include "trace/trace.h"

namespace moestro {

class SimPools {
 public:
  SimPools(const TraceInfo& info, const ReplayOptions& options);

  size_t size() const { return matrices_.size(); }
  uint32_t of(ExpertKey key) const {
    return key.copy == 0 ? own_.of(key, shape_.n_expert) : low_pool();
  }
  // The pools that the copies of a layer's experts use, each once.
  std::span<const uint32_t> of_layer(ExpertLayerId layer) const { return layers_[layer.value]; }
  const std::array<double, kMatrices>& matrices(uint32_t pool) const { return matrices_[pool]; }
  double expert_bytes(uint32_t pool) const {
    return matrices_[pool][0] + matrices_[pool][1] + matrices_[pool][2];
  }
  // The mean bytes of all experts' own copies.
  double mean_bytes() const { return mean_bytes_; }

 private:
  uint32_t low_pool() const { return static_cast<uint32_t>(matrices_.size() - 1); }

  MoeShape shape_;
  ExpertPools own_;
  std::vector<std::array<double, kMatrices>> matrices_;  // [pool]: bytes
  std::vector<std::vector<uint32_t>> layers_;            // [layer]
  double mean_bytes_ = 0.0;
};

}  // namespace moestro
