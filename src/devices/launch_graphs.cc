// SPDX-License-Identifier: MIT
#include "devices/launch_graphs.h"

#include <algorithm>

namespace moestro {

LaunchGraphs::LaunchGraphs(DeviceLink& link, size_t max_nodes)
    : link_(link),
      max_nodes_(max_nodes),
      arena_(link.device().backend(), max_nodes),
      other_{.room = GraphRoom(max_nodes)} {}

LaunchGraph& LaunchGraphs::RoomFor(std::span<const uint32_t> key) {
  if (key.empty()) return other_;
  if (kept_.size() < kMostKept) return kept_.emplace_front(GraphRoom(max_nodes_));
  kept_.splice(kept_.begin(), kept_, std::prev(kept_.end()));
  return kept_.front();
}

Result<LaunchGraph*> LaunchGraphs::Get(std::span<const uint32_t> key,
                                       const std::function<void(LaunchGraph&)>& build) {
  const auto same = [&](const LaunchGraph& kept) { return std::ranges::equal(kept.key, key); };
  const auto found = key.empty() ? kept_.end() : std::ranges::find_if(kept_, same);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
    return &kept_.front();
  }
  LaunchGraph& graph = RoomFor(key);
  graph.inputs.clear();
  graph.results.clear();
  graph.key.clear();  // a graph that cannot be placed is not found again
  arena_.Begin(&graph.room);
  build(graph);
  link_.CountBuilt();
  const Status placed = arena_.Place();
  if (!placed || arena_.buffer_bytes() != placed_bytes_) {  // the values of kept graphs have moved
    for (LaunchGraph& kept : kept_) kept.key.clear();
  }
  placed_bytes_ = placed ? arena_.buffer_bytes() : 0;
  if (!placed) {
    if (placed.error().code == Errc::kDevice) return std::unexpected(placed.error());
    return Fail(Errc::kDevice, "the device {} has no room for a launch",
                link_.device().info().name);
  }
  graph.key.assign(key.begin(), key.end());
  return &graph;
}

}  // namespace moestro
