// SPDX-License-Identifier: MIT
#include "forward/dense/graph_runner.h"

#include <algorithm>
#include <ranges>

#include "base/result.h"

namespace moestro {
namespace {

// Whether a node computes nothing and only refers to values.
bool IsView(const ggml_tensor* node) {
  return node->op == GGML_OP_NONE || node->op == GGML_OP_VIEW || node->op == GGML_OP_RESHAPE ||
         node->op == GGML_OP_PERMUTE || node->op == GGML_OP_TRANSPOSE;
}

}  // namespace

GraphCache::GraphCache(const Runner& runner, size_t places, size_t max_nodes)
    : runner_(runner), max_nodes_(max_nodes), places_(places) {}

const GraphCache::CachedGraph* GraphCache::Find(size_t place, const Key& key) const {
  const auto* found = std::ranges::find(places_[place], key, &CachedGraph::key);
  return found != places_[place].end() ? found : nullptr;
}

bool GraphCache::AreForTeam(size_t first, size_t end, const Key& key) const {
  return std::ranges::all_of(std::views::iota(first, end), [&](size_t place) {
    const CachedGraph* kept = Find(place, key);
    return kept != nullptr && !kept->nodes.empty();
  });
}

GraphRoom& GraphCache::Begin(size_t place) {
  begun_ = std::ranges::min_element(
      places_[place], {}, [](const CachedGraph& kept) { return kept.key ? kept.last_run : 0; });
  begun_->key.reset();
  if (!begun_->room) begun_->room.emplace(max_nodes_);
  return *begun_->room;
}

std::vector<GraphCache::Node> GraphCache::NodesOf(ggml_cgraph* graph) const {
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

void GraphCache::Add(size_t place, const Key& key) {
  CHECK(begun_ >= places_[place].begin() && begun_ < places_[place].end());
  begun_->nodes.clear();
  if (runner_.link == nullptr) begun_->nodes = NodesOf(begun_->room->graph());
  begun_->key = key;
  begun_->last_run = ++runs_;
}

Status GraphCache::Run(size_t place, const Key& key) {
  CachedGraph& kept = *std::ranges::find(places_[place], key, &CachedGraph::key);
  kept.last_run = ++runs_;
  ggml_cgraph* const graph = kept.room->graph();
  if (runner_.link != nullptr) return runner_.link->Launch(graph);
  if (!kept.nodes.empty()) return RunOnTeam(kept.nodes);
  CpuDevice& cpu = runner_.team.device();
  return runner_.stop != nullptr ? cpu.Compute(graph, *runner_.stop) : cpu.Compute(graph);
}

Status GraphCache::RunOnTeam(const std::vector<Node>& nodes) {
  arrived_.Store(0);
  const auto work = [&](int thread, int n_threads) {
    uint32_t expected = 0;  // threads at the barriers so far
    for (const Node& node : nodes) {
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
  };
  return runner_.team.Run([&](int thread, int n_threads) {
    try {
      work(thread, n_threads);
    } catch (...) {
      // Opens all barriers, so that no other thread waits for this one.
      arrived_.Add(static_cast<uint32_t>(nodes.size()) * static_cast<uint32_t>(n_threads));
      throw;
    }
  });
}

void GraphCache::Drop() {
  for (GraphSet& place : places_) {
    for (CachedGraph& kept : place) kept.key.reset();
  }
}

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
