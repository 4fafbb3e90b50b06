// SPDX-License-Identifier: MIT
// Launches experts on a device of this machine, form by form. For P pairs of a row and an expert:
//
//   up, gate   [n_embd][n_ff][slots] by slot times x [P][n_embd]  -> [P][n_ff], + bias by expert
//   join       activation(gate, up)                               -> [P][n_ff]
//   down       [n_ff][n_embd][slots] by slot                      -> [P][n_embd], + bias
//
// If the dense part is on the device, rows stay there. The launch of all of a layer's pairs, or
// else Finish(), adds the sum of all results, without waiting:
//
//   hidden [rows][n_embd] = sum over K of weight * y, in router order, then shared, then residual
//
// Slots of several pieces are multiplied piece by piece, in one launch.
//
// A launch does not depend on how its experts came to the device, so equal plans give equal bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "compute/devices.h"
#include "core/expert_catalog.h"
#include "core/layer_plan.h"
#include "devices/device_pools.h"
#include "devices/launch.h"
#include "devices/step_buffers.h"
#include "devices/transport.h"

namespace moestro {

class LocalTransport final : public Transport {
 public:
  // Whether the device multiplies experts of the form, adds their biases and joins products with
  // their activation.
  static bool Supports(const ComputeDevice& device, const CopyForm& form, const LaunchShape& shape);
  // Bytes of launches beside the slots, biases included.
  static uint64_t WorkBytes(const LaunchShape& shape);
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

  // Takes memory for BeginThere() with this number of pairs. kNoMemory.
  Status ReserveThere(uint64_t pairs);

  const DeviceInfo& info() const override { return device_.info(); }
  const LaunchShape& shape() const override { return shape_; }
  void Begin(const LayerPlan& plan, const float* ffn_in, float* results) override;
  void BeginThere(const LayerPlan& plan, const StepBuffers& rows) override;
  Status Launch(uint32_t form, std::span<const Pair> pairs) override;
  Status Finish() override;
  void Abandon() override;
  uint64_t BytesOf(uint32_t form, Matrix matrix) const override;
  Status Write(const Target& to, std::span<const std::byte> bytes) override;
  Status Read(const Target& from, std::span<std::byte> bytes) const override;

 private:
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
  void AddSum(LaunchGraph& graph, ggml_tensor* results) const;
  void AddSumInputs(const LaunchGraph& graph, Border& border);
  Status Combine();
  ExpertTensors tensors(uint32_t form, size_t piece) const;

  DeviceLink& link_;
  const ComputeDevice& device_;
  size_t n_forms_;
  Weights weights_;
  LaunchShape shape_;
  bool spoils_results_;

  // State of the layer under way.
  const LayerPlan* plan_ = nullptr;
  const float* ffn_in_ = nullptr;
  float* results_ = nullptr;
  const StepBuffers* there_ = nullptr;  // null: rows are in memory
  BackendBuffer results_there_;         // [launched pair][n_embd]
  uint32_t n_launched_ = 0;             // pairs launched so far
  std::vector<int32_t> launched_as_;    // [pair]: the pair's place in results_there_
  std::vector<int32_t> places_;         // [rows * K]: launched_as_ in router order
  bool is_summed_ = false;              // the launch of all pairs has added up
  LaunchGraphs combine_;

  static constexpr size_t kFlights = 4;
  std::array<Flight, kFlights> flights_;
  size_t next_flight_ = 0;
  std::vector<float> x_;  // scratch: [pair][n_embd]
  PairLists lists_;       // lists of the last launch
};

}  // namespace moestro
