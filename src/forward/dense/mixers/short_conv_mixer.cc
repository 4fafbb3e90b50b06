// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/short_conv_mixer.h"

#include "device/state_kernel.h"
#include "forward/dense/blocks.h"
#include "forward/dense/causal_conv.h"

namespace moestro {
namespace {

class ShortConvMixer final : public Mixer {
 public:
  ShortConvMixer(const MixerParts& parts, const ShortConvSpec& spec)
      : n_channels_(spec.n_channels),
        rms_eps_(parts.spec.rms_eps),
        states_(&parts.states),
        conv_(spec.n_channels, spec.n_taps, false, StateKernel::ForThisMachine(), parts.stop) {}

  ggml_tensor* Build(const LayerTensors& w, const MixerGraph& in) override {
    ggml_context* ctx = in.ctx;
    ggml_tensor* x = RmsNorm(ctx, in.x, w.attn_norm, w.attn_norm_b, rms_eps_);
    // x [n_embd, rows] -> b, c, x [n_channels, rows] each; y = c * conv(b * x).
    ggml_tensor* projected = Linear(ctx, w.short_in, x, nullptr);
    ggml_tensor* taken = ggml_mul(ctx, Part(ctx, projected, 0), Part(ctx, projected, 2));
    ggml_tensor* y = ggml_mul(ctx, conv_.Node(ctx, taken), Part(ctx, projected, 1));
    return Linear(ctx, w.short_out, y, nullptr);
  }

  void Bind(const LayerTensors& w, const MixerRows& rows) override {
    conv_.Bind({.weights = FloatsOf(w.short_conv), .layer = rows.layer.value}, rows.states,
               *states_);
  }

 private:
  // One third of each row.
  ggml_tensor* Part(ggml_context* ctx, ggml_tensor* projected, size_t part) const {
    return ggml_view_2d(ctx, projected, n_channels_, projected->ne[1], projected->nb[1],
                        part * n_channels_ * sizeof(float));
  }

  uint32_t n_channels_;
  float rms_eps_;
  const StateStore* states_;
  CausalConv conv_;
};

}  // namespace

std::unique_ptr<Mixer> MakeShortConvMixer(const MixerParts& parts, const ShortConvSpec& spec) {
  return std::make_unique<ShortConvMixer>(parts, spec);
}

}  // namespace moestro
