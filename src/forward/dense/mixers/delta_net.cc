// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/delta_net.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "compute/state_kernel.h"
#include "forward/dense/blocks.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

Result<std::unique_ptr<DeltaNet>> DeltaNet::Create(const DeltaNetSpec& spec, float eps,
                                                   uint32_t threads, const StateKernel& kernel,
                                                   StopSignal* stop) {
  std::unique_ptr<DeltaNet> net(new DeltaNet(spec, eps, kernel, stop));
  TRY_STATUS(net->Allocate(threads));
  return net;
}

Status DeltaNet::Allocate(uint32_t threads) {
  const size_t head = size_t{kTokens} * spec_.head_dim;
  const size_t decays = spec_.decays_values ? head : kTokens;
  const size_t floats = 3 * head + decays + kTokens;
  thread_bytes_ = floats * sizeof(float);
  TRY(memory_, HostMemory::Allocate(thread_bytes_ * threads));
  auto* at = reinterpret_cast<float*>(memory_.data());
  for (uint32_t thread = 0; thread < threads; ++thread, at += floats) {
    scratch_.push_back({.queries = at,
                        .keys = at + head,
                        .values = at + 2 * head,
                        .decays = at + 3 * head,
                        .rates = at + 3 * head + decays});
  }
  return {};
}

void DeltaNet::Bind(const Layer& layer, std::span<const RowState> rows, const StateStore& states) {
  layer_ = layer;
  states_ = &states;
  rows_ = StateRows(rows, kTokens);
  next_task_ = 0;
}

ggml_tensor* DeltaNet::Node(ggml_context* ctx, Inputs inputs) {
  const auto n_inputs = static_cast<int>(std::ranges::find(inputs, nullptr) - inputs.begin());
  return ggml_custom_4d(
      ctx, GGML_TYPE_F32, spec_.n_values(), inputs[0]->ne[1], 1, 1, inputs.data(), n_inputs,
      [](ggml_tensor* result, int thread, int, void* self) {
        auto* net = static_cast<DeltaNet*>(self);
        net->Work(result, net->scratch_[static_cast<size_t>(thread)]);
      },
      GGML_N_TASKS_MAX, this);
}

void DeltaNet::Work(ggml_tensor* result, Scratch& s) {
  const uint32_t n_tasks = rows_.sequences() * spec_.n_head_k;
  for (;;) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks || ShallStop()) return;
    for (const StateRun& run : rows_.of(task / spec_.n_head_k)) {
      Mix(run, task % spec_.n_head_k, result, s);
    }
  }
}

StateKernel::Rows DeltaNet::RowsOf(const ggml_tensor* result, const HeadColumns& columns,
                                   uint32_t h, uint32_t i, uint32_t first_row) {
  const ggml_tensor* input = result->src[columns.source];
  const size_t stride = input->nb[1] / sizeof(float);
  return {.at = static_cast<const float*>(input->data) + first_row * stride + columns.at(h, i),
          .stride = stride};
}

// Mixes one key head with the value heads that use it.
void DeltaNet::Mix(const StateRun& run, uint32_t h, ggml_tensor* result, Scratch& s) const {
  const DeltaNetColumns& columns = layer_.columns;
  const uint32_t dim = spec_.head_dim;
  // queries, keys [rows][head_dim] of length 1; queries over sqrt(head_dim).
  Convolve(run, RowsOf(result, columns.query, h, 0, run.first), Projection::kQueries, h * dim,
           s.queries);
  Convolve(run, RowsOf(result, columns.key, h, 0, run.first), Projection::kKeys, h * dim, s.keys);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  kernel_.normalise({.n_rows = run.count, .n = dim, .eps = key_eps_, .scale = scale},
                    {.at = s.queries, .stride = dim});
  kernel_.normalise({.n_rows = run.count, .n = dim, .eps = key_eps_, .scale = 1.0F},
                    {.at = s.keys, .stride = dim});
  for (uint32_t i = 0; i < heads_together(); ++i) MixValueHead(run, h, i, result, s);
}

