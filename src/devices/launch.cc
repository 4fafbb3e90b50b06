// SPDX-License-Identifier: MIT
#include "devices/launch.h"

#include <algorithm>
#include <cstddef>

#include "base/number.h"
#include "compute/product_node.h"

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

namespace {

// The begin of the next list, aligned for every device.
size_t Aligned(size_t numbers) { return AlignUp(numbers, 64); }

}  // namespace

void PairLists::Assign(const DevicePools& pools, uint32_t form,
                       std::span<const Transport::Pair> pairs) {
  const auto piece_of = [&](const Transport::Pair& pair) {
    return pools.Find(form, pair.slot).piece;
  };
  pairs_.assign(pairs.begin(), pairs.end());
  std::ranges::stable_sort(pairs_, {}, piece_of);
  parts_.clear();
  numbers_.clear();
  for (size_t i = 0; i < pairs_.size(); ++i) {
    const size_t piece = piece_of(pairs_[i]);
    if (parts_.empty() || parts_.back().piece != piece) {
      parts_.push_back({.piece = piece, .first = i});
    }
    ++parts_.back().n;
  }
  for (Part& part : parts_) {
    part.slots_at = numbers_.size();
    part.experts_at = part.slots_at + Aligned(part.n);
    Append(part, pools, form);
  }
  rows_at_ = numbers_.size();
  for (const Transport::Pair& pair : pairs_) numbers_.push_back(static_cast<int32_t>(pair.row));
  numbers_.resize(Aligned(numbers_.size()));
}

void PairLists::Append(const Part& part, const DevicePools& pools, uint32_t form) {
  const auto its = std::span(pairs_).subspan(part.first, part.n);
  for (const Transport::Pair& pair : its) {
    numbers_.push_back(static_cast<int32_t>(pools.Find(form, pair.slot).slot));
  }
  numbers_.resize(part.experts_at);
  for (const Transport::Pair& pair : its) numbers_.push_back(pair.expert.value);
  numbers_.resize(part.experts_at + Aligned(part.n));
}

namespace {

// Repeats compute/product_node.cc operation by operation: gate / (1 + exp(-gate)) * up. Each
// operation rounds once, as in C, and exp is the C library's.
ggml_tensor* ActivateExactly(ggml_context* context, Activation activation, ggml_tensor* gate,
                             ggml_tensor* up) {
  if (activation == Activation::kReluSquared) return ggml_sqr(context, ggml_relu(context, up));
  if (activation == Activation::kRelu) return ggml_relu(context, up);
  ggml_tensor* power = ggml_exp(context, ggml_neg(context, gate));
  ggml_tensor* divisor = ggml_scale_bias(context, power, 1.0F, 1.0F);
  return ggml_mul(context, ggml_div(context, gate, divisor), up);
}

}  // namespace

bool HasExactForm(Activation activation) {
  return activation == Activation::kSwiglu || !HasGate(activation);
}

ggml_tensor* AddProducts(ggml_context* context, ggml_cgraph* graph, const ExpertTensors& tensors,
                         ggml_tensor* x, const PairIds& ids) {
  const auto product = [&](Matrix matrix, ggml_tensor* in) {
    const auto m = static_cast<size_t>(matrix);
    ggml_tensor* out = ggml_mul_mat_id(context, tensors.matrix[m], in, ids.slots);
    if (tensors.bias[m] == nullptr) return out;
    return ggml_add_id(context, out, tensors.bias[m], ids.experts);
  };
  // Order: up, gate, then the activation, of which CUDA makes one kernel.
  ggml_tensor* up = product(Matrix::kUp, x);
  ggml_tensor* gate = HasGate(tensors.activation) ? product(Matrix::kGate, x) : nullptr;
  ggml_tensor* joined = tensors.is_exact ? ActivateExactly(context, tensors.activation, gate, up)
                                         : Activate(context, tensors.activation, gate, up);
  ggml_tensor* y = product(Matrix::kDown, joined);
  ggml_build_forward_expand(graph, up);
  ggml_build_forward_expand(graph, y);
  return y;
}

}  // namespace moestro
