// SPDX-License-Identifier: MIT
#include "forward/dense/kept_graphs.h"

#include "device/backend_calls.h"

namespace moestro {

KeptGraphs::KeptGraphs(CpuDevice& cpu, StopSignal* stop, size_t places, size_t max_nodes)
    : cpu_(&cpu), stop_(stop), max_nodes_(max_nodes), graphs_(places) {}

GraphRoom& KeptGraphs::Begin(size_t place) {
  Kept& kept = graphs_[place];
  kept.key.reset();
  kept.plan.reset();
  if (!kept.room) kept.room.emplace(max_nodes_);
  return *kept.room;
}

Status KeptGraphs::Add(size_t place, const Key& key) {
  Kept& kept = graphs_[place];
  TRY(kept.plan, cpu_->Plan(kept.room->graph(), stop_));
  kept.key = key;
  return {};
}

Status KeptGraphs::Run(size_t place) const { return ComputePlan(graphs_[place].plan); }

void KeptGraphs::Drop() {
  for (Kept& kept : graphs_) kept.key.reset();
}

}  // namespace moestro
