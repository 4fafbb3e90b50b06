// SPDX-License-Identifier: MIT
// Layers that a device computes whole: the choice of experts is made there, too, so no row leaves
// the device between layers. As nodes of a graph, for E experts of which K are used:
//
//   logits [rows][E] -> probabilities -> experts [rows][K], the largest first
//   slots   [rows][K] = table of the layer [E], by expert
//   weights [rows][K]: probabilities of the chosen, renormalised and scaled as the model has it
//   y [rows][K][n_embd] = weight * down(activation(gate x, up x)), each by slot
//
// Few rows use no table where the experts lie one behind the other in their order, as with all of
// the model on the device: then a view of the slots is the layer's own tensor.
//
// The order of steps is that of decide/layer/router.h. Which experts come first among equal ones a
// device does not promise. So few rows come with their logits, by which the caller compares the
// choice with the rule's (Router::AreChoices()), and many rows come with the number of differences
// between neighbours in the order, K if no two are equal.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "compute/backend_buffer.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "decide/devices/device_tier.h"
#include "devices/device_link.h"
#include "devices/local_transport.h"

namespace moestro {

class WholeLayers {
 public:
  // Values that a layer adds to its router's, [E], and that are loaded before the first Follow();
  // empty: nothing.
  struct RouterBiases {
    std::span<const float> logits;
    std::span<const float> selection;
  };
  struct Parts {
    DeviceLink& link;
    const LocalTransport& transport;
    const RouterSpec& router;
    std::vector<RouterBiases> biases;                // [layer with experts]
    std::function<uint32_t(ExpertLayerId)> form_of;  // of a layer's experts
    // For tests, as in DeviceFaults.
    std::function<bool()> fails_launch = {};
    std::function<bool()> mistakes_choice = {};
  };
  // Whether nodes of ggml choose as the router does.
  static bool Supports(const RouterSpec& router);
  // Takes memory for tables and biases. The link, the transport and the router must outlive this.
  // kNoMemory, kDevice.
  static Result<std::unique_ptr<WholeLayers>> Create(Parts parts);
  ~WholeLayers();  // waits until no launch reads the tables
  WholeLayers(const WholeLayers&) = delete;
  WholeLayers& operator=(const WholeLayers&) = delete;

  // Reads the tier's slots and writes the tables, if slots have changed. kDevice. REQUIRES: no
  // launch is under way.
  Status Follow(const DeviceTier& tier);
  // Call before layers are launched. kDevice: a fault for tests.
  Status BeginLaunch() const;
  // For tests: whether the choices of the last run count as wrong.
  bool mistakes_choice() const { return parts_.mistakes_choice && parts_.mistakes_choice(); }
  // Whether the device computes the layer whole: as the tier has it, with all slots in one tensor.
  bool has(ExpertLayerId layer) const { return layers_[layer.value].is_whole; }
  // Whether all layers are.
  bool has_all() const { return has_all_; }
  // Changes with the slots of layers, on which nodes depend.
  uint32_t version() const { return version_; }
  // Whether the layer's experts lie one behind the other, so that Choice::slots of few rows is
  // null.
  bool lie_in_order(ExpertLayerId layer) const { return layers_[layer.value].lies_in_order; }
  // The experts that were chosen, [rows * K], by a choice's numbers: those of `order`, of which
  // each row has n_expert, if they are experts, else those of `slots`, of which each row has K.
  // False: a number is not of the layer.
  bool ExpertsOf(ExpertLayerId id, std::span<const int32_t> numbers, bool are_experts,
                 std::vector<ExpertId>& experts) const;

  struct Choice {
    ggml_tensor* experts = nullptr;  // I32 [K, rows], a view of `order`
    ggml_tensor* order = nullptr;    // I32 [E, rows], contiguous
    ggml_tensor* slots =
        nullptr;  // I32 [1, K, rows], contiguous; null: few rows, whose experts lie in order
    ggml_tensor* weights = nullptr;  // F32 [1, K, rows]
    ggml_tensor* clear = nullptr;    // F32 [1, rows]: neighbours that differ; null: not computed
  };
  // Nodes for logits F32 [E, rows].
  Choice AddChoice(ggml_context* context, ExpertLayerId id, ggml_tensor* logits,
                   bool with_clear) const;
  // Nodes for x F32 [n_embd, rows] -> y F32 [n_embd, K, rows], weighted.
  ggml_tensor* AddExperts(ggml_context* context, ggml_cgraph* graph, ExpertLayerId id,
                          ggml_tensor* x, const Choice& choice) const;

 private:
  struct Layer {
    bool is_whole = false;
    uint32_t form = 0;
    size_t piece = 0;
    std::vector<int32_t> slots;  // [expert], within the piece
    bool lies_in_order = false;
    uint64_t table_at = 0;  // offsets in memory_
    uint64_t logits_at = 0;
    uint64_t selection_at = 0;
  };
  explicit WholeLayers(Parts parts) : parts_(std::move(parts)) {}
  Status WriteBiases();
  Status Take(ExpertLayerId id, std::span<const SlotId> slots);
  bool LiesInOrder(const Layer& layer) const;
  ExpertTensors TensorsByExpert(ggml_context* context, ExpertLayerId id) const;
  ggml_tensor* Values(ggml_context* context, ggml_type type, uint64_t at) const;
  ggml_tensor* AddClear(ggml_context* context, ggml_tensor* logits, ggml_tensor* selection) const;

  Parts parts_;
  BackendBuffer memory_;
  std::vector<Layer> layers_;
  bool has_all_ = false;
  uint32_t version_ = 0;
  std::optional<uint64_t> followed_;  // the tier's version
};

}  // namespace moestro
