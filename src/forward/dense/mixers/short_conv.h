// SPDX-License-Identifier: MIT
// A short convolution over the rows of a sequence: a custom node, and the nodes of a layer around
// it.
//
// Thread rule: Node(), Bind() and the graph on the engine thread; the node itself runs on all
// threads of the team.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "base/work_limit.h"
#include "compute/state_kernel.h"
#include "core/model_spec.h"
#include "forward/dense/mixers/mixer.h"
#include "forward/dense/step_rows.h"
#include "memory/layer_values.h"

namespace moestro {

// A short convolution of each channel over the last rows of a sequence, on the CPU: a custom node
// on ggml's threads. A row's result depends on the row's own values and on earlier rows of the
// sequence, to the bit.

class CausalConv {
 public:
  // The node reads `stop` between channels. After a stop the node's results are undefined. null: no
  // stop is requested. REQUIRES: n_channels is a multiple of 16.
  CausalConv(uint32_t n_channels, uint32_t n_taps, bool has_silu, const StateKernel& kernel,
             StopSignal* stop)
      : n_channels_(n_channels),
        n_taps_(n_taps),
        has_silu_(has_silu),
        kernel_(kernel),
        stop_(stop) {}

  struct Layer {
    const float* weights = nullptr;  // [n_channels][n_taps]
    const float* bias = nullptr;     // [n_channels]; null: zeros
    uint32_t first = 0;              // column of x where the channels begin
    // Layer of the states, which begin with [n_taps - 1][n_channels].
    uint32_t layer = 0;
  };
  // Adds the node: x F32 [first + n_channels or more, rows] -> [n_channels, rows]. A graph holds
  // one such node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* x);
  // Sets the layer and the rows of the next run of a graph with the node. `states` must live until
  // the node has run.
  void Bind(const Layer& layer, std::span<const RowState> rows, const StateStore& states);

 private:
  void Work(ggml_tensor* result);
  void Convolve(const StateRun& run, uint32_t channel, ggml_tensor* result) const;

  uint32_t n_channels_;
  uint32_t n_taps_;
  bool has_silu_;
  StateKernel kernel_;
  StopSignal* stop_;
  // Members that Bind() sets.
  Layer layer_;
  const StateStore* states_ = nullptr;
  StateRows rows_;
  std::atomic<uint32_t> next_task_{0};  // (sequence, channels)
};

// A short convolution over the rows of a sequence, between two gates.

// Computes on the CPU.
std::unique_ptr<Mixer> MakeShortConvMixer(const MixerParts& parts, const ShortConvSpec& spec);

}  // namespace moestro
