// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/mamba2.h"

#include <array>
#include <cmath>
#include <utility>

#include "compute/state_kernel.h"
#include "forward/dense/blocks.h"
#include "forward/dense/mixers/mixer.h"
#include "forward/dense/mixers/short_conv.h"

namespace moestro {
namespace {

// Rows of a product, from a column on.
StateKernel::Rows RowsOf(const ggml_tensor* x, uint32_t first_row, uint32_t column) {
  const size_t stride = x->nb[1] / sizeof(float);
  return {.at = static_cast<const float*>(x->data) + first_row * stride + column, .stride = stride};
}

}  // namespace

Result<std::unique_ptr<Mamba2Heads>> Mamba2Heads::Create(const Mamba2Spec& spec, uint32_t threads,
                                                         const StateKernel& kernel,
                                                         StopSignal* stop) {
  std::unique_ptr<Mamba2Heads> heads(new Mamba2Heads(spec, kernel, stop));
  TRY(heads->memory_, HostMemory::Allocate(heads->thread_bytes() * threads));
  auto* at = reinterpret_cast<float*>(heads->memory_.data());
  for (uint32_t thread = 0; thread < threads; ++thread, at += size_t{2} * kTokens) {
    heads->scratch_.push_back({.decays = at, .steps = at + kTokens});
  }
  return heads;
}

void Mamba2Heads::Bind(const Layer& layer, std::span<const RowState> rows,
                       const StateStore& states) {
  layer_ = layer;
  states_ = &states;
  rows_ = StateRows(rows, kTokens);
  next_task_ = 0;
}

ggml_tensor* Mamba2Heads::Node(ggml_context* ctx, ggml_tensor* projected, ggml_tensor* convolved) {
  std::array inputs = {projected, convolved};
  return ggml_custom_4d(
      ctx, GGML_TYPE_F32, spec_.n_inner(), projected->ne[1], 1, 1, inputs.data(),
      static_cast<int>(inputs.size()),
      [](ggml_tensor* result, int thread, int, void* self) {
        auto* heads = static_cast<Mamba2Heads*>(self);
        heads->Work(result, heads->scratch_[static_cast<size_t>(thread)]);
      },
      GGML_N_TASKS_MAX, this);
}

void Mamba2Heads::Work(ggml_tensor* result, const Scratch& s) {
  const uint32_t n_tasks = rows_.sequences() * spec_.n_head;
  for (;;) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks || (stop_ != nullptr && stop_->is_requested())) return;
    for (const StateRun& run : rows_.of(task / spec_.n_head)) {
      Mix(run, task % spec_.n_head, result, s);
    }
  }
}

// Mixes one head. A row of `projected` holds gates, the inputs of the convolution, steps; a row of
// `convolved` holds values, keys, queries.
void Mamba2Heads::Mix(const StateRun& run, uint32_t head, ggml_tensor* result,
                      const Scratch& s) const {
  const ggml_tensor* projected = result->src[0];
  const ggml_tensor* convolved = result->src[1];
  const uint32_t dim = spec_.head_dim;
  const uint32_t group = head / (spec_.n_head / spec_.n_group);
  const uint32_t keys = spec_.n_inner() + group * spec_.n_state;
  const uint32_t queries = keys + spec_.n_group * spec_.n_state;
  const StateKernel::Rows steps =
      RowsOf(projected, run.first, spec_.n_inner() + spec_.n_convolved() + head);
  for (uint32_t r = 0; r < run.count; ++r) {
    s.steps[r] = Softplus(*steps.row(r) + layer_.dt[head]);
    s.decays[r] = std::exp(layer_.a[head] * s.steps[r]);
  }
  // update() carries the head's matrix [n_state][head_dim] from the place before the run to the
  // place after it, and writes mixed [rows][head_dim] into the result.
  const size_t matrix = spec_.inputs_values() + size_t{head} * spec_.matrix_values();
  const StateKernel::Rows values = RowsOf(convolved, run.first, head * dim);
  const size_t stride = result->nb[1] / sizeof(float);
  const StateKernel::RowsOut mixed = {
      .at = static_cast<float*>(result->data) + run.first * stride + size_t{head} * dim,
      .stride = stride};
  kernel_.update({.is_corrected = false,
                  .n_tokens = run.count,
                  .n_rows = spec_.n_state,
                  .n_columns = dim,
                  .before = run.state.from
                                ? states_->state(*run.state.from, layer_.layer).data() + matrix
                                : nullptr,
                  .after = states_->state(*run.state.to, layer_.layer).data() + matrix,
                  .keys = RowsOf(convolved, run.first, keys),
                  .queries = RowsOf(convolved, run.first, queries),
                  .values = values,
                  .decays = s.decays,
                  .rates = s.steps,
                  .results = mixed});
  kernel_.pass({.n_rows = run.count,
                .n = dim,
                .factor = layer_.d[head],
                .passed = values,
                .gate = RowsOf(projected, run.first, head * dim)},
               mixed);
}

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
