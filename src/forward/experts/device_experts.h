// SPDX-License-Identifier: MIT
// The experts of a layer that one device computes, beside those of the CPU and of other devices. In
// a layer:
//
//   Begin(plan)    x of the rows there, experts that this device has launched
//   Bring(lease)   an expert that must be copied first: its bytes go there beside all that
//   Advance()      launches what was copied, group by group, while the next group is copied
//   Finish()       results back: [pair][n_embd]
//
// Where the dense part is on the device, too, and all experts of a layer are, rows need not come
// back: BeginThere() takes x from the StepBuffers there, and Finish() launches what adds it all up,
// without waiting:
//
//   hidden [rows][n_embd] = sum over K of weight * y, in router order, then shared, then residual
//
// Experts of one form are one launch: for P pairs of a row and an expert
//
//   up, gate   [n_embd][n_ff][slots] by slot times x [P][n_embd]  -> [P][n_ff], + bias by expert
//   join       activation(gate, up)                               -> [P][n_ff]
//   down       [n_ff][n_embd][slots] by slot                      -> [P][n_embd], + bias
//
// A launch is computed the same way however its experts got there, so equal plans give equal bits.
//
// Thread rule: the engine thread. Copies run on a thread of their own; a slot is rewritten only
// between Finish() and the next Begin(), when no launch reads it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/expert_catalog.h"
#include "core/ids.h"
#include "core/layer_plan.h"
#include "core/model_spec.h"
#include "device/backend_buffer.h"
#include "device/copier.h"
#include "device/device_biases.h"
#include "device/device_pools.h"
#include "device/devices.h"
#include "device/graph_arena.h"
#include "engine/device_options.h"
#include "forward/dense/step_buffers.h"
#include "forward/experts/device_products.h"
#include "forward/experts/expert_exec.h"
#include "residency/residency.h"  // Lease

namespace moestro {

class DeviceExperts {
 public:
  struct Shape {
    uint32_t n_embd = 0;
    uint32_t n_ff = 0;  // the largest
    Activation activation = Activation::kSwiglu;
    uint32_t most_pairs = 512;  // of a launch
    uint32_t n_used = 0;        // K
    bool has_shared = false;    // a shared expert
    uint64_t bias_bytes = 0;    // of all experts, which the device has from the start
  };
  // True if the device multiplies such experts, adds biases if there are any, and joins products
  // with that activation.
  static bool Supports(const ComputeDevice& device, const CopyForm& form, const Shape& shape);
  // What launches take beside the slots, biases included.
  static uint64_t WorkBytes(const Shape& shape);

  struct Weights {
    DevicePools pools;
    DeviceBiases biases = {};
  };
  // Catalog and device must outlive this.
  DeviceExperts(const ComputeDevice& device, const ExpertCatalog& catalog, Weights weights,
                const Shape& shape, DeviceFaults faults = {});
  ~DeviceExperts();

  // For BeginThere() with so many pairs. kNoMemory.
  Status ReserveThere(uint64_t pairs);
  static uint64_t BytesThere(const Shape& shape, uint64_t pairs);

  // `device`: what the plan calls this one; others' experts are left alone.
  struct Part {
    const LayerPlan& plan;
    uint32_t device = 0;
  };
  // BeginThere() if the rows are there, else Begin().
  Status Begin(const Part& part, const ExpertRows& rows, float* results) {
    return rows.there != nullptr ? BeginThere(part, *rows.there)
                                 : Begin(part, rows.ffn_in, results);
  }
  // ffn_in: [rows][n_embd]; results: [pair][n_embd], of which this device's pairs are written.
  // Both stay until Finish() or Abandon(), the plan, too. kDevice: then Abandon().
  Status Begin(const Part& part, const float* ffn_in, float* results);
  // From the ffn_in, shared and residual of `rows` on the device to its hidden. REQUIRES: all
  // experts and all K of each row are for this device, no launch is under way. kDevice: Abandon().
  Status BeginThere(const Part& part, const StepBuffers& rows);
  // Of an expert of the plan that is copied here: true once its bytes are on the device and its
  // lease may go.
  bool Bring(size_t index, const Lease& lease);
  // Launches the groups of copied experts of which all are there, in the plan's order. kDevice:
  // then Abandon().
  Status Advance();
  bool all_launched() const { return next_group_ == groups_.size(); }
  // Waits, but after BeginThere(). REQUIRES: all_launched(). kDevice: then Abandon().
  Status Finish();
  const DeviceInfo& info() const { return device_.info(); }
  // Waits until nothing of the layer is under way any more; its results are lost.
  void Abandon();

