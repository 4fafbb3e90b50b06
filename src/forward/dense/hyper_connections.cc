// SPDX-License-Identifier: MIT
#include "forward/dense/hyper_connections.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>

#include "base/result.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {
namespace {

// Row `row` of an F32 tensor [n, rows] without gaps.
float* RowOf(const ggml_tensor* t, int64_t row) {
  return static_cast<float*>(t->data) + row * t->ne[0];
}

void CheckRows(std::span<ggml_tensor* const> tensors) {
  for (const ggml_tensor* t : tensors) CHECK(t->type == GGML_TYPE_F32 && ggml_is_contiguous(t));
}

// Columns that are computed at a time: enough for the compiler to use vectors.
constexpr uint32_t kTogether = 64;

// Columns of each row that one thread computes, whole blocks but for the last ones: rows may be
// fewer than threads.
struct Columns {
  uint32_t first;
  uint32_t end;
};
Columns ColumnsOf(uint32_t n, int thread, int n_threads) {
  const uint64_t n_blocks = (n + kTogether - 1) / kTogether;
  const auto border = [&](int t) {
    const uint64_t block = n_blocks * static_cast<uint32_t>(t) / static_cast<uint32_t>(n_threads);
    return static_cast<uint32_t>(std::min<uint64_t>(block * kTogether, n));
  };
  return {.first = border(thread), .end = border(thread + 1)};
}

// A row's streams [n_streams][n] with a weight each, at every `stride`-th place.
struct WeighedStreams {
  const float* streams;
  uint32_t n;
  uint32_t n_streams;
  const float* weights;
  uint32_t stride;
};

// to[i] = weight * y[i] + the weighed streams, in their order. y: null: 0 instead.
void AddUp(const float* y, float weight, const WeighedStreams& from, Columns columns, float* to) {
  for (uint32_t first = columns.first; first < columns.end; first += kTogether) {
    const auto block = [&](auto count) {
      std::array<float, kTogether> sum{};  // apart from all that is read
      for (uint32_t i = 0; y != nullptr && i < count; ++i) sum[i] = weight * y[first + i];
      for (uint32_t s = 0; s < from.n_streams; ++s) {
        const float* stream = from.streams + size_t{s} * from.n + first;
        const float its = from.weights[size_t{s} * from.stride];
        for (uint32_t i = 0; i < count; ++i) sum[i] += its * stream[i];
      }
      std::copy_n(sum.data(), uint32_t{count}, to + first);
    };
    const uint32_t count = std::min(columns.end - first, kTogether);
    if (count == kTogether) {
      block(std::integral_constant<uint32_t, kTogether>());
    } else {
      block(count);
    }
  }
}

}  // namespace

void MakeDoublyStochastic(uint32_t n, uint32_t n_iterations, float eps, float* weights) {
  const auto sum_to_one = [&](uint32_t first, uint32_t step) {
    float sum = 0.0F;
    for (uint32_t i = 0; i < n; ++i) sum += weights[first + i * step];
    sum += eps;
    for (uint32_t i = 0; i < n; ++i) weights[first + i * step] /= sum;
  };
  for (uint32_t s = 0; s < n; ++s) {
    float* row = weights + size_t{s} * n;
    const float most = *std::max_element(row, row + n);
    float sum = 0.0F;
    for (uint32_t d = 0; d < n; ++d) {
      row[d] = std::exp(row[d] - most);
      sum += row[d];
    }
    for (uint32_t d = 0; d < n; ++d) row[d] = row[d] / sum + eps;
  }
  for (uint32_t iteration = 0; iteration < n_iterations; ++iteration) {
    for (uint32_t s = 0; s < n && iteration > 0; ++s) sum_to_one(s * n, 1);
    for (uint32_t d = 0; d < n; ++d) sum_to_one(d, n);
  }
}

ggml_tensor* HyperConnections::Begin(ggml_context* ctx, ggml_tensor* x) const {
  const int64_t n_rows = x->ne[1];
  ggml_tensor* each = ggml_reshape_3d(ctx, x, n_embd_, 1, n_rows);
  each = ggml_repeat_4d(ctx, each, n_embd_, spec_.n_streams, n_rows, 1);
  return ggml_reshape_2d(ctx, each, int64_t{spec_.n_streams} * n_embd_, n_rows);
}

HyperConnections::Entered HyperConnections::Enter(ggml_context* ctx, const LayerTensors& w,
                                                  Half half, ggml_tensor* streams) {
  if (is_low_rank()) return EnterLowRank(ctx, w, half, streams);
  const bool is_mixer = half == Half::kMixer;
  // All streams of a row are normed as one vector.
  ggml_tensor* normed = ggml_rms_norm(ctx, streams, rms_eps_);
  ggml_tensor* products = Linear(ctx, is_mixer ? w.mixer_streams : w.ffn_streams, normed, nullptr);
  ggml_tensor* weights =
      Weigh(ctx, products, is_mixer ? w.mixer_streams_scale : w.ffn_streams_scale,
            is_mixer ? w.mixer_streams_b : w.ffn_streams_b);
  return {.x = Mix(ctx, streams, weights), .weights = weights};
}

