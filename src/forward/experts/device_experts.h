// SPDX-License-Identifier: MIT
// The experts of a layer that a device computes, beside those of the CPU. In a layer:
//
//   Begin(plan)    x of the rows there, experts that the device has launched
//   Bring(lease)   an expert that must be copied first: its bytes go there beside all that
//   Advance()      once the last copy has landed, those are launched, too
//   Finish()       results back: [pair][n_embd]
//
// Experts of one form are one launch: for P pairs of a row and an expert
//
//   up, gate   [n_embd][n_ff][slots] by slot times x [P][n_embd]  -> [P][n_ff]
//   join       activation(gate, up)                               -> [P][n_ff]
//   down       [n_ff][n_embd][slots] by slot                      -> [P][n_embd]
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
#include "device/copier.h"
#include "device/device_pools.h"
#include "device/devices.h"
#include "device/graph_arena.h"
#include "residency/residency.h"  // Lease

namespace moestro {

// For tests: what goes wrong on the device. Empty: nothing.
struct DeviceFaults {
  std::function<bool()> fails_copy;    // asked before each copy, on the copier's thread
  std::function<bool()> fails_launch;  // asked before each launch
  bool spoils_results = false;         // every result is a tenth too large
};

class DeviceExperts {
 public:
  struct Shape {
    uint32_t n_embd = 0;
    uint32_t n_ff = 0;  // the largest
    Activation activation = Activation::kSwiglu;
    uint32_t most_pairs = 512;  // of a launch
  };
  // True if the device multiplies such experts and joins them with that activation.
  static bool Supports(const ComputeDevice& device, const CopyForm& form, const Shape& shape);
  // What launches take beside the slots.
  static uint64_t WorkBytes(const Shape& shape);

  // Catalog and device must outlive this.
  DeviceExperts(const ComputeDevice& device, const ExpertCatalog& catalog, DevicePools pools,
                const Shape& shape, DeviceFaults faults = {});
  ~DeviceExperts();

  // ffn_in: [rows][n_embd]; results: [pair][n_embd], of which the device's pairs are written.
  // Both stay until Finish() or Abandon(). kDevice: then Abandon().
  Status Begin(const LayerPlan& plan, const float* ffn_in, float* results);
  // Of a copied expert of the plan: true once its bytes are on the device and its lease may go.
  bool Bring(size_t index, const Lease& lease);
  // Launches what was copied when all of it is there. kDevice: then Abandon().
  Status Advance();
  bool all_launched() const { return n_brought_ == n_copied_ && has_launched_copied_; }
  // Waits. REQUIRES: all_launched(). kDevice: then Abandon().
  Status Finish();
  // Waits until nothing of the layer is under way any more; its results are lost.
  void Abandon();

  // Fills a slot beside the launches; the lease stays until Wait() has said what came of it.
  struct Ticket {
    uint64_t first = 0;
    uint64_t last = 0;
  };
  using Matrices = std::array<const std::byte*, kMatrices>;
  Ticket Fill(ExpertKey key, SlotId slot, const Matrices& matrices);
  bool Wait(const Ticket& ticket) { return copier_.Wait(ticket.first, ticket.last); }
  // One for each matrix.
  Copier::Made copies_made() const { return copier_.made(); }

 private:
  struct Pair {
    uint32_t pair;  // index of its result
    uint32_t row;
    SlotId slot;
  };
  // A launch whose results are not back yet.
  struct Flight {
    std::unique_ptr<GraphArena> arena;
    ggml_tensor* y = nullptr;
    std::vector<uint32_t> pairs;
  };
  Status LaunchAll(Place place);
  Status Launch(uint32_t form, std::span<const Pair> pairs);
  Status Collect(Flight& flight);

  const ComputeDevice& device_;
  const ExpertCatalog& catalog_;
  DevicePools pools_;
  Shape shape_;
  DeviceFaults faults_;
  Copier copier_;

  // The layer under way.
  const LayerPlan* plan_ = nullptr;
  const float* ffn_in_ = nullptr;
  float* results_ = nullptr;
  size_t n_copied_ = 0;
  size_t n_brought_ = 0;
  bool has_launched_copied_ = true;
  bool has_failed_ = false;      // a copy
  std::vector<Ticket> tickets_;  // [expert of the plan]: its copies; 0: not asked for

  static constexpr size_t kFlights = 4;
  std::array<Flight, kFlights> flights_;
  size_t next_flight_ = 0;
  std::vector<float> x_;        // scratch: [pair][n_embd]
  std::vector<int32_t> slots_;  // scratch: [pair]
};

// REQUIRES: it is complete.
DeviceExperts::Matrices MatricesOf(const Lease& lease);

}  // namespace moestro
