// SPDX-License-Identifier: MIT
// A launch on a device of this machine: its pairs in order, its graphs, its products. Used by
// local_transport alone.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "core/expert_catalog.h"
#include "core/model_spec.h"
#include "devices/device_link.h"
#include "devices/device_pools.h"
#include "devices/transport.h"

namespace moestro {

// Graphs of launches on a device, with their inputs and results. Graphs of few rows stay built: a
// decode step launches equal nodes for every token, with other values. All graphs share the memory
// of intermediate results, so only one of them may be under way.

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

// The pairs of a launch in the order in which a device takes them, and the numbers of their slots,
// experts and rows. ggml multiplies by experts of one tensor, so the pairs whose slots are in one
// piece of a pool form a part of their own:
//
//   [part 0: slots | experts][part 1: slots | experts] ... [rows of all pairs]
//
// Each list begins at an alignment that every device can read.

class PairLists {
 public:
  struct Part {
    size_t piece = 0;  // piece of the pool
    size_t first = 0;  // pairs [first, first + n)
    size_t n = 0;
    size_t slots_at = 0;  // index of the list in numbers()
    size_t experts_at = 0;
  };

  void Assign(const DevicePools& pools, uint32_t form, std::span<const Transport::Pair> pairs);

  // Pairs piece by piece, in a piece as given to Assign().
  std::span<const Transport::Pair> pairs() const { return pairs_; }
  std::span<const Part> parts() const { return parts_; }
  size_t rows_at() const { return rows_at_; }
  std::span<const int32_t> numbers() const { return numbers_; }

 private:
  void Append(const Part& part, const DevicePools& pools, uint32_t form);

  std::vector<Transport::Pair> pairs_;
  std::vector<Part> parts_;
  size_t rows_at_ = 0;
  std::vector<int32_t> numbers_;
};

// The products of experts in a launch on a device. Used by local_transport.cc alone.

// The tensors of experts on a device, and the activation between the matrices.
struct ExpertTensors {
  // Tensors of the pool, [n_in, n_out, slots]; null: experts of this form lack the matrix.
  std::array<ggml_tensor*, kMatrices> matrix{};
  std::array<ggml_tensor*, kMatrices> bias{};  // [n_out, experts]; null: the matrix has no bias
  Activation activation = Activation::kSwiglu;
  bool is_exact = false;  // as LaunchShape::is_exact

  bool has_bias() const {
    return std::ranges::any_of(bias, [](const ggml_tensor* t) { return t != nullptr; });
  }
};

// The slots and experts of the pairs, both [1, P], or [P, 1] for one row with different experts: a
// slot must not occur twice within one of ggml's rows.
struct PairIds {
  ggml_tensor* slots = nullptr;
  ggml_tensor* experts = nullptr;  // used only with biases
};

// down * activation(gate * x, up * x), with each matrix's bias added to its product: [n_embd] for
// each pair. x: [n_embd, 1, P], or [n_embd, 1, 1] for one row.
ggml_tensor* AddProducts(ggml_context* context, ggml_cgraph* graph, const ExpertTensors& tensors,
                         ggml_tensor* x, const PairIds& ids);

// Whether the activation has a form for `is_exact`.
bool HasExactForm(Activation activation);

}  // namespace moestro
