// SPDX-License-Identifier: MIT
// The routers of later layers, evaluated on the input of an earlier layer's router while libllama's
// graph stands still. Only for predictions: libllama's own routers choose.
// Source: HOBBIT's look-ahead, as in decide/ahead/predictors/next_router.cc.
//
// Thread rule: the engine thread, while libllama computes nothing.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/cpu_device.h"
#include "compute/look_ahead.h"
#include "engine/watchers.h"
#include "hosted/learned_graph.h"

namespace moestro {

class EarlyRouters {
 public:
  // The most layers that can be looked ahead from the first one: 0 unless all routers have the
  // known form (hosted/router_nodes.h), the same sizes and the same K.
  static uint32_t MostAhead(const LearnedGraph& graph);
  static uint64_t BytesFor(const LearnedGraph& graph);
  // The graph and the device must outlive this. kNoMemory. REQUIRES: MostAhead() > 0, and the
  // model's dense part is loaded.
  static Result<EarlyRouters> Create(const LearnedGraph& graph, CpuDevice& cpu);

  // Evaluates the routers of the next `layers` groups on the input of this group's router, which
  // has just computed `ids`. Returns their choices [distance - 1][row][K], as far as the last
  // group; none if this graph's router has not the learned form. kNoMemory.
  Result<RoutedAhead> Choose(uint32_t group, const ggml_tensor& ids, uint32_t layers);

 private:
  EarlyRouters(const LearnedGraph& graph, CpuDevice& cpu, LookAheadRouters routers);
  void Choose(uint32_t group, std::span<float> logits, RoutedAhead& ahead) const;

  const LearnedGraph* graph_;
  LookAheadRouters routers_;
  GraphArena arena_;
  std::vector<float> logits_;  // scratch
};

}  // namespace moestro
