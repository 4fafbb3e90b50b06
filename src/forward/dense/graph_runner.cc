// SPDX-License-Identifier: MIT
#include "forward/dense/graph_runner.h"

#include <algorithm>

#include "base/check.h"

namespace moestro {

GraphRunner::GraphRunner(const Parts& parts)
    : parts_(parts),
      arena_(parts.link != nullptr ? parts.link->device().backend() : parts.team.device().backend(),
             parts.max_nodes),
      kept_({.team = parts.team, .stop = parts.stop, .link = parts.link}, parts.places,
            parts.max_nodes) {}

Status GraphRunner::Reserve() {
  const uint64_t before = arena_.buffer_bytes();
  TRY_STATUS(arena_.Reserve());
  CHECK(arena_.buffer_bytes() >= before);  // gallocr never shrinks
  node_bytes_ = std::max(node_bytes_, arena_.used_bytes());
  placed_bytes_ = arena_.buffer_bytes();
  return {};
}

// Places the graph. A graph larger than all before moves the values of kept graphs, or loses them
// if memory does not suffice.
Status GraphRunner::Place() {
  if (parts_.link != nullptr) parts_.link->CountBuilt();
  Status placed = arena_.Place();
  if (!placed || arena_.buffer_bytes() != placed_bytes_) kept_.Drop();
  placed_bytes_ = placed ? arena_.buffer_bytes() : 0;
  if (placed || parts_.link == nullptr) return placed;
  return Fail(Errc::kDevice, "{}: {}", parts_.link->device().info().name, placed.error().message);
}

// Reports a stop. A plug-in without an abort callback completes the graph after a stop, with
// attention half done, so the results are undefined.
Status GraphRunner::Interrupted() const {
  if (parts_.link != nullptr || parts_.stop == nullptr || !parts_.stop->is_requested()) return {};
  return Fail(Errc::kInterrupted, "stopped on request");
}

// Starts the graph. A device still computes after the return; a call that fetches results waits.
Status GraphRunner::Compute() {
  TRY_STATUS(Place());
  if (parts_.link != nullptr) return parts_.link->Launch(arena_.graph());
  CpuDevice& cpu = parts_.team.device();
  if (parts_.stop == nullptr) return cpu.Compute(arena_.graph());
  TRY_STATUS(cpu.Compute(arena_.graph(), *parts_.stop));
  return Interrupted();
}

}  // namespace moestro
