// SPDX-License-Identifier: MIT
// Chooses the experts of a step's rows from the router logits that a layer's graph left in the
// StepBuffers.
//
// Thread rule: the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/batch.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "core/routing.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/router.h"
#include "devices/step_buffers.h"
#include "engine/watchers.h"
#include "forward/dense/step_rows.h"
#include "forward/experts/expert_exec.h"

namespace moestro {

class RowRouter {
 public:
  // Everything is borrowed and must outlive this; layers: layers with experts.
  struct Parts {
    const ModelSpec& spec;
    const StepBuffers& buffers;
    const LayerProtocol& protocol;
    std::span<const LayerForm> layers;
    const Watchers& watchers;
    uint32_t capacity = 0;  // rows of a source that an expert computes; 0: any number
  };
  explicit RowRouter(const Parts& parts) : parts_(parts) {}

  // Chooses K experts of each row; K' in a little step. Output parameters, here and below, keep
  // their memory for the next call.
  void Choose(ExpertLayerId layer, size_t n_rows, const LittleStep& little, Routing& routing);
  // For sources, where an expert has a capacity: gives weight 0 to an expert's rows beyond
  // `capacity` rows of a sequence. The layer adds nothing to these rows' residual. Source: W.
  // Fedus, B. Zoph, N. Shazeer, "Switch Transformers", 2021, section 2.2.
  void DropOverCapacity(std::span<const StepRow> rows, Routing& routing);
  // The experts that the routers of the `look_ahead` layers after `layer` choose: [distance -
  // 1][row][K or K'].
  void ChooseAhead(ExpertLayerId layer, size_t n_rows, uint32_t look_ahead,
                   const LittleStep& little, RoutedAhead& ahead);
  // Keeps the K best experts of each row of a little step, whose routing has the first of these K.
  // Drops the routing's candidates if no code chooses among them.
  void Widen(ExpertLayerId layer, Routing& routing);
  // For the last little step: the K experts of each row, [layer][row][K] in router order.
  std::span<const std::vector<ExpertId>> widened() const { return widened_; }

 private:
  Parts parts_;
  std::vector<std::vector<ExpertId>> widened_;
  Router router_;
  // Scratch memory.
  std::vector<float> biased_;
  std::map<std::pair<SequenceId, ExpertId>, uint32_t> taken_;
  Routing of_later_;
};

}  // namespace moestro
