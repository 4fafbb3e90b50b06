// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/pool_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "base/result.h"
#include "core/model_spec.h"

namespace moestro {
namespace {

constexpr uint32_t kPoolTogether = 64;  // values that a thread takes at a time

// A row of an F32 tensor without gaps.
float* PoolRow(const ggml_tensor* t, uint32_t row) {
  return static_cast<float*>(t->data) + size_t{row} * static_cast<size_t>(t->ne[0]);
}

}  // namespace

// Sums of some values over the positions of a pool so far. weights 0: there was none.
struct PoolSums::Sums {
  std::array<float, kPoolTogether> largest{};  // gate
  std::array<float, kPoolTogether> weights{};  // relative to that of the largest gate
  std::array<float, kPoolTogether> values{};   // weighed

  void Add(uint32_t i, float value, float gate) {
    if (weights[i] == 0.0F) {
      largest[i] = gate;
      weights[i] = 1.0F;
      values[i] = value;
    } else if (gate <= largest[i]) {
      const float weight = std::exp(gate - largest[i]);
      weights[i] += weight;
      values[i] += weight * value;
    } else {
      const float shrink = std::exp(largest[i] - gate);
      weights[i] = weights[i] * shrink + 1.0F;
      values[i] = values[i] * shrink + value;
      largest[i] = gate;
    }
  }
  // Copies n values of each sum from or to a state, in which sums are `stride` values apart.
  void Load(const float* state, size_t stride, uint32_t n) {
    std::copy_n(state, n, largest.data());
    std::copy_n(state + stride, n, weights.data());
    std::copy_n(state + 2 * stride, n, values.data());
  }
  void Store(float* state, size_t stride, uint32_t n) const {
    std::copy_n(largest.data(), n, state);
    std::copy_n(weights.data(), n, state + stride);
    std::copy_n(values.data(), n, state + 2 * stride);
  }
};

ggml_tensor* PoolSums::Node(ggml_context* ctx, ggml_tensor* values, ggml_tensor* gates,
                            ggml_tensor* bias) {
  std::array<ggml_tensor*, 3> args = {values, gates, bias};
  for (const ggml_tensor* t : args) {
    CHECK(t->type == GGML_TYPE_F32 && ggml_is_contiguous(t));
    CHECK(t->ne[0] == int64_t{shape_.n_shares} * shape_.n);
  }
  CHECK(bias->ne[1] == shape_.n_pool);
  return ggml_custom_4d(
      ctx, GGML_TYPE_F32, shape_.n, values->ne[1], 1, 1, args.data(), static_cast<int>(args.size()),
      [](ggml_tensor* result, int, int, void* self) { static_cast<PoolSums*>(self)->Work(result); },
      GGML_N_TASKS_MAX, this);
}

void PoolSums::Bind(uint32_t layer, std::span<const RowCells> visible,
                    std::span<const RowState> rows, const StateStore& states) {
  layer_ = layer;
  visible_ = visible;
  states_ = &states;
  rows_ = StateRows(rows, static_cast<uint32_t>(rows.size()));
  next_task_.store(0, std::memory_order_relaxed);
}

void PoolSums::Work(ggml_tensor* result) {
  const uint32_t pieces = (shape_.n + kPoolTogether - 1) / kPoolTogether;
  const uint32_t n_tasks = rows_.sequences() * pieces;
  for (;;) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= n_tasks || (stop_ != nullptr && stop_->is_requested())) return;
    const uint32_t first = task % pieces * kPoolTogether;
    for (const StateRun& run : rows_.of(task / pieces)) {
      AddRun(run, first, std::min(kPoolTogether, shape_.n - first), result);
    }
  }
}

// Adds values [first, first + n) of a run's rows to the sums.
void PoolSums::AddRun(const StateRun& run, uint32_t first, uint32_t n, ggml_tensor* result) const {
  const bool overlaps = shape_.n_shares > 1;
  const size_t of_share = size_t{PooledAttentionSpec::kSums} * shape_.n;
  const auto state_at = [&](StateSlot slot) {
    return states_->state(slot, layer_).data() + shape_.first_value + first;
  };
  Sums own;   // of the pool that the position is in
  Sums next;  // of the pool behind it
  if (run.state.from) {
    const float* state = state_at(*run.state.from);
    own.Load(state, shape_.n, n);
    if (overlaps) next.Load(state + of_share, shape_.n, n);
  }
  for (uint32_t row = run.first; row < run.first + run.count; ++row) {
    const uint32_t position = visible_[row].n_positions - 1;
    const float* values = PoolRow(result->src[0], row) + first;
    const float* gates = PoolRow(result->src[1], row) + first;
    const float* bias = PoolRow(result->src[2], position % shape_.n_pool) + first;
    const auto add = [&](Sums& to, uint32_t share) {
      for (uint32_t i = 0; i < n; ++i) {
        const size_t at = size_t{share} * shape_.n + i;
        to.Add(i, values[at], gates[at] + bias[at]);
      }
    };
    if (overlaps) add(next, 0);
    add(own, shape_.n_shares - 1);
    float* to = PoolRow(result, row) + first;
    std::fill_n(to, n, 0.0F);
    if (!ends_pool(visible_[row])) continue;
    for (uint32_t i = 0; i < n; ++i) to[i] = own.values[i] / own.weights[i];
    own = next;
    next = {};
  }
  float* state = state_at(*run.state.to);
  own.Store(state, shape_.n, n);
  if (overlaps) next.Store(state + of_share, shape_.n, n);
}

}  // namespace moestro
