// SPDX-License-Identifier: MIT
#include "forward/dense/kept_graphs.h"

#include <algorithm>
#include <span>

#include "device/backend_calls.h"

namespace moestro {
namespace {

// Nodes that only say where values are.
bool IsView(const ggml_tensor* node) {
  return node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE ||
         node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

}  // namespace

KeptGraphs::KeptGraphs(Team& team, StopSignal* stop, size_t places, size_t max_nodes)
    : team_(&team), stop_(stop), max_nodes_(max_nodes), graphs_(places) {}

bool KeptGraphs::AreForTeam(size_t places, const Key& key) const {
  return std::ranges::all_of(std::span(graphs_).first(places), [&](const Kept& kept) {
    return kept.key == key && !kept.nodes.empty();
  });
}

GraphRoom& KeptGraphs::Begin(size_t place) {
  Kept& kept = graphs_[place];
  kept.key.reset();
  kept.plan.reset();
  if (!kept.room) kept.room.emplace(max_nodes_);
  return *kept.room;
}

std::vector<KeptGraphs::Node> KeptGraphs::NodesOf(ggml_cgraph* graph) const {
  std::vector<Node> nodes;
  for (int i = 0; i < ggml_graph_n_nodes(graph); ++i) {
    ggml_tensor* node = ggml_graph_node(graph, i);
    if (IsView(node)) continue;
    const std::optional<CustomCall> call = calls_.Of(node);
    if (!call) return {};
    nodes.push_back({.call = *call, .result = node});
  }
  return nodes;
}

Status KeptGraphs::Add(size_t place, const Key& key) {
  Kept& kept = graphs_[place];
  kept.nodes = NodesOf(kept.room->graph());
  if (kept.nodes.empty()) {
    TRY(kept.plan, team_->device().Plan(kept.room->graph(), stop_));
  }
  kept.key = key;
  return {};
}

Status KeptGraphs::Run(size_t place) {
  const Kept& kept = graphs_[place];
  if (kept.nodes.empty()) return ComputePlan(kept.plan);
  arrived_.Store(0);
  return team_->Run([&](int thread, int n_threads) {
    uint32_t expected = 0;  // threads at the barriers so far
    for (const Node& node : kept.nodes) {
      if (expected > 0) {
        arrived_.Add(1);
        arrived_.WaitUntil([expected](uint32_t arrived) { return arrived >= expected; });
      }
      expected += static_cast<uint32_t>(n_threads);
      const CustomCall& call = node.call;
      if (!call.is_alone) {
        call.work(node.result, thread, n_threads, call.userdata);
      } else if (thread == 0) {
        call.work(node.result, 0, 1, call.userdata);
      }
    }
  });
}

void KeptGraphs::Drop() {
  for (Kept& kept : graphs_) kept.key.reset();
}

}  // namespace moestro
