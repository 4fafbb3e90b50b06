// SPDX-License-Identifier: MIT
// Runs layers whole on a device: dense part, choice of experts, experts and their sum, a few layers
// in each graph, one graph behind the other. So the host records the next graph while the device
// computes. A run has parts of one or more graphs: while the device computes a part, the host
// decides from the choices of the part before:
//
//   hidden [rows][n_embd] -> layers -> hidden; by layer router logits, slots and weights of choices
//
// The caller compares the choices with the rule (Router::AreChoices()). Layers that were chosen
// otherwise are computed again, layer by layer, from the values that GoBack() gives.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "core/ids.h"
#include "core/model_spec.h"
#include "devices/device_link.h"
#include "devices/step_buffers.h"
#include "devices/whole_layers.h"
#include "forward/dense/dense_nodes.h"
#include "forward/dense/graph_runner.h"
#include "forward/dense/step_rows.h"
#include "memory/layer_values.h"

namespace moestro {

class WholeGraph {
 public:
  // Layers of a graph, at most. On a modelled GPU four gave the most tokens a second: recording
  // overlaps computing, and submissions are few.
  static constexpr uint16_t kTogether = 4;
  // Whether the model's layers can be computed whole, the choice aside.
  static bool Supports(const ModelSpec& spec);
  // About the bytes that values of a graph take on the device.
  static uint64_t BytesFor(const ModelSpec& spec, uint32_t chunk);

  // Everything is borrowed and must outlive this.
  struct Parts {
    const ModelSpec& spec;
    StepBuffers& buffers;
    DenseNodes& nodes;
    GraphRunner& graphs;
    DeviceLink& link;
    const WholeLayers& whole;
  };
  explicit WholeGraph(const Parts& parts) : parts_(parts) {}

  // Sizes memory for graphs of up to `rows` rows. kDevice: the device does not compute some node;
  // kNoMemory.
  Status Reserve(uint32_t rows, KvType type);
  // Layers from `first` on, before `end`, that may run at a time with this many rows: whole layers,
  // and those without experts between them. 0: the first is not whole, or the rows are too many.
  uint16_t LayersFrom(LayerRange layers, size_t n_rows) const;
  // Begins a run of these layers for the step's rows. kDevice: a fault for tests.
  Status Begin(LayerRange layers, uint32_t n_rows);
  bool is_launched() const { return launched_ == run_.end; }
  // Launches the next part of the run and returns its layers while the device computes. Choices of
  // the part before the last one are overwritten, unless the rows are few. kDevice. REQUIRES:
  // !is_launched().
  Result<LayerRange> LaunchNext();
  // The reads of the choices of a part that was launched.
  std::vector<Border::Read> ReadsOf(LayerRange part) const;
  // A layer's choices, once they have been read.
  struct Choice {
    bool are_experts = false;          // the numbers
    std::span<const int32_t> numbers;  // as WholeLayers::ExpertsOf() takes them
    std::span<const float> weights;    // [rows][K]
    // [rows][n_expert], without biases; empty: of many rows, whose logits LogitsOf() reads.
    std::span<const float> logits = {};
    std::span<const float> clear = {};  // [rows]; empty: of few rows

    // Whether no two experts competed with equal scores in one of many rows.
    bool is_clear(size_t row, const RouterSpec& router) const {
      return clear[row] == static_cast<float>(std::min(router.n_used, router.n_expert - 1));
    }
  };
  Choice ChoiceOf(LayerId layer) const;
  // Reads the logits of one of many rows, [n_expert], and waits. kDevice.
  Result<std::span<const float>> LogitsOf(LayerId layer, uint32_t row) const;
  // Reads the rows as they were before the last Begin() to their regions in memory, and gives the
  // device all but hidden again. kDevice.
  Status GoBack() const;

 private:
  using LayerEnd = DenseNodes::LayerEnd;
  void Build(LayerRange layers, bool is_first, StepRows rows);
  LayerEnd BuildLayer(LayerId layer, StepRows rows, const LayerEnd& before);
  void KeepBegin(StepRows rows);
  bool has_few_rows(uint32_t n_rows) const { return n_rows <= StepBuffers::kFewRows; }
  // Regions that pass from the layer before to the run's first.
  size_t RegionsBetween() const;
  uint64_t VisitedByAll() const;
  // Whether the numbers of a layer's choices are experts, and not slots.
  bool ReadsExperts(LayerId layer) const;
  // Room for numbers of a row in kWholeSlots.
  uint32_t WidthOfNumbers(uint32_t n_rows) const {
    return has_few_rows(n_rows) ? parts_.spec.router.n_expert : parts_.spec.router.n_used;
  }
  uint16_t EndOfGraph(uint16_t first) const;
  uint16_t EndOfPart(uint16_t first) const;
  // Place of the values of a layer, or of the next one with experts, in regions of values by layer.
  // Of many rows the values of two parts have room.
  uint64_t IndexOf(LayerId layer) const;
  uint64_t row_bytes() const { return uint64_t{n_rows_} * parts_.spec.n_embd * sizeof(float); }

  const Parts parts_;
  LayerRange run_;         // the layers that were begun last
  uint16_t launched_ = 0;  // the first of them that is not launched
  uint32_t n_rows_ = 0;
  uint32_t most_rows_ = 0;
};

}  // namespace moestro
