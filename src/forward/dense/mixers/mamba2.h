// SPDX-License-Identifier: MIT
// Mamba-2: the matrices of its heads, a custom node, and the nodes of a layer around it.
//
// Thread rule: Node(), Bind() and the graph on the engine thread; the node itself runs on all
// threads of the team.
#pragma once

#include <ggml.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/host_memory.h"
#include "compute/state_kernel.h"
#include "core/model_spec.h"
#include "forward/dense/mixers/mixer.h"
#include "forward/dense/step_rows.h"
#include "memory/layer_values.h"

namespace moestro {

// The heads of Mamba-2 on the CPU: each row changes the matrix of each head, and the head's result
// is gated. A custom node on ggml's threads. A row's result depends on the row's own values and on
// earlier rows of the sequence, to the bit. Source: T. Dao, A. Gu, "Transformers are SSMs", 2024.

class Mamba2Heads {
 public:
  // The node reads `stop` between heads. After a stop the node's results are undefined. null: no
  // stop is requested. kNoMemory.
  static Result<std::unique_ptr<Mamba2Heads>> Create(const Mamba2Spec& spec, uint32_t threads,
                                                     const StateKernel& kernel, StopSignal* stop);
  uint64_t thread_bytes() const { return kTokens * 2 * sizeof(float); }  // bytes of each thread

  struct Layer {
    const float* dt = nullptr;  // [n_head]
    const float* a = nullptr;   // [n_head]
    const float* d = nullptr;   // [n_head]
    // Layer of the states: the convolution's inputs, then the heads' matrices.
    uint32_t layer = 0;
  };
  // Adds the node: projected F32 [n_projected, rows], of which gates and steps are read, and
  // convolved [n_convolved, rows] -> [n_inner, rows]. A graph holds one such node.
  ggml_tensor* Node(ggml_context* ctx, ggml_tensor* projected, ggml_tensor* convolved);
  // Sets the layer and the rows of the next run of a graph with the node. `states` must live until
  // the node has run.
  void Bind(const Layer& layer, std::span<const RowState> rows, const StateStore& states);

 private:
  // The buffers of one thread, for up to kTokens rows.
  struct Scratch {
    float* decays = nullptr;
    float* steps = nullptr;
  };
  static constexpr uint32_t kTokens = 64;

  Mamba2Heads(const Mamba2Spec& spec, const StateKernel& kernel, StopSignal* stop)
      : spec_(spec), kernel_(kernel), stop_(stop) {}
  void Work(ggml_tensor* result, const Scratch& s);
  void Mix(const StateRun& run, uint32_t head, ggml_tensor* result, const Scratch& s) const;

  Mamba2Spec spec_;
  StateKernel kernel_;
  StopSignal* stop_;
  HostMemory memory_;
  std::vector<Scratch> scratch_;  // [thread]
  // Members that Bind() sets.
  Layer layer_;
  const StateStore* states_ = nullptr;
  StateRows rows_;
  std::atomic<uint32_t> next_task_{0};  // (sequence, head)
};

// Mamba-2 over the rows of a sequence: each head has a matrix that every row changes, instead of
// keys and values of all positions.

// Computes on the CPU. kNoMemory.
Result<std::unique_ptr<Mixer>> MakeMamba2Mixer(const MixerParts& parts, const Mamba2Spec& spec);

}  // namespace moestro
