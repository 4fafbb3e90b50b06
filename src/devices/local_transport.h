// SPDX-License-Identifier: MIT
// Launches experts on a device of this machine, form by form. For P pairs of a row and an expert:
//
//   up, gate   [n_embd][n_ff][slots] by slot times x [P][n_embd]  -> [P][n_ff], + bias by expert
//   join       activation(gate, up)                               -> [P][n_ff]
//   down       [n_ff][n_embd][slots] by slot                      -> [P][n_embd], + bias
//
// If the dense part is on the device, rows stay there. The launch of all of the device's pairs, or
// else Finish(), adds the sum of their results, without waiting:
//
//   hidden [rows][n_embd] = sum over K of weight * y, in router order, then shared, then residual
//
// Pairs of other processors are left out; the next graph adds the sum of these (kPartial).
//
// Slots of several pieces are multiplied piece by piece, in one launch.
//
// A launch does not depend on how its experts came to the device, so equal plans give equal bits.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/devices.h"
#include "core/expert_catalog.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "devices/copy_ring.h"
#include "devices/device_link.h"
#include "devices/device_pools.h"
#include "devices/step_buffers.h"
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

class LocalTransport final : public Transport {
 public:
  // Whether the device multiplies experts of the form, adds their biases and joins products with
  // their activation.
  static bool Supports(const ComputeDevice& device, const CopyForm& form, const LaunchShape& shape);
  // Bytes of launches beside the slots, biases included.
  static uint64_t WorkBytes(const LaunchShape& shape);
  // Rows whose results are added up at once, at most.
  static constexpr uint32_t kMostSummed = 1024;
  static uint64_t BytesThere(const LaunchShape& shape, uint64_t pairs);

  struct Weights {
    DevicePools pools;
    DeviceBiases biases = {};
  };
  // `weights` have slots for `forms`. The link must outlive this. spoils_results: for tests,
  // every result is a tenth too large.
  LocalTransport(DeviceLink& link, std::span<const CopyForm> forms, Weights weights,
                 const LaunchShape& shape, bool spoils_results = false);
  ~LocalTransport() override;

  const DevicePools& pools() const { return weights_.pools; }
  // The tensors of a layer's experts of a form, in a piece of its pool.
  ExpertTensors tensors(ExpertLayerId layer, uint32_t form, size_t piece) const;

  // Takes memory for BeginThere() with this number of pairs. kNoMemory.
  Status ReserveThere(uint64_t pairs);

  const DeviceInfo& info() const override { return device_.info(); }
  const LaunchShape& shape() const override { return shape_; }
  void Begin(const LayerPlan& plan, const float* ffn_in, float* results) override;
  void BeginThere(const LayerPlan& plan, const StepBuffers& rows, uint32_t pairs) override;
  Status Launch(uint32_t form, std::span<const Pair> pairs) override;
  Status Finish() override;
  void Abandon() override;
  uint64_t BytesOf(uint32_t form, Matrix matrix) const override;
  Status Write(const Target& to, std::span<const std::byte> bytes) override;
  Status Read(const Target& from, std::span<std::byte> bytes) const override;
  Result<uint64_t> BeginWrite(const Target& to, std::span<const std::byte> bytes) override;
  Status AwaitWrite(uint64_t number) override;
  bool SetCopyWay(CopyWay way) override;

 private:
  struct Place {
    ggml_tensor* tensor = nullptr;
    uint64_t offset = 0;
  };
  Place Find(const Target& target) const;
  // A launch whose results are not back yet.
  struct Flight {
    std::unique_ptr<LaunchGraphs> graphs;
    std::vector<ggml_tensor*> y;  // [part] results of the launch; empty: no launch is under way
    std::vector<uint32_t> pairs;
  };
  Status LaunchHere(Flight& flight, uint32_t form);
  Status LaunchThere(Flight& flight, uint32_t form);
  std::vector<uint32_t> KeyOf(uint32_t form, uint32_t first) const;
  void AddParts(LaunchGraph& graph, uint32_t form, ggml_tensor* x, ggml_tensor* numbers) const;
  Status Collect(std::span<Flight> flights);
  struct RowRange {
    uint32_t first = 0;
    uint32_t n = 0;
  };
  // Results of a row that are added up, at most: those of one row are known.
  uint32_t SumWidth() const { return plan_->n_rows == 1 ? n_mine_ : plan_->n_used; }
  void AddSum(LaunchGraph& graph, ggml_tensor* results, const RowRange& of_rows) const;
  void AddSumInputs(const LaunchGraph& graph, const RowRange& of_rows, Border& border);
  Status Combine();
  Status CombineRows(const RowRange& of_rows);

  DeviceLink& link_;
  const ComputeDevice& device_;
  size_t n_forms_;
  Weights weights_;
  LaunchShape shape_;
  bool spoils_results_;
  CopyWay copy_way_ = CopyWay::kBlocking;
  std::unique_ptr<CopyRing> ring_;  // null: kBlocking

  // State of the layer under way.
  const LayerPlan* plan_ = nullptr;
  const float* ffn_in_ = nullptr;
  float* results_ = nullptr;
  const StepBuffers* there_ = nullptr;  // null: rows are in memory
  BackendBuffer results_there_;         // [launched pair][n_embd]
  uint32_t n_mine_ = 0;                 // pairs of the device
  uint32_t n_launched_ = 0;             // of these so far
  std::vector<int32_t> launched_as_;    // [pair]: the pair's place in results_there_; -1: not mine
  std::vector<int32_t> places_;         // [rows * SumWidth()]: launched_as_ in router order
  std::vector<float> weights_of_sum_;   // [rows * SumWidth()], 0 for pairs of other processors
  bool is_summed_ = false;              // the launch of all pairs has added up
  LaunchGraphs combine_;

  static constexpr size_t kFlights = 4;
  std::array<Flight, kFlights> flights_;
  size_t next_flight_ = 0;
  std::vector<float> x_;  // scratch: [pair][n_embd]
  PairLists lists_;       // lists of the last launch
};

}  // namespace moestro
