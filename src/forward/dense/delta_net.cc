// SPDX-License-Identifier: MIT
#include "forward/dense/delta_net.h"

#include <algorithm>
#include <cmath>

#include "forward/dense/state_gates.h"

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
  Convolve(run, RowsOf(result, columns.query, h, 0, run.first), Part::kQueries, h * dim, s.queries);
  Convolve(run, RowsOf(result, columns.key, h, 0, run.first), Part::kKeys, h * dim, s.keys);
  const float scale = 1.0F / std::sqrt(static_cast<float>(dim));
  kernel_.normalise({.n_rows = run.count, .n = dim, .eps = eps_, .scale = scale},
                    {.at = s.queries, .stride = dim});
  kernel_.normalise({.n_rows = run.count, .n = dim, .eps = eps_, .scale = 1.0F},
                    {.at = s.keys, .stride = dim});
  for (uint32_t i = 0; i < heads_together(); ++i) MixValueHead(run, h, i, result, s);
}

void DeltaNet::MixValueHead(const StateRun& run, uint32_t h, uint32_t i, ggml_tensor* result,
                            Scratch& s) const {
  const DeltaNetColumns& columns = layer_.columns;
  const uint32_t dim = spec_.head_dim;
  const uint32_t head = value_head(h, i);
  Convolve(run, RowsOf(result, columns.value, h, i, run.first), Part::kValues, head * dim,
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
                .is_sigmoid = spec_.decays_values,
                .weight = layer_.norm,
                .gate = RowsOf(result, columns.gate, h, i, run.first)},
               mixed);
}

// Convolves head_dim channels from the part's `channel` on, and carries the last inputs to the
// state after the run.
void DeltaNet::Convolve(const StateRun& run, const StateKernel::Rows& x, Part part,
                        uint32_t channel, float* y) const {
  const size_t stride = spec_.n_convolved();
  const auto number = static_cast<uint32_t>(part);
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
  for (uint32_t r = 0; r < run.count; ++r) {
    for (uint32_t d = 0; d < n; ++d) {
      s.decays[r * n + d] = std::exp(layer_.a[head] * Softplus(decays.row(r)[d] + dt[d]));
    }
    s.rates[r] = Sigmoid(*rates.row(r));
  }
}

}  // namespace moestro
