// SPDX-License-Identifier: MIT
#include "forward/dense/blocks.h"

#include <ggml-backend.h>

#include <array>
#include <cstddef>

#include "base/result.h"
#include "compute/product_node.h"

namespace moestro {
namespace {

ggml_tensor* WithBias(ggml_context* ctx, ggml_tensor* y, ggml_tensor* bias) {
  return bias != nullptr ? ggml_add(ctx, y, bias) : y;
}

// down * activation(gate * x, up * x)
ggml_tensor* FeedForward(ggml_context* ctx, Activation activation, float limit,
                         const std::array<ggml_tensor*, 2>& gate_up, ggml_tensor* down,
                         ggml_tensor* x) {
  std::array<ggml_tensor*, 2> products{};
  if (HasGate(activation)) {
    Linears(ctx, gate_up, x, {}, products);
  } else {
    products[1] = Linear(ctx, gate_up[1], x, nullptr);
  }
  return Linear(ctx, down, Activate(ctx, activation, products[0], products[1], limit), nullptr);
}

}  // namespace

const float* FloatsOf(const ggml_tensor* tensor) {
  return tensor != nullptr ? static_cast<const float*>(tensor->data) : nullptr;
}

ggml_tensor* RmsNorm(ggml_context* ctx, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias,
                     float eps) {
  if (weight == nullptr) return x;
  return WithBias(ctx, ggml_mul(ctx, ggml_rms_norm(ctx, x, eps), weight), bias);
}

ggml_tensor* PartOfHeads(ggml_context* ctx, ggml_tensor* x, int64_t first, int64_t n) {
  return ggml_view_3d(ctx, x, n, x->ne[1], x->ne[2], x->nb[1], x->nb[2],
                      static_cast<size_t>(first) * ggml_element_size(x));
}

namespace {

int RopeModeOf(RopePairs pairs) {
  return pairs == RopePairs::kHalves ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
}

}  // namespace

ggml_tensor* Turned(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions,
                    const RopeSpec& rope, RopePairs pairs, ggml_tensor* factors) {
  return ggml_rope_ext(ctx, heads, positions, factors, static_cast<int>(rope.n_dims),
                       RopeModeOf(pairs), static_cast<int>(rope.original_context), rope.freq_base,
                       rope.freq_scale, rope.ext_factor, rope.attn_factor, rope.beta_fast,
                       rope.beta_slow);
}

ggml_tensor* TurnedBack(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions,
                        const RopeSpec& rope, RopePairs pairs) {
  return ggml_rope_ext_back(ctx, heads, positions, nullptr, static_cast<int>(rope.n_dims),
                            RopeModeOf(pairs), static_cast<int>(rope.original_context),
                            rope.freq_base, rope.freq_scale, rope.ext_factor, rope.attn_factor,
                            rope.beta_fast, rope.beta_slow);
}

ggml_tensor* Linear(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x, ggml_tensor* bias) {
  // Devices multiply many rows with F32 matrices in half precision, but not one row at a time;
  // routers are F32.
  const bool is_row_by_row =
      weight->type == GGML_TYPE_F32 && x->ne[1] > 1 && !ggml_backend_buffer_is_host(weight->buffer);
  if (is_row_by_row) x = ggml_reshape_3d(ctx, x, x->ne[0], 1, x->ne[1]);
  ggml_tensor* y = MultiplyNode(ctx, weight, x);
  if (is_row_by_row) y = ggml_reshape_2d(ctx, y, y->ne[0], y->ne[2]);
  // A device would add up half-precision products in half precision.
  if (y->op == GGML_OP_MUL_MAT && !ggml_is_quantized(weight->type)) {
    ggml_prec_set_acc(y, GGML_PREC_F32);
  }
  return WithBias(ctx, y, bias);
}

ggml_tensor* TimesGates(ggml_context* ctx, ggml_tensor* mixed, ggml_tensor* gates,
                        uint32_t n_head) {
  if (gates->ne[0] == mixed->ne[0]) return ggml_mul(ctx, mixed, gates);
  const int64_t n = mixed->ne[0];
  const int64_t n_rows = mixed->ne[1];
  mixed = ggml_reshape_3d(ctx, mixed, n / n_head, n_head, n_rows);
  mixed = ggml_mul(ctx, mixed, ggml_reshape_3d(ctx, gates, 1, n_head, n_rows));
  return ggml_reshape_2d(ctx, mixed, n, n_rows);
}

void Linears(ggml_context* ctx, std::span<ggml_tensor* const> weights, ggml_tensor* x,
             std::span<ggml_tensor* const> biases, std::span<ggml_tensor*> products) {
  const auto bias = [&](size_t i) { return biases.empty() ? nullptr : biases[i]; };
  if (!ShareNode(weights)) {
    for (size_t i = 0; i < weights.size(); ++i) {
      products[i] = Linear(ctx, weights[i], x, bias(i));
    }
    return;
  }
  MultiplyNodes(ctx, weights, x, products);
  for (size_t i = 0; i < weights.size(); ++i) products[i] = WithBias(ctx, products[i], bias(i));
}

ggml_tensor* Linear(ggml_context* ctx, ggml_tensor* weight, const NormedRows& x,
                    ggml_tensor* bias) {
  ggml_tensor* product = nullptr;
  Linears(ctx, {&weight, 1}, x, {&bias, 1}, {&product, 1});
  return product;
}

void Linears(ggml_context* ctx, std::span<ggml_tensor* const> weights, const NormedRows& x,
             std::span<ggml_tensor* const> biases, std::span<ggml_tensor*> products) {
  const bool is_one_node = x.norm != nullptr && x.weight != nullptr && x.bias == nullptr &&
                           x.x->ne[0] <= InputNorm::kMostValues && ShareNode(weights);
  if (!is_one_node) {
    return Linears(ctx, weights, RmsNorm(ctx, x.x, x.weight, x.bias, x.eps), biases, products);
  }
  MultiplyNodes(ctx, weights, x.x, products, {.norm = x.norm, .weight = x.weight});
  for (size_t i = 0; i < biases.size(); ++i) products[i] = WithBias(ctx, products[i], biases[i]);
}

ggml_tensor* SumAndNorm(ggml_context* ctx, const RowNorm& norm, ggml_tensor* a, ggml_tensor* b,
                        ggml_tensor* weight, ggml_tensor* sum) {
  std::array<ggml_tensor*, 4> arguments = {a, b, weight, sum};
  for (const ggml_tensor* t : arguments) {
    CHECK(t->type == GGML_TYPE_F32 && ggml_is_contiguous(t) && t->ne[0] == sum->ne[0]);
  }
  const auto work = [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
    const auto& how = *static_cast<const RowNorm*>(userdata);
    const auto n = static_cast<uint32_t>(result->ne[0]);
    for (int64_t row = thread; row < result->ne[1]; row += n_threads) {
      const auto at = [&](const ggml_tensor* t) {
        return static_cast<float*>(t->data) + row * result->ne[0];
      };
      float* const row_sum = at(result->src[3]);
      how.kernel.add(at(result->src[0]), at(result->src[1]), row_sum, n);
      how.kernel.norm({.from = row_sum,
                       .weight = FloatsOf(result->src[2]),
                       .to = at(result),
                       .n = n,
                       .eps = how.eps});
    }
  };
  // ggml's nodes take userdata that is not const; `norm` is only read.
  return ggml_custom_4d(ctx, GGML_TYPE_F32, sum->ne[0], sum->ne[1], 1, 1, arguments.data(),
                        static_cast<int>(arguments.size()), work, GGML_N_TASKS_MAX,
                        const_cast<RowNorm*>(&norm));
}

ggml_tensor* AddResidual(ggml_context* ctx, ggml_tensor* y, ggml_tensor* x, float scale) {
  return ggml_add(ctx, scale != 1.0F ? ggml_scale(ctx, y, scale) : y, x);
}

ggml_tensor* SharedExpert(ggml_context* ctx, Activation activation, float limit,
                          const LayerTensors& w, ggml_tensor* x) {
  ggml_tensor* y =
      FeedForward(ctx, activation, limit, {w.shared_gate, w.shared_up}, w.shared_down, x);
  if (w.shared_router == nullptr) return y;
  return ggml_mul(ctx, y, ggml_sigmoid(ctx, Linear(ctx, w.shared_router, x, nullptr)));
}

ggml_tensor* DenseFfn(ggml_context* ctx, Activation activation, float limit, const LayerTensors& w,
                      ggml_tensor* x) {
  return FeedForward(ctx, activation, limit, {w.dense_gate, w.dense_up}, w.dense_down, x);
}

ggml_tensor* EndLayer(ggml_context* ctx, const LayerTensors& w, const LayerEnd& end) {
  ggml_tensor* y = end.y;
  if (end.n_latent > 0) {
    ggml_tensor* latent = ggml_view_2d(ctx, y, end.n_latent, y->ne[1], y->nb[1], 0);
    y = Linear(ctx, w.latent_up, ggml_cont(ctx, latent), nullptr);
  }
  const auto normed = [&](ggml_tensor* norm) {
    return norm != nullptr ? RmsNorm(ctx, y, norm, nullptr, end.eps) : y;
  };
  y = normed(w.experts_post_norm);
  if (end.shared != nullptr) y = ggml_add(ctx, y, end.shared);
  y = ggml_add(ctx, normed(w.ffn_post_norm), end.residual);
  return w.output_scale != nullptr ? ggml_mul(ctx, y, w.output_scale) : y;
}

}  // namespace moestro
