// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/short_conv.h"

#include <algorithm>

#include "compute/state_kernel.h"
#include "forward/dense/blocks.h"

namespace moestro {
namespace {

constexpr uint32_t kChannels = 128;  // channels that a thread takes at a time

}  // namespace

void CausalConv::Bind(const Layer& layer, std::span<const RowState> rows,
                      const StateStore& states) {
  layer_ = layer;
  states_ = &states;
  rows_ = StateRows(rows, static_cast<uint32_t>(rows.size()));
  next_task_ = 0;
}

ggml_tensor* CausalConv::Node(ggml_context* ctx, ggml_tensor* x) {
  return ggml_custom_4d(
      ctx, GGML_TYPE_F32, n_channels_, x->ne[1], 1, 1, &x, 1,
      [](ggml_tensor* result, int, int, void* self) {
        static_cast<CausalConv*>(self)->Work(result);
      },
      GGML_N_TASKS_MAX, this);
}

void CausalConv::Work(ggml_tensor* result) {
  const uint32_t pieces = (n_channels_ + kChannels - 1) / kChannels;
  const uint32_t n_tasks = rows_.sequences() * pieces;
  for (;;) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks || (stop_ != nullptr && stop_->is_requested())) return;
    for (const StateRun& run : rows_.of(task / pieces)) {
      Convolve(run, task % pieces * kChannels, result);
    }
  }
}

void CausalConv::Convolve(const StateRun& run, uint32_t channel, ggml_tensor* result) const {
  const ggml_tensor* x = result->src[0];
  const size_t in = x->nb[1] / sizeof(float);
  const size_t out = result->nb[1] / sizeof(float);
  StateKernel::Rows before;
  if (run.state.from) {
    before = {.at = states_->state(*run.state.from, layer_.layer).data() + channel,
              .stride = n_channels_};
  }
  kernel_.convolve(
      {.n_tokens = run.count,
       .n_channels = std::min(kChannels, n_channels_ - channel),
       .n_taps = n_taps_,
       .weights = layer_.weights + size_t{channel} * n_taps_,
       .bias = layer_.bias != nullptr ? layer_.bias + channel : nullptr,
       .has_silu = has_silu_,
       .x = {.at = static_cast<const float*>(x->data) + run.first * in + layer_.first + channel,
             .stride = in},
       .before = before,
       .after = {.at = states_->state(*run.state.to, layer_.layer).data() + channel,
                 .stride = n_channels_},
       .y = {.at = static_cast<float*>(result->data) + run.first * out + channel, .stride = out}});
}

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
