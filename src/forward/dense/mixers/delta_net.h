// SPDX-License-Identifier: MIT
// A gated delta net: the matrices of its heads, a custom node, and the nodes of a layer around it.
#pragma once

#include <ggml.h>

#include <array>
#include <atomic>
#include <cstddef>
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

// A row's result depends on the row's own values and on earlier rows of the sequence, to the bit:
// not on other rows of the step, nor on the chunks of a prompt or the number of threads. Source: S.
// Yang, J. Kautz, A. Hatamizadeh, "Gated Delta Networks", 2024.

// The columns where the values of heads begin in a row of a projection. A key head and the value
// heads that use it have a number h; value heads of the same h are counted by i.
struct HeadColumns {
  uint32_t source = 0;  // number of the node's input
  uint32_t begin = 0;
  uint32_t of_h = 0;  // columns from one h to the next
  uint32_t of_i = 0;
  uint32_t at(uint32_t h, uint32_t i) const { return begin + h * of_h + i * of_i; }
};

// Columns of a model's projections.
struct DeltaNetColumns {
  HeadColumns query, key, value, gate;  // head_dim values each
  // One value per value head; for decays one per value of a key if each decays on its own.
  HeadColumns rate, decay;
};

class DeltaNet {
 public:
  // The node reads `stop` before each head. After a stop the node's results are undefined. null: no
  // stop is requested. kNoMemory.
  static Result<std::unique_ptr<DeltaNet>> Create(const DeltaNetSpec& spec, float eps,
                                                  uint32_t threads, const StateKernel& kernel,
                                                  StopSignal* stop = nullptr);
  uint64_t thread_bytes() const { return thread_bytes_; }  // bytes of each thread

  static constexpr size_t kMostInputs = 6;
  using Inputs = std::array<ggml_tensor*, kMostInputs>;  // F32 [n, rows]; null behind the last
  struct Layer {
    DeltaNetColumns columns;
    // [channels][n_taps], for queries, keys and values.
    std::array<const float*, 3> conv{};
    const float* dt = nullptr;    // [n_decays]
    const float* a = nullptr;     // [n_head_v]
    const float* norm = nullptr;  // [head_dim]
    uint32_t layer = 0;           // layer of the states
  };
  // Adds the node: -> [n_values, rows]. A graph holds one such node.
  ggml_tensor* Node(ggml_context* ctx, Inputs inputs);
  // Sets the layer and the rows of the next run of a graph with the node. `states` must live until
  // the node has run.
  void Bind(const Layer& layer, std::span<const RowState> rows, const StateStore& states);

 private:
  // The buffers of one thread, for up to kTokens rows.
  struct Scratch {
    float* queries = nullptr;  // [kTokens][head_dim]
    float* keys = nullptr;
    float* values = nullptr;
    float* decays = nullptr;  // [kTokens], or [kTokens][head_dim]
    float* rates = nullptr;
  };
  static constexpr uint32_t kTokens = 32;

  DeltaNet(const DeltaNetSpec& spec, float eps, const StateKernel& kernel, StopSignal* stop)
      : spec_(spec),
        eps_(eps),
        key_eps_(spec.key_eps > 0.0F ? spec.key_eps : eps),
        kernel_(kernel),
        stop_(stop) {}
  Status Allocate(uint32_t threads);
  bool ShallStop() const { return stop_ != nullptr && stop_->is_requested(); }
  uint32_t heads_together() const { return spec_.n_head_v / spec_.n_head_k; }
  // The number of a value head among all value heads.
  uint32_t value_head(uint32_t h, uint32_t i) const {
    return spec_.sharing == HeadSharing::kConsecutive ? h * heads_together() + i
                                                      : i * spec_.n_head_k + h;
  }
  // `result`: the node.
  static StateKernel::Rows RowsOf(const ggml_tensor* result, const HeadColumns& columns, uint32_t h,
                                  uint32_t i, uint32_t first_row);
  void Work(ggml_tensor* result, Scratch& s);
  void Mix(const StateRun& run, uint32_t h, ggml_tensor* result, Scratch& s) const;
  void MixValueHead(const StateRun& run, uint32_t h, uint32_t i, ggml_tensor* result,
                    Scratch& s) const;
  // The three convolved parts, in the order of their states.
  enum class Projection : uint8_t { kQueries, kKeys, kValues };
  void Convolve(const StateRun& run, const StateKernel::Rows& x, Projection projection,
                uint32_t channel, float* y) const;
  void Weigh(const StateRun& run, uint32_t h, uint32_t i, const ggml_tensor* result,
             Scratch& s) const;

  DeltaNetSpec spec_;
  float eps_;
  float key_eps_;
  StateKernel kernel_;
  StopSignal* stop_;
  uint64_t thread_bytes_ = 0;
  HostMemory memory_;
  std::vector<Scratch> scratch_;  // [thread]
  // Members that Bind() sets.
  Layer layer_;
  const StateStore* states_ = nullptr;
  StateRows rows_;
  std::atomic<uint32_t> next_task_{0};  // (sequence, key head)
};

// A gated delta net over the rows of a sequence: each value head has a matrix that every row
// changes, instead of keys and values of all positions.

// Computes on the CPU. kNoMemory.
Result<std::unique_ptr<Mixer>> MakeDeltaNetMixer(const MixerParts& parts, const DeltaNetSpec& spec);

}  // namespace moestro
