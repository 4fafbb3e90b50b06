// SPDX-License-Identifier: MIT
#include "forward/dense/low_rank_streams.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>

#include "base/result.h"
#include "forward/dense/blocks.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {
namespace {

float* StreamRow(const ggml_tensor* t, int64_t row) {
  return static_cast<float*>(t->data) + row * t->ne[0];
}

// The part of n values that a thread computes: rows may be fewer than threads.
struct ThreadShare {
  size_t first;
  size_t end;
};
ThreadShare ThreadShareOf(size_t n, int thread, int n_threads) {
  const auto threads = static_cast<size_t>(n_threads);
  const auto number = static_cast<size_t>(thread);
  return {.first = n * number / threads, .end = n * (number + 1) / threads};
}

using StreamWork = void (*)(ggml_tensor* result, int thread, int n_threads, void* userdata);

// A node with a result F32 [n, rows], of inputs without gaps.
ggml_tensor* StreamNode(ggml_context* ctx, int64_t n, std::span<ggml_tensor*> inputs,
                        StreamWork work, void* userdata) {
  for (const ggml_tensor* t : inputs) CHECK(t->type == GGML_TYPE_F32 && ggml_is_contiguous(t));
  return ggml_custom_4d(ctx, GGML_TYPE_F32, n, inputs[0]->ne[1], 1, 1, inputs.data(),
                        static_cast<int>(inputs.size()), work, GGML_N_TASKS_MAX, userdata);
}

}  // namespace

LowRankStreams::Entered LowRankStreams::Enter(ggml_context* ctx, const Weights& w,
                                              ggml_tensor* streams) {
  ggml_tensor* normed = Normed(ctx, streams, w.norm);
  std::array<ggml_tensor*, 2> products{};
  if (w.inject != nullptr) {
    Linears(ctx, std::array{w.down, w.inject}, normed, {}, products);
  } else {
    products[0] = Linear(ctx, w.down, normed, nullptr);
  }
  ggml_tensor* gates = Linear(ctx, w.up, Opened(ctx, products[0]), nullptr);
  return {.x = Mean(ctx, normed, gates),
          .weights = w.inject != nullptr ? Weighed(ctx, products[1]) : nullptr};
}

// Norms each stream of each row.
ggml_tensor* LowRankStreams::Normed(ggml_context* ctx, ggml_tensor* streams, ggml_tensor* weight) {
  std::array<ggml_tensor*, 2> args = {streams, weight};
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto* self = static_cast<const LowRankStreams*>(userdata);
    const uint32_t n = self->n_embd_;
    const int64_t all = result->ne[1] * self->spec_.n_streams;
    for (int64_t i = thread; i < all; i += n_threads) {
      const int64_t stream = i % self->spec_.n_streams * n;
      const int64_t row = i / self->spec_.n_streams;
      self->norm_.kernel.norm({.from = StreamRow(result->src[0], row) + stream,
                               .weight = StreamRow(result->src[1], 0) + stream,
                               .to = StreamRow(result, row) + stream,
                               .n = n,
                               .eps = self->norm_.eps});
    }
  };
  return StreamNode(ctx, streams->ne[0], args, work, this);
}

// silu(low / n_streams).
ggml_tensor* LowRankStreams::Opened(ggml_context* ctx, ggml_tensor* low) {
  std::array<ggml_tensor*, 1> args = {ggml_is_contiguous(low) ? low : ggml_cont(ctx, low)};
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const float share = static_cast<const LowRankStreams*>(userdata)->share();
    const auto n = static_cast<size_t>(ggml_nelements(result));
    const ThreadShare part = ThreadShareOf(n, thread, n_threads);
    const float* from = StreamRow(result->src[0], 0);
    float* to = StreamRow(result, 0);
    for (size_t i = part.first; i < part.end; ++i) {
      const float x = from[i] * share;
      to[i] = x * Sigmoid(x);
    }
  };
  return StreamNode(ctx, low->ne[0], args, work, this);
}

// 2 * sigmoid(products / n_streams): around 1, which adds a result as it is.
ggml_tensor* LowRankStreams::Weighed(ggml_context* ctx, ggml_tensor* products) {
  std::array<ggml_tensor*, 1> args = {ggml_is_contiguous(products) ? products
                                                                   : ggml_cont(ctx, products)};
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const float share = static_cast<const LowRankStreams*>(userdata)->share();
    const ThreadShare part =
        ThreadShareOf(static_cast<size_t>(ggml_nelements(result)), thread, n_threads);
    const float* from = StreamRow(result->src[0], 0);
    float* to = StreamRow(result, 0);
    for (size_t i = part.first; i < part.end; ++i) to[i] = 2.0F * Sigmoid(from[i] * share);
  };
  return StreamNode(ctx, products->ne[0], args, work, this);
}

// The mean of the streams, each value times the sigmoid of its gate.
ggml_tensor* LowRankStreams::Mean(ggml_context* ctx, ggml_tensor* normed, ggml_tensor* gates) {
  std::array<ggml_tensor*, 2> args = {normed, gates};
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto* self = static_cast<const LowRankStreams*>(userdata);
    const size_t n = self->n_embd_;
    const ThreadShare part = ThreadShareOf(n, thread, n_threads);
    for (int64_t row = 0; row < result->ne[1]; ++row) {
      const float* x = StreamRow(result->src[0], row);
      const float* gate = StreamRow(result->src[1], row);
      float* to = StreamRow(result, row);
      std::fill(to + part.first, to + part.end, 0.0F);
      for (uint32_t s = 0; s < self->spec_.n_streams; ++s) {
        for (size_t i = part.first; i < part.end; ++i) {
          to[i] += x[s * n + i] * Sigmoid(gate[s * n + i]);
        }
      }
      for (size_t i = part.first; i < part.end; ++i) to[i] *= self->share();
    }
  };
  return StreamNode(ctx, n_embd_, args, work, this);
}

ggml_tensor* LowRankStreams::Leave(ggml_context* ctx, ggml_tensor* y, ggml_tensor* streams,
                                   ggml_tensor* weights) {
  std::array<ggml_tensor*, 3> args = {streams, y, weights};
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto* self = static_cast<const LowRankStreams*>(userdata);
    const size_t n = self->n_embd_;
    const ThreadShare part = ThreadShareOf(n, thread, n_threads);
    for (int64_t row = 0; row < result->ne[1]; ++row) {
      const float* from = StreamRow(result->src[0], row);
      const float* y_row = StreamRow(result->src[1], row);
      const float* weight = StreamRow(result->src[2], row);
      float* to = StreamRow(result, row);
      for (uint32_t s = 0; s < self->spec_.n_streams; ++s) {
        for (size_t i = part.first; i < part.end; ++i) {
          to[s * n + i] = from[s * n + i] + weight[s] * y_row[i];
        }
      }
    }
  };
  return StreamNode(ctx, streams->ne[0], args, work, this);
}

}  // namespace moestro
