// SPDX-License-Identifier: MIT
#include "forward/dense/blocks.h"

#include <ggml-backend.h>

#include <array>
#include <cmath>
#include <utility>

#include "device/activation.h"
#include "device/product_node.h"

namespace moestro {
namespace {

struct Heads {
  ggml_tensor* q;  // [head_dim_k, n_head, tokens]
  ggml_tensor* k;  // [head_dim_k, n_head_kv, tokens]
  ggml_tensor* v;  // [n_embd_v, tokens]
};

// Row slice [first, first + n) of a [rows, tokens] projection.
ggml_tensor* Rows(ggml_context* ctx, ggml_tensor* x, int64_t first, int64_t n) {
  ggml_tensor* view = ggml_view_2d(ctx, x, n, x->ne[1], x->nb[1],
                                   static_cast<size_t>(first) * ggml_element_size(x));
  return ggml_cont(ctx, view);
}

ggml_tensor* Clamped(ggml_context* ctx, ggml_tensor* x, float limit) {
  return limit > 0.0F ? ggml_clamp(ctx, x, -limit, limit) : x;
}

ggml_tensor* WithBias(ggml_context* ctx, ggml_tensor* y, ggml_tensor* bias) {
  return bias != nullptr ? ggml_add(ctx, y, bias) : y;
}

template <size_t kCount>
using Tensors = std::array<ggml_tensor*, kCount>;

// Linear() of several matrices, in one node where they can share it.
template <size_t kCount>
Tensors<kCount> Linears(ggml_context* ctx, const Tensors<kCount>& weights, ggml_tensor* x,
                        const Tensors<kCount>& biases) {
  Tensors<kCount> products{};
  if (!ShareNode(weights)) {
    for (size_t i = 0; i < kCount; ++i) products[i] = Linear(ctx, weights[i], x, biases[i]);
    return products;
  }
  MultiplyNodes(ctx, weights, x, products);
  for (size_t i = 0; i < kCount; ++i) products[i] = WithBias(ctx, products[i], biases[i]);
  return products;
}

// down * activation(gate * x, up * x)
ggml_tensor* FeedForward(ggml_context* ctx, Activation activation, const Tensors<2>& gate_up,
                         ggml_tensor* down, ggml_tensor* x) {
  const auto [gate, up] = Linears<2>(ctx, gate_up, x, {});
  return Linear(ctx, down, GatedProduct(ctx, activation, gate, up), nullptr);
}

Heads Project(ggml_context* ctx, const ModelSpec& spec, const LayerTensors& w, ggml_tensor* x) {
  const int64_t n_q = int64_t{spec.n_head} * spec.head_dim_k;
  ggml_tensor* q = nullptr;
  ggml_tensor* k = nullptr;
  ggml_tensor* v = nullptr;
  if (w.attn_qkv != nullptr) {
    ggml_tensor* qkv = Linear(ctx, w.attn_qkv, x, w.attn_qkv_b);
    q = Rows(ctx, qkv, 0, n_q);
    k = Rows(ctx, qkv, n_q, spec.n_embd_k());
    v = Rows(ctx, qkv, n_q + spec.n_embd_k(), spec.n_embd_v());
  } else {
    const auto products =
        Linears<3>(ctx, {w.attn_q, w.attn_k, w.attn_v}, x, {w.attn_q_b, w.attn_k_b, w.attn_v_b});
    q = products[0];
    k = products[1];
    v = products[2];
  }
  // Limits and norms that some families have.
  q = Clamped(ctx, q, spec.clamp_kqv);
  k = Clamped(ctx, k, spec.clamp_kqv);
  v = Clamped(ctx, v, spec.clamp_kqv);
  if (spec.attention.qk_norm == QkNorm::kWholeVector) {
    q = RmsNorm(ctx, q, w.attn_q_norm, nullptr, spec.rms_eps);
    k = RmsNorm(ctx, k, w.attn_k_norm, nullptr, spec.rms_eps);
  }
  q = ggml_reshape_3d(ctx, q, spec.head_dim_k, spec.n_head, x->ne[1]);
  k = ggml_reshape_3d(ctx, k, spec.head_dim_k, spec.n_head_kv, x->ne[1]);
  if (spec.attention.qk_norm == QkNorm::kPerHead) {
    q = RmsNorm(ctx, q, w.attn_q_norm, nullptr, spec.rms_eps);
    k = RmsNorm(ctx, k, w.attn_k_norm, nullptr, spec.rms_eps);
  }
  return {.q = q, .k = k, .v = v};
}

ggml_tensor* Rotate(ggml_context* ctx, const RopeSpec& rope, RopePairs pairs, ggml_tensor* x,
                    const AttentionInputs& in) {
  const int mode = pairs == RopePairs::kHalves ? GGML_ROPE_TYPE_NEOX : GGML_ROPE_TYPE_NORMAL;
  return ggml_rope_ext(ctx, x, in.positions, in.rope_factors, static_cast<int>(rope.n_dims), mode,
                       static_cast<int>(rope.original_context), rope.freq_base, rope.freq_scale,
                       rope.ext_factor, rope.attn_factor, rope.beta_fast, rope.beta_slow);
}

}  // namespace

ggml_tensor* RmsNorm(ggml_context* ctx, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias,
                     float eps) {
  return WithBias(ctx, ggml_mul(ctx, ggml_rms_norm(ctx, x, eps), weight), bias);
}

ggml_tensor* Linear(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x, ggml_tensor* bias) {
  // Devices multiply many rows with F32 matrices in half precision, but not one row at a time;
  // routers are F32.
  const bool is_row_by_row =
      weight->type == GGML_TYPE_F32 && x->ne[1] > 1 && !ggml_backend_buffer_is_host(weight->buffer);
  if (is_row_by_row) x = ggml_reshape_3d(ctx, x, x->ne[0], 1, x->ne[1]);
  ggml_tensor* y = MultiplyNode(ctx, weight, x);
  if (is_row_by_row) y = ggml_reshape_2d(ctx, y, y->ne[0], y->ne[2]);
  // A device would add up halves in halves.
  if (y->op == GGML_OP_MUL_MAT && !ggml_is_quantized(weight->type)) {
    ggml_prec_set_acc(y, GGML_PREC_F32);
  }
  return WithBias(ctx, y, bias);
}

ggml_tensor* GatedProduct(ggml_context* ctx, Activation activation, ggml_tensor* gate,
                          ggml_tensor* up) {
  switch (activation) {
    case Activation::kSwiglu:
      return ggml_swiglu_split(ctx, gate, up);
    case Activation::kGeglu:
      return ggml_geglu_split(ctx, gate, up);
    case Activation::kSwigluOai:
      return ggml_swiglu_oai(ctx, gate, up, kOaiAlpha, kOaiLimit);
  }
  std::unreachable();
}

ggml_tensor* Attention(ggml_context* ctx, ggml_cgraph* graph, const ModelSpec& spec,
                       const LayerTensors& w, const AttentionInputs& in) {
  // x [n_embd, rows] -> q [head_dim_k, n_head, rows], k [head_dim_k, n_head_kv, rows], v.
  ggml_tensor* normed = RmsNorm(ctx, in.x, w.attn_norm, w.attn_norm_b, spec.rms_eps);
  Heads h = Project(ctx, spec, w, normed);
  // Each row turned by its position.
  h.q = Rotate(ctx, spec.rope, spec.attention.rope_pairs, h.q, in);
  h.k = Rotate(ctx, spec.rope, spec.attention.rope_pairs, h.k, in);
  const float scale = 1.0F / std::sqrt(static_cast<float>(spec.head_dim_k));
  if (spec.attention.scale_query) h.q = ggml_scale(ctx, h.q, scale);

  // The cache is written before the node below reads it: nodes run in the order they are added.
  ggml_tensor* k_rows = ggml_reshape_2d(ctx, h.k, spec.n_embd_k(), in.x->ne[1]);
  ggml_build_forward_expand(graph, ggml_set_rows(ctx, in.k_cache, k_rows, in.cells));
  ggml_build_forward_expand(graph, ggml_set_rows(ctx, in.v_cache, h.v, in.cells));
  // mixed [n_head * head_dim_v, rows]: what each head found in its sequence's cells; back to
  // [n_embd, rows], plus the residual.
  ggml_tensor* mixed = in.attend(h.q, spec.attention.scale_query ? 1.0F : scale);
  return ggml_add(ctx, Linear(ctx, w.attn_out, mixed, w.attn_out_b), in.x);
}

ggml_tensor* SharedExpert(ggml_context* ctx, Activation activation, const LayerTensors& w,
                          ggml_tensor* x) {
  ggml_tensor* y = FeedForward(ctx, activation, {w.shared_gate, w.shared_up}, w.shared_down, x);
  if (w.shared_router == nullptr) return y;
  return ggml_mul(ctx, y, ggml_sigmoid(ctx, Linear(ctx, w.shared_router, x, nullptr)));
}

ggml_tensor* DenseFfn(ggml_context* ctx, Activation activation, const LayerTensors& w,
                      ggml_tensor* x) {
  return FeedForward(ctx, activation, {w.dense_gate, w.dense_up}, w.dense_down, x);
}

}  // namespace moestro
