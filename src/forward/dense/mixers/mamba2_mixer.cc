// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/mamba2_mixer.h"

#include <utility>

#include "device/state_kernel.h"
#include "forward/dense/blocks.h"
#include "forward/dense/causal_conv.h"
#include "forward/dense/mamba2_heads.h"

namespace moestro {
namespace {

class Mamba2Mixer final : public Mixer {
 public:
  Mamba2Mixer(const MixerParts& parts, const Mamba2Spec& spec, std::unique_ptr<Mamba2Heads> heads)
      : spec_(spec),
        rms_eps_(parts.spec.rms_eps),
        states_(&parts.states),
        conv_(spec.n_convolved(), spec.n_taps, true, StateKernel::ForThisMachine(), parts.stop),
        heads_(std::move(heads)) {}

  ggml_tensor* Build(const LayerTensors& w, const MixerGraph& in) override {
    ggml_context* ctx = in.ctx;
    const int64_t n_rows = in.x->ne[1];
    ggml_tensor* x = RmsNorm(ctx, in.x, w.attn_norm, w.attn_norm_b, rms_eps_);
    // x [n_embd, rows] -> gates, values, keys, queries, steps; the middle three are convolved.
    ggml_tensor* projected = Linear(ctx, w.state_in, x, nullptr);
    ggml_tensor* mixed = heads_->Node(ctx, projected, conv_.Node(ctx, projected));
    // mixed [n_inner, rows], normed by groups; back to [n_embd, rows].
    mixed = ggml_reshape_3d(ctx, mixed, spec_.n_inner() / spec_.n_group, spec_.n_group, n_rows);
    mixed = RmsNorm(ctx, mixed, w.mamba_norm, nullptr, rms_eps_);
    mixed = ggml_reshape_2d(ctx, mixed, spec_.n_inner(), n_rows);
    return Linear(ctx, w.state_out, mixed, nullptr);
  }

  void Bind(const LayerTensors& w, const MixerRows& rows) override {
    conv_.Bind({.weights = FloatsOf(w.state_conv),
                .bias = FloatsOf(w.mamba_conv_b),
                .first = spec_.n_inner(),
                .layer = rows.layer.value},
               rows.states, *states_);
    heads_->Bind({.dt = FloatsOf(w.state_dt_b),
                  .a = FloatsOf(w.state_a_column),
                  .d = FloatsOf(w.mamba_d),
                  .layer = rows.layer.value},
                 rows.states, *states_);
  }

  uint64_t thread_bytes() const override { return heads_->thread_bytes(); }

 private:
  Mamba2Spec spec_;
  float rms_eps_;
  const StateStore* states_;
  CausalConv conv_;
  std::unique_ptr<Mamba2Heads> heads_;
};

}  // namespace

Result<std::unique_ptr<Mixer>> MakeMamba2Mixer(const MixerParts& parts, const Mamba2Spec& spec) {
  TRY(auto heads,
      Mamba2Heads::Create(spec, parts.cpu.threads(), StateKernel::ForThisMachine(), parts.stop));
  return std::make_unique<Mamba2Mixer>(parts, spec, std::move(heads));
}

}  // namespace moestro
