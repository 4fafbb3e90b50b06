// SPDX-License-Identifier: MIT
#include "forward/dense/causal_conv.h"

#include <algorithm>

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

}  // namespace moestro
