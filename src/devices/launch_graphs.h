// SPDX-License-Identifier: MIT
// Graphs of launches on a device, with their inputs and results. Graphs of few rows stay built: a
// decode step launches equal nodes for every token, with other values. All graphs share the memory
// of intermediate results, so only one of them may be under way.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "devices/device_link.h"

namespace moestro {

struct LaunchGraph {
  GraphRoom room;
  // Written before each launch.
  std::vector<ggml_tensor*> inputs = {};
  // Read afterwards; empty if results have a place of their own.
  std::vector<ggml_tensor*> results = {};
  std::vector<uint32_t> key = {};  // empty: not kept
};

class LaunchGraphs {
 public:
  // Graphs kept: launches of one to eight experts of two forms.
  static constexpr size_t kMostKept = 16;

  // max_nodes: nodes of the largest graph. The link must outlive this.
  LaunchGraphs(DeviceLink& link, size_t max_nodes);

  // A placed graph. key: all that its nodes depend on; empty: the graph is not kept. `build` adds
  // the nodes to the graph's room, and the graph's inputs and results. Valid until the next call.
  // kDevice: also if memory is too small.
  Result<LaunchGraph*> Get(std::span<const uint32_t> key,
                           const std::function<void(LaunchGraph&)>& build);

 private:
  LaunchGraph& RoomFor(std::span<const uint32_t> key);

  DeviceLink& link_;
  size_t max_nodes_;
  GraphArena arena_;
  uint64_t placed_bytes_ = 0;    // bytes of the arena when the kept graphs were placed
  std::list<LaunchGraph> kept_;  // the last used is first
  LaunchGraph other_;            // not kept
};

}  // namespace moestro
