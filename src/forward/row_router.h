// SPDX-License-Identifier: MIT
// Which experts the rows of a step get, from the router logits that a layer's graph left in the
// StepBuffers.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "core/routing.h"
#include "decide/layer/layer_protocol.h"
#include "engine/watchers.h"
#include "forward/dense/step_buffers.h"
#include "forward/experts/expert_exec.h"

namespace moestro {

class RowRouter {
 public:
  // Everything is borrowed and must outlive this; layers: those with experts.
  struct Parts {
    const ModelSpec& spec;
    const StepBuffers& buffers;
    const LayerProtocol& protocol;
    std::span<const LayerForm> layers;
    const Watchers& watchers;
  };
  explicit RowRouter(const Parts& parts) : parts_(parts) {}

  // K experts of each row; K' in a little step.
  Routing Choose(ExpertLayerId layer, size_t n_rows, const LittleStep& little) const;
  // What the routers of the `look_ahead` layers after `layer` choose: [distance - 1][row][K or K'].
  RoutedAhead ChooseAhead(ExpertLayerId layer, size_t n_rows, uint32_t look_ahead,
                          const LittleStep& little) const;
  // Of a little step: keeps the K best of each row, of which the routing has the first. Code that
  // chooses among candidates has asked for more than K of them.
  void Widen(ExpertLayerId layer, Routing& routing);
  // Of the last little step: the K experts of each row, [layer][row][K] in router order.
  std::span<const std::vector<ExpertId>> widened() const { return widened_; }

 private:
  Parts parts_;
  std::vector<std::vector<ExpertId>> widened_;
};

}  // namespace moestro