  // Fills a slot beside the launches; the lease stays until Wait() has said what came of it.
  struct Ticket {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  using Matrices = std::array<const std::byte*, kMatrices>;
  Ticket Fill(ExpertKey key, SlotId slot, const Matrices& matrices);
  // Fills memory from a slot that is not written, and waits. kDevice.
  Status Fetch(ExpertKey key, SlotId slot, const std::array<std::byte*, kMatrices>& to) const;
  bool Wait(const Ticket& ticket) { return copier_.Wait(ticket.first, ticket.last); }
  // One for each matrix.
  Copier::Made copies_made() const { return copier_.made(); }

 private:
  struct Pair {
    uint32_t pair;  // index of its result
    uint32_t row;
    SlotId slot;
    ExpertId expert;
  };
  // A launch whose results are not back yet.
  struct Flight {
    std::unique_ptr<GraphArena> arena;
    ggml_tensor* y = nullptr;
    std::vector<uint32_t> pairs;
  };
  // Experts [first, last) of the plan of which those that are copied here are launched together.
  struct Group {
    size_t first = 0;
    size_t last = 0;
  };
  void BeginPlan(const Part& part);
  bool is_mine(const PlannedExpert& expert) const {
    return expert.place != Place::kHost && expert.device == index_;
  }
  Status LaunchHeld();
  Status LaunchGroup(const Group& group);
  Status Launch(uint32_t form, std::span<const Pair> pairs);
  Status LaunchHere(Flight& flight, uint32_t form, std::span<const Pair> pairs);
  Status LaunchThere(Flight& flight, uint32_t form, std::span<const Pair> pairs);
  Status Collect(Flight& flight);
  Status Combine();
  ExpertTensors tensors(uint32_t form) const;

  const ComputeDevice& device_;
  const ExpertCatalog& catalog_;
  Weights weights_;
  Shape shape_;
  DeviceFaults faults_;
  Copier copier_;

  // The layer under way.
  const LayerPlan* plan_ = nullptr;
  uint32_t index_ = 0;  // what it calls this device
  const float* ffn_in_ = nullptr;
  float* results_ = nullptr;
  std::vector<Group> groups_;
  size_t next_group_ = 0;        // to be launched
  bool has_failed_ = false;      // a copy
  std::vector<Ticket> tickets_;  // [expert of the plan]: its copies; 0: not asked for
  std::vector<bool> is_there_;   // [expert of the plan]: copied

  const StepBuffers* there_ = nullptr;  // null: rows are in memory
  BackendBuffer results_there_;         // [launched pair][n_embd]
  uint32_t n_launched_ = 0;             // pairs
  std::vector<int32_t> launched_as_;    // [pair]: its place in results_there_
  GraphArena combine_;

  static constexpr size_t kFlights = 4;
  std::array<Flight, kFlights> flights_;
  size_t next_flight_ = 0;
  std::vector<float> x_;          // scratch: [pair][n_embd]
  std::vector<int32_t> slots_;    // scratch: [pair]
  std::vector<int32_t> experts_;  // scratch: [pair]
};

// REQUIRES: it is complete.
DeviceExperts::Matrices MatricesOf(const Lease& lease);

}  // namespace moestro
