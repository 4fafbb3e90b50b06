// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/delta_net_mixer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "device/state_kernel.h"
#include "forward/dense/blocks.h"
#include "forward/dense/delta_net.h"

namespace moestro {
namespace {

class DeltaNetMixer final : public Mixer {
 public:
  DeltaNetMixer(const MixerParts& parts, const DeltaNetSpec& spec, std::unique_ptr<DeltaNet> net)
      : spec_(spec), rms_eps_(parts.spec.rms_eps), states_(&parts.states), net_(std::move(net)) {}

  ggml_tensor* Build(const LayerTensors& w, const MixerGraph& in) override {
    ggml_context* ctx = in.ctx;
    ggml_tensor* x = RmsNorm(ctx, in.x, w.attn_norm, w.attn_norm_b, rms_eps_);
    // x [n_embd, rows] -> queries, keys, values and gates of all heads, and two numbers per value
    // head.
    const bool is_kimi = spec_.decays_values;
    DeltaNet::Inputs inputs{};
    is_kimi ? ProjectKimi(ctx, w, x, inputs) : Project(ctx, w, x, inputs);
    // mixed [n_values, rows], back to [n_embd, rows].
    ggml_tensor* mixed = net_->Node(ctx, inputs);
    ggml_tensor* out = is_kimi ? w.attn_out : w.state_out;
    return Linear(ctx, out, mixed, nullptr);
  }

  void Bind(const LayerTensors& w, const MixerRows& rows) override {
    const bool is_kimi = spec_.decays_values;
    net_->Bind({.columns = is_kimi ? KimiColumns() : ColumnsOf(w),
                .conv = ConvolutionOf(w),
                .dt = FloatsOf(w.state_dt_b),
                .a = FloatsOf(is_kimi ? w.state_a_column : w.state_a),
                .norm = FloatsOf(w.state_norm),
                .layer = rows.layer.value},
               rows.states, *states_);
  }

  uint64_t thread_bytes() const override { return net_->thread_bytes(); }

 private:
  static void Project(ggml_context* ctx, const LayerTensors& w, ggml_tensor* x,
                      std::span<ggml_tensor*> inputs) {
    std::array<ggml_tensor*, DeltaNet::kMostInputs> weights{};
    size_t n = 0;
    for (ggml_tensor* weight :
         {w.state_in, w.delta_qkv, w.delta_gate, w.state_beta_alpha, w.state_beta, w.state_alpha}) {
      if (weight != nullptr) weights[n++] = weight;
    }
    Linears(ctx, std::span(weights).first(n), x, {}, inputs.first(n));
  }

  // Projects x; gates and decays by way of head_dim values.
  static void ProjectKimi(ggml_context* ctx, const LayerTensors& w, ggml_tensor* x,
                          std::span<ggml_tensor*> inputs) {
    const std::array weights = {w.attn_q, w.attn_k, w.attn_v, w.state_beta};
    std::array<ggml_tensor*, 4> products{};
    Linears(ctx, weights, x, {}, products);
    ggml_tensor* gate = Linear(ctx, w.kimi_gate_b, Linear(ctx, w.kimi_gate_a, x, nullptr), nullptr);
    ggml_tensor* decay =
        Linear(ctx, w.kimi_decay_b, Linear(ctx, w.kimi_decay_a, x, nullptr), nullptr);
    inputs[0] = products[0];
    inputs[1] = products[1];
    inputs[2] = products[2];
    inputs[3] = gate;
    inputs[4] = products[3];
    inputs[5] = decay;
  }

  // Columns of heads in the products of ProjectKimi().
  DeltaNetColumns KimiColumns() const {
    const uint32_t dim = spec_.head_dim;
    return {.query = {.source = 0, .of_h = dim},
            .key = {.source = 1, .of_h = dim},
            .value = {.source = 2, .of_h = dim},
            .gate = {.source = 3, .of_h = dim},
            .rate = {.source = 4, .of_h = 1},
            .decay = {.source = 5, .of_h = dim}};
  }

  std::array<const float*, 3> ConvolutionOf(const LayerTensors& w) const {
    if (spec_.decays_values) {
      return {FloatsOf(w.kimi_conv_q), FloatsOf(w.kimi_conv_k), FloatsOf(w.kimi_conv_v)};
    }
    const float* all = FloatsOf(w.state_conv);
    const size_t keys = size_t{spec_.n_keys()} * spec_.n_taps;
    return {all, all + keys, all + 2 * keys};
  }

  // Columns of heads in the products of Project().
  DeltaNetColumns ColumnsOf(const LayerTensors& w) const {
    const uint32_t dim = spec_.head_dim;
    const uint32_t together = spec_.n_head_v / spec_.n_head_k;
    // Strides to the next h and to the next i, with value heads one after the other.
    const bool in_turn = spec_.sharing == HeadSharing::kInTurn;
    const uint32_t of_h = in_turn ? 1 : together;
    const uint32_t of_i = in_turn ? spec_.n_head_k : 1;
    DeltaNetColumns at;
    uint32_t source = 0;
    if (w.state_in != nullptr) {  // per key head: query, key, values, gates
      const uint32_t all = 2 * dim + 2 * together * dim;
      at.query = {.source = 0, .begin = 0, .of_h = all};
      at.key = {.source = 0, .begin = dim, .of_h = all};
      at.value = {.source = 0, .begin = 2 * dim, .of_h = all, .of_i = dim};
      at.gate = {.source = 0, .begin = 2 * dim + together * dim, .of_h = all, .of_i = dim};
      source = 1;
    } else {
      at.query = {.source = 0, .begin = 0, .of_h = dim};
      at.key = {.source = 0, .begin = spec_.n_keys(), .of_h = dim};
      at.value = {.source = 0, .begin = 2 * spec_.n_keys(), .of_h = of_h * dim, .of_i = of_i * dim};
      at.gate = {.source = 1, .begin = 0, .of_h = of_h * dim, .of_i = of_i * dim};
      source = 2;
    }
    if (w.state_beta_alpha != nullptr) {  // per key head: rates, decays
      at.rate = {.source = source, .begin = 0, .of_h = 2 * together, .of_i = 1};
      at.decay = {.source = source, .begin = together, .of_h = 2 * together, .of_i = 1};
    } else {
      at.rate = {.source = source, .begin = 0, .of_h = of_h, .of_i = of_i};
      at.decay = {.source = source + 1, .begin = 0, .of_h = of_h, .of_i = of_i};
    }
    return at;
  }

  DeltaNetSpec spec_;
  float rms_eps_;
  const StateStore* states_;
  std::unique_ptr<DeltaNet> net_;
};

}  // namespace

Result<std::unique_ptr<Mixer>> MakeDeltaNetMixer(const MixerParts& parts,
                                                 const DeltaNetSpec& spec) {
  TRY(auto net, DeltaNet::Create(spec, parts.spec.rms_eps, parts.cpu.threads(),
                                 StateKernel::ForThisMachine(), parts.stop));
  return std::make_unique<DeltaNetMixer>(parts, spec, std::move(net));
}

}  // namespace moestro
