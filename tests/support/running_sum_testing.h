// SPDX-License-Identifier: MIT
// A mixer with a state, for tests: the state is a running sum of the layer's normed inputs that
// fades, and what the layer adds is a product with it. Its values depend on every earlier token and
// cannot be cut back.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "core/model_spec.h"
#include "forward/dense/blocks.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

inline constexpr const char* kRunningSum = "running sum";
inline constexpr float kFade = 0.75F;  // of the sum, with each token

class RunningSumMixer final : public Mixer {
 public:
  RunningSumMixer(const MixerParts& parts, const StateSpec& spec)
      : states_(parts.states), rms_eps_(parts.spec.rms_eps), n_values_(spec.n_values) {}

  ggml_tensor* Build(const LayerTensors& w, const MixerGraph& in) override {
    ggml_tensor* normed = RmsNorm(in.ctx, in.x, w.attn_norm, w.attn_norm_b, rms_eps_);
    ggml_tensor* sums = ggml_custom_4d(
        in.ctx, GGML_TYPE_F32, n_values_, in.x->ne[1], 1, 1, &normed, 1,
        [](ggml_tensor* result, int thread, int, void* self) {
          if (thread == 0) static_cast<RunningSumMixer*>(self)->Run(result);
        },
        1, this);
    return Linear(in.ctx, w.attn_out, sums, w.attn_out_b);
  }

  void Bind(const LayerTensors& /*w*/, const MixerRows& rows) override { rows_ = rows; }

 private:
  void Run(ggml_tensor* result) const {
    for (size_t r = 0; r < rows_.states.size(); ++r) {
      const float* x = RowOf(result->src[0], r);
      const RowState& state = rows_.states[r];
      const std::span<float> to = states_.state(*state.to, rows_.layer.value);
      const std::span<float> from =
          state.from ? states_.state(*state.from, rows_.layer.value) : std::span<float>();
      for (size_t i = 0; i < to.size(); ++i) {
        to[i] = (from.empty() ? 0.0F : kFade * from[i]) + x[i];
      }
      std::ranges::copy(to, RowOf(result, r));
    }
  }
  static float* RowOf(ggml_tensor* t, size_t row) {
    return reinterpret_cast<float*>(static_cast<std::byte*>(t->data) + row * t->nb[1]);
  }

  const StateStore& states_;
  float rms_eps_;
  int64_t n_values_;
  MixerRows rows_;  // of the next run
};

inline Result<std::unique_ptr<Mixer>> MakeRunningSum(const MixerParts& parts,
                                                     const StateSpec& spec) {
  return std::make_unique<RunningSumMixer>(parts, spec);
}

}  // namespace moestro
