// SPDX-License-Identifier: MIT
#include "forward/dense/ngrams.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/result.h"
#include "forward/dense/mixers/mixer.h"
#include "residency/ngram_rows.h"

namespace moestro {
namespace {

constexpr uint32_t kNgramChannels = 512;  // channels that a thread takes at a time

float* NgramRow(const ggml_tensor* t, int64_t row) {
  return static_cast<float*>(t->data) + row * t->ne[0];
}

void CheckNgramRows(std::span<ggml_tensor* const> tensors) {
  for (const ggml_tensor* t : tensors) CHECK(t->type == GGML_TYPE_F32 && ggml_is_contiguous(t));
}

double InverseRms(const float* x, uint32_t n, float eps) {
  double squares = 0.0;
  for (uint32_t i = 0; i < n; ++i) squares += double{x[i]} * x[i];
  return 1.0 / std::sqrt(squares / n + eps);
}

}  // namespace

Ngrams::Ngrams(const Parts& parts) : parts_(parts), taps_(size_t{spec().n_taps} * n_all()) {}

void Ngrams::Begin(std::span<const StepRow> rows) {
  const uint32_t n = spec().n_heads();
  asked_.resize(rows.size() * n);
  for (size_t r = 0; r < rows.size(); ++r) {
    NgramRows(spec(), rows[r].text, std::span(asked_).subspan(r * n, n));
  }
  parts_.table.Begin(asked_);
}

Result<std::vector<std::byte>> Ngrams::Take(size_t n_rows) {
  TRY_STATUS(Finish());
  return parts_.table.Take(n_rows * spec().n_heads());
}

ggml_tensor* Ngrams::Build(ggml_context* ctx, const LayerTensors& w, ggml_tensor* streams) {
  // values [n_heads * n_values, rows] -> a key of each stream, and a value of all.
  std::array<ggml_tensor*, 2> products{};
  Linears(ctx, std::array{w.ngram_key, w.ngram_value}, Values(ctx, streams), {}, products);
  for (ggml_tensor*& t : products) t = ggml_is_contiguous(t) ? t : ggml_cont(ctx, t);
  ggml_tensor* gated = Gated(ctx, w, std::array{products[0], products[1], streams});
  return Convolved(ctx, gated, streams);
}

void Ngrams::Bind(const LayerTensors& w, uint32_t layer, uint32_t first,
                  std::span<const RowState> states) {
  if (taps_are_of_ != w.ngram_conv) SetTaps(w.ngram_conv);
  layer_ = layer;
  first_ = first;
  rows_ = StateRows(states, std::numeric_limits<uint32_t>::max());
  next_task_.store(0, std::memory_order_relaxed);
}

// Copies the convolution's weights [n_all][n_taps], tap by tap.
void Ngrams::SetTaps(const ggml_tensor* conv) {
  taps_are_of_ = conv;
  std::vector<float> channel(spec().n_taps);
  const ggml_to_float_t to_float = ggml_get_type_traits(conv->type)->to_float;
  for (uint32_t c = 0; c < n_all(); ++c) {
    const auto* from = static_cast<const std::byte*>(conv->data) + c * conv->nb[1];
    if (conv->type == GGML_TYPE_F32) {
      std::copy_n(reinterpret_cast<const float*>(from), spec().n_taps, channel.data());
    } else {
      to_float(from, channel.data(), spec().n_taps);
    }
    for (uint32_t tap = 0; tap < spec().n_taps; ++tap) taps_[tap * n_all() + c] = channel[tap];
  }
}

// The bytes of each row's rows as numbers, [n_heads * n_values, rows].
ggml_tensor* Ngrams::Values(ggml_context* ctx, ggml_tensor* streams) {
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto* self = static_cast<const Ngrams*>(userdata);
    const NgramSpec& spec = self->spec();
    const ggml_to_float_t to_float = ggml_get_type_traits(self->parts_.type)->to_float;
    const int64_t all = result->ne[1] * spec.n_heads();
    for (int64_t i = thread; i < all; i += n_threads) {
      const std::byte* from =
          self->parts_.table.row(size_t{self->first_} * spec.n_heads() + static_cast<size_t>(i));
      float* to = static_cast<float*>(result->data) + i * spec.n_values;
      if (self->parts_.type == GGML_TYPE_F32) {
        std::copy_n(reinterpret_cast<const float*>(from), spec.n_values, to);
      } else {
        to_float(from, to, spec.n_values);
      }
    }
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, spec().n_embd(), streams->ne[1], 1, 1, &streams, 1,
                        work, GGML_N_TASKS_MAX, this);
}

// key [n_all, rows], value [n_embd, rows], streams [n_all, rows] -> the value of each stream,
// weighed by how well the stream's key meets the stream, and the same normed: [2 * n_all, rows].
ggml_tensor* Ngrams::Gated(ggml_context* ctx, const LayerTensors& w,
                           std::span<ggml_tensor* const> in) {
  std::array<ggml_tensor*, 6> args = {
      in[0], in[1], in[2], w.ngram_key_norm, w.ngram_query_norm, w.ngram_conv_norm};
  CheckNgramRows(args);
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto* self = static_cast<const Ngrams*>(userdata);
    const uint32_t n_streams = self->n_streams();
    for (int64_t i = thread; i < result->ne[1] * n_streams; i += n_threads) {
      self->GateStream(result, i / n_streams, static_cast<uint32_t>(i % n_streams));
    }
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, 2 * int64_t{n_all()}, in[0]->ne[1], 1, 1, args.data(),
                        static_cast<int>(args.size()), work, GGML_N_TASKS_MAX, this);
}