// x [n_embd, rows]: the streams of each row, weighed by the first n_streams of its weights.
ggml_tensor* HyperConnections::Mix(ggml_context* ctx, ggml_tensor* streams, ggml_tensor* weights) {
  std::array<ggml_tensor*, 2> args = {streams, weights};
  CheckRows(args);
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const StreamsSpec& spec = static_cast<const HyperConnections*>(userdata)->spec_;
    const auto n = static_cast<uint32_t>(result->ne[0]);
    const Columns columns = ColumnsOf(n, thread, n_threads);
    for (int64_t row = 0; row < result->ne[1]; ++row) {
      const WeighedStreams weighed{.streams = RowOf(result->src[0], row),
                                   .n = n,
                                   .n_streams = spec.n_streams,
                                   .weights = RowOf(result->src[1], row),
                                   .stride = 1};
      AddUp(nullptr, 0.0F, weighed, columns, RowOf(result, row));
    }
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, n_embd_, streams->ne[1], 1, 1, args.data(),
                        static_cast<int>(args.size()), work, GGML_N_TASKS_MAX, this);
}

HyperConnections::Entered HyperConnections::EnterLowRank(ggml_context* ctx, const LayerTensors& w,
                                                         Half half, ggml_tensor* streams) {
  const bool is_mixer = half == Half::kMixer;
  const LowRankStreams::Entered entered =
      low_rank_.Enter(ctx,
                      {.norm = is_mixer ? w.mixer_streams_norm : w.ffn_streams_norm,
                       .down = is_mixer ? w.mixer_streams_down : w.ffn_streams_down,
                       .up = is_mixer ? w.mixer_streams_up : w.ffn_streams_up,
                       .inject = is_mixer ? w.mixer_streams_inject : w.ffn_streams_inject},
                      streams);
  return {.x = entered.x, .weights = entered.weights};
}

ggml_tensor* HyperConnections::Leave(ggml_context* ctx, const Left& from) {
  if (is_low_rank()) return low_rank_.Leave(ctx, from.y, from.streams, from.weights);
  std::array<ggml_tensor*, 3> args = {from.y, from.streams, from.weights};
  CheckRows(args);
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto* self = static_cast<const HyperConnections*>(userdata);
    const uint32_t n_streams = self->spec_.n_streams;
    const uint32_t n = self->n_embd_;
    const Columns columns = ColumnsOf(n, thread, n_threads);
    for (int64_t row = 0; row < result->ne[1]; ++row) {
      const float* of_result = RowOf(result->src[2], row) + n_streams;
      const float* of_streams = of_result + n_streams;
      for (uint32_t d = 0; d < n_streams; ++d) {
        const WeighedStreams weighed{.streams = RowOf(result->src[1], row),
                                     .n = n,
                                     .n_streams = n_streams,
                                     .weights = of_streams + d,
                                     .stride = n_streams};
        AddUp(RowOf(result->src[0], row), of_result[d], weighed, columns,
              RowOf(result, row) + size_t{d} * n);
      }
    }
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, from.streams->ne[0], from.streams->ne[1], 1, 1,
                        args.data(), static_cast<int>(args.size()), work, GGML_N_TASKS_MAX, this);
}

ggml_tensor* HyperConnections::Stream(ggml_context* ctx, ggml_tensor* streams,
                                      uint32_t number) const {
  return ggml_view_2d(ctx, streams, n_embd_, streams->ne[1], streams->nb[1],
                      size_t{number} * n_embd_ * sizeof(float));
}

ggml_tensor* HyperConnections::End(ggml_context* ctx, const ModelTensors& w, ggml_tensor* streams) {
  if (is_low_rank()) {
    return low_rank_
        .Enter(ctx,
               {.norm = w.head_streams_norm, .down = w.head_streams_down, .up = w.head_streams_up},
               streams)
        .x;
  }
  if (spec_.mixes_head) {
    ggml_tensor* normed = ggml_rms_norm(ctx, streams, rms_eps_);
    ggml_tensor* products = Linear(ctx, w.head_streams, normed, nullptr);
    return Mix(ctx, streams, Weigh(ctx, products, w.head_streams_scale, w.head_streams_b));
  }
  ggml_tensor* sum = Stream(ctx, streams, 0);
  for (uint32_t s = 1; s < spec_.n_streams; ++s) {
    sum = ggml_add(ctx, sum, Stream(ctx, streams, s));
  }
  return ggml_scale(ctx, sum, 1.0F / static_cast<float>(spec_.n_streams));
}

// products [n, rows] -> weights [n, rows]: of the input and, in a half layer, of the result and of
// each stream in each.
ggml_tensor* HyperConnections::Weigh(ggml_context* ctx, ggml_tensor* products, ggml_tensor* scales,
                                     ggml_tensor* base) {
  std::array<ggml_tensor*, 3> args = {products, scales, base};
  CheckRows(args);
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto* self = static_cast<const HyperConnections*>(userdata);
    for (int64_t row = thread; row < result->ne[1]; row += n_threads) {
      self->WeighRow(RowOf(result->src[0], row), FloatsOf(result->src[1]), FloatsOf(result->src[2]),
                     {RowOf(result, row), static_cast<size_t>(result->ne[0])});
    }
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, products->ne[0], products->ne[1], 1, 1, args.data(),
                        static_cast<int>(args.size()), work, GGML_N_TASKS_MAX, this);
}

void HyperConnections::WeighRow(const float* products, const float* scales, const float* base,
                                std::span<float> to) const {
  const uint32_t n = spec_.n_streams;
  uint32_t at = 0;
  for (; at < n; ++at) to[at] = Sigmoid(scales[0] * products[at] + base[at]) + spec_.eps;
  if (to.size() == n) return;  // of the head's input
  for (; at < 2 * n; ++at) to[at] = 2.0F * Sigmoid(scales[1] * products[at] + base[at]);
  for (; at < n_weights(); ++at) to[at] = scales[2] * products[at] + base[at];
  MakeDoublyStochastic(n, spec_.n_iterations, spec_.eps, to.data() + size_t{2} * n);
}

}  // namespace moestro