void DeltaNet::MixValueHead(const StateRun& run, uint32_t h, uint32_t i, ggml_tensor* result,
                            Scratch& s) const {
  const DeltaNetColumns& columns = layer_.columns;
  const uint32_t dim = spec_.head_dim;
  const uint32_t head = value_head(h, i);
  Convolve(run, RowsOf(result, columns.value, h, i, run.first), Projection::kValues, head * dim,
           s.values);
  Weigh(run, h, i, result, s);
  // update() carries the head's matrix [head_dim][head_dim] from the place before the run to the
  // place after it, and writes mixed [rows][head_dim] into the result.
  const size_t matrix = spec_.inputs_values() + size_t{head} * spec_.matrix_values();
  const size_t stride = result->nb[1] / sizeof(float);
  const StateKernel::RowsOut mixed = {
      .at = static_cast<float*>(result->data) + run.first * stride + size_t{head} * dim,
      .stride = stride};
  kernel_.update({.is_corrected = true,
                  .n_tokens = run.count,
                  .n_rows = dim,
                  .n_columns = dim,
                  .before = run.state.from
                                ? states_->state(*run.state.from, layer_.layer).data() + matrix
                                : nullptr,
                  .after = states_->state(*run.state.to, layer_.layer).data() + matrix,
                  .keys = {.at = s.keys, .stride = dim},
                  .queries = {.at = s.queries, .stride = dim},
                  .values = {.at = s.values, .stride = dim},
                  .decays = spec_.decays_values ? nullptr : s.decays,
                  .row_decays = {.at = s.decays, .stride = dim},
                  .rates = s.rates,
                  .results = mixed});
  kernel_.gate({.n_rows = run.count,
                .n = dim,
                .eps = eps_,
                .is_sigmoid = spec_.decays_values || spec_.has_sigmoid_gates,
                .weight = layer_.norm,
                .gate = RowsOf(result, columns.gate, h, i, run.first)},
               mixed);
}

// Convolves head_dim channels from the projection's `channel` on, and carries the last inputs to
// the state after the run.
void DeltaNet::Convolve(const StateRun& run, const StateKernel::Rows& x, Projection projection,
                        uint32_t channel, float* y) const {
  const size_t stride = spec_.n_convolved();
  const auto number = static_cast<uint32_t>(projection);
  const float* weights = layer_.conv[number] + size_t{channel} * spec_.n_taps;
  channel += number * spec_.n_keys();
  StateKernel::Rows before;
  if (run.state.from) {
    before = {.at = states_->state(*run.state.from, layer_.layer).data() + channel,
              .stride = stride};
  }
  kernel_.convolve({.n_tokens = run.count,
                    .n_channels = spec_.head_dim,
                    .n_taps = spec_.n_taps,
                    .weights = weights,
                    .bias = nullptr,
                    .has_silu = true,
                    .x = x,
                    .before = before,
                    .after = {.at = states_->state(*run.state.to, layer_.layer).data() + channel,
                              .stride = stride},
                    .y = {.at = y, .stride = spec_.head_dim}});
}

// Finds how much a value head keeps of its matrix and takes in from each row.
void DeltaNet::Weigh(const StateRun& run, uint32_t h, uint32_t i, const ggml_tensor* result,
                     Scratch& s) const {
  const uint32_t head = value_head(h, i);
  const StateKernel::Rows decays = RowsOf(result, layer_.columns.decay, h, i, run.first);
  const StateKernel::Rows rates = RowsOf(result, layer_.columns.rate, h, i, run.first);
  const uint32_t n = spec_.decays_values ? spec_.head_dim : 1;
  const float* dt = layer_.dt + size_t{head} * n;
  const float rate = spec_.has_negative_rates ? -layer_.a[head] : layer_.a[head];
  for (uint32_t r = 0; r < run.count; ++r) {
    for (uint32_t d = 0; d < n; ++d) {
      const float x = decays.row(r)[d] + dt[d];
      s.decays[r * n + d] = Decay(rate, x, spec_.decay_bound);
    }
    s.rates[r] = Sigmoid(*rates.row(r));
  }
}

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
                .a = FloatsOf(w.state_a != nullptr ? w.state_a : w.state_a_column),
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

  // Projects x; gates and decays at once, or by way of head_dim values.
  static void ProjectKimi(ggml_context* ctx, const LayerTensors& w, ggml_tensor* x,
                          std::span<ggml_tensor*> inputs) {
    const std::array weights = {w.attn_q, w.attn_k, w.attn_v, w.state_beta};
    std::array<ggml_tensor*, 4> products{};
    Linears(ctx, weights, x, {}, products);
    ggml_tensor* gate = Linear(ctx, w.kimi_gate_a, x, nullptr);
    if (w.kimi_gate_b != nullptr) gate = Linear(ctx, w.kimi_gate_b, gate, nullptr);
    ggml_tensor* decay = Linear(ctx, w.kimi_decay_a, x, nullptr);
    if (w.kimi_decay_b != nullptr) decay = Linear(ctx, w.kimi_decay_b, decay, nullptr);
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