void Ngrams::GateStream(const ggml_tensor* result, int64_t row, uint32_t stream) const {
  const uint32_t n = parts_.spec.n_embd;
  const float eps = parts_.spec.rms_eps;
  const size_t at = size_t{stream} * n;
  const auto values = [&](size_t source, int64_t of_row) {
    return NgramRow(result->src[source], of_row) + at;
  };
  const float* key = values(0, row);
  const float* value = NgramRow(result->src[1], row);
  const float* query = values(2, row);
  const float* key_norm = values(3, 0);
  const float* query_norm = values(4, 0);
  double product = 0.0;
  for (uint32_t i = 0; i < n; ++i) {
    product += double{key[i] * key_norm[i]} * double{query[i] * query_norm[i]};
  }
  product *= InverseRms(key, n, eps) * InverseRms(query, n, eps) / std::sqrt(double{1} * n);
  // The root keeps the sign, and never comes near a slope without end.
  constexpr double kLeast = 1e-6;
  const double root = std::sqrt(std::max(std::abs(product), kLeast));
  const double sign = product > 0.0 ? 1.0 : product < 0.0 ? -1.0 : 0.0;
  const auto gate = static_cast<float>(1.0 / (1.0 + std::exp(-sign * root)));
  float* gated = NgramRow(result, row) + at;
  for (uint32_t i = 0; i < n; ++i) gated[i] = gate * value[i];
  const auto factor = static_cast<float>(InverseRms(gated, n, eps));
  const float* conv_norm = values(5, 0);
  float* normed = gated + n_all();
  for (uint32_t i = 0; i < n; ++i) normed[i] = gated[i] * factor * conv_norm[i];
}

// gated [2 * n_all, rows], streams -> streams + what is gated + silu of its convolution over
// positions.
ggml_tensor* Ngrams::Convolved(ggml_context* ctx, ggml_tensor* gated, ggml_tensor* streams) {
  std::array<ggml_tensor*, 2> args = {gated, streams};
  CheckNgramRows(args);
  const auto work = [](ggml_tensor* result, int /*thread*/, int /*n_threads*/, void* userdata) {
    static_cast<Ngrams*>(userdata)->Work(result);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_F32, n_all(), streams->ne[1], 1, 1, args.data(),
                        static_cast<int>(args.size()), work, GGML_N_TASKS_MAX, this);
}

void Ngrams::Work(ggml_tensor* result) {
  const uint32_t parts = (n_all() + kNgramChannels - 1) / kNgramChannels;
  for (;;) {
    const uint32_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= rows_.sequences() * parts) return;
    if (parts_.stop != nullptr && parts_.stop->is_requested()) return;
    const uint32_t channel = task % parts * kNgramChannels;
    for (const StateRun& run : rows_.of(task / parts)) {
      Convolve(run, channel, std::min(channel + kNgramChannels, n_all()), result);
    }
  }
}

// Channels [channel, end) of a run. The history of a sequence is [n_history][n_all] in its state,
// the oldest position first.
void Ngrams::Convolve(const StateRun& run, uint32_t channel, uint32_t end,
                      ggml_tensor* result) const {
  const uint32_t all = n_all();
  const uint32_t n_history = spec().n_history();
  const auto history = [&](StateSlot place) {
    const std::span<float> state = parts_.states.state(place, layer_);
    return state.last(size_t{n_history} * all).data();
  };
  const float* before = run.state.from ? history(*run.state.from) : nullptr;
  // The convolution's input at a position, counted from the oldest of the history; null: zeros.
  const auto input = [&](uint32_t position) -> const float* {
    if (position >= n_history) {
      return NgramRow(result->src[0], run.first + (position - n_history)) + all;
    }
    return before != nullptr ? before + size_t{position} * all : nullptr;
  };
  for (uint32_t t = 0; t < run.count; ++t) {
    const int64_t row = int64_t{run.first} + t;
    const float* gated = NgramRow(result->src[0], row);
    const float* stream = NgramRow(result->src[1], row);
    float* to = NgramRow(result, row);
    std::fill(to + channel, to + end, 0.0F);
    for (uint32_t tap = 0; tap < spec().n_taps; ++tap) {
      const float* x = input(n_history + t - (spec().n_taps - 1 - tap) * spec().n_most);
      if (x == nullptr) continue;
      const float* weights = taps_.data() + size_t{tap} * all;
      for (uint32_t c = channel; c < end; ++c) to[c] += weights[c] * x[c];
    }
    for (uint32_t c = channel; c < end; ++c) {
      to[c] = stream[c] + (gated[c] + to[c] * Sigmoid(to[c]));
    }
  }
  // Rising positions: a place may hold the state before and after the run.
  float* after = history(*run.state.to);
  for (uint32_t p = 0; p < n_history; ++p) {
    const float* x = input(p + run.count);
    float* to = after + size_t{p} * all;
    if (x != nullptr) {
      std::copy(x + channel, x + end, to + channel);
    } else {
      std::fill(to + channel, to + end, 0.0F);
    }
  }
}

}  // namespace moestro
