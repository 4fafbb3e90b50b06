// SPDX-License-Identifier: MIT
// The dense parts of a transformer layer outside its mixer, as ggml nodes. Functions add nodes to a
// context and return the last one; nothing is computed here. Dimensions are written [fastest, ...,
// slowest].
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>

#include "compute/row_kernel.h"
#include "core/model_spec.h"
#include "core/tensor_roles.h"

struct ggml_tensor;  // NOLINT(readability-identifier-naming): the name is ggml's

namespace moestro {

// The resident weights of a model as ggml tensors, by role; null where a model has none.

using LayerTensors = LayerRoles<ggml_tensor*>;
using ModelTensors = ModelTree<ggml_tensor*>;

// The values of an F32 tensor in memory; null for null.
const float* FloatsOf(const ggml_tensor* tensor);

// x / rms(x) * weight (+ bias); x [n, tokens], weight and bias [n]. Without a weight: x, in layers
// whose input has been normed already.
ggml_tensor* RmsNorm(ggml_context* ctx, ggml_tensor* x, ggml_tensor* weight, ggml_tensor* bias,
                     float eps);

// Rows that are normed before they are multiplied. Where kernels of ours multiply, the node of the
// product also norms.
struct NormedRows {
  ggml_tensor* x = nullptr;       // F32 [n, tokens]
  ggml_tensor* weight = nullptr;  // weight of the norm, [n]; null: rows are not normed
  ggml_tensor* bias = nullptr;    // bias of the norm, [n], or null
  float eps = 0.0F;
  const RowNorm* norm = nullptr;  // has the same eps; null: ggml norms, as on devices
};

// One node on the CPU: a + b goes to `sum`, which has a place -> sum / rms(sum) * weight. All are
// F32 [n, tokens] without gaps, weight [n]. `norm` must outlive the graph. The graph must run the
// node before reading `sum`.
ggml_tensor* SumAndNorm(ggml_context* ctx, const RowNorm& norm, ggml_tensor* a, ggml_tensor* b,
                        ggml_tensor* weight, ggml_tensor* sum);

// weight^T x (+ bias); weight [n_in, n_out], x [n_in, tokens] -> [n_out, tokens].
ggml_tensor* Linear(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x, ggml_tensor* bias);

// Values [first, first + n) of each head of x [.., n_head, rows]; a view.
ggml_tensor* PartOfHeads(ggml_context* ctx, ggml_tensor* x, int64_t first, int64_t n);

// The first rope.n_dims values of each head turned by the row's position; heads [n, n_head, rows],
// positions I32 [rows], factors F32 [n_dims / 2] or null.
ggml_tensor* Turned(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions,
                    const RopeSpec& rope, RopePairs pairs, ggml_tensor* factors);

// The same turned back.
ggml_tensor* TurnedBack(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions,
                        const RopeSpec& rope, RopePairs pairs);

// mixed [n_head * n, rows] times gates: one for each value, or [n_head, rows], one for each head.
ggml_tensor* TimesGates(ggml_context* ctx, ggml_tensor* mixed, ggml_tensor* gates, uint32_t n_head);

// Linear() of several matrices, in one node if possible. biases: one for each matrix, or empty.
// REQUIRES: as many products as weights.
void Linears(ggml_context* ctx, std::span<ggml_tensor* const> weights, ggml_tensor* x,
             std::span<ggml_tensor* const> biases, std::span<ggml_tensor*> products);

// Linear() and Linears() of normed rows.
ggml_tensor* Linear(ggml_context* ctx, ggml_tensor* weight, const NormedRows& x, ggml_tensor* bias);
void Linears(ggml_context* ctx, std::span<ggml_tensor* const> weights, const NormedRows& x,
             std::span<ggml_tensor* const> biases, std::span<ggml_tensor*> products);

// scale * y + x: adds a layer's result to the layer's input.
ggml_tensor* AddResidual(ggml_context* ctx, ggml_tensor* y, ggml_tensor* x, float scale);

// The expert that every token uses, weighted by its own sigmoid gate where the expert has a gate:
// [n_embd, tokens]. limit: FeedForwardSpec. REQUIRES: w.shared_up is set.
ggml_tensor* SharedExpert(ggml_context* ctx, Activation activation, float limit,
                          const LayerTensors& w, ggml_tensor* x);

// The feed-forward block of a layer without experts: [n_embd, tokens]. REQUIRES: w.dense_up is set.
ggml_tensor* DenseFfn(ggml_context* ctx, Activation activation, float limit, const LayerTensors& w,
                      ggml_tensor* x);

// The end of a layer whose experts' results are projected or normed before they are added.
struct LayerEnd {
  ggml_tensor* y = nullptr;         // [n_embd, rows]; the experts' values come first in each row
  ggml_tensor* shared = nullptr;    // [n_embd, rows]; null: no shared expert
  ggml_tensor* residual = nullptr;  // [n_embd, rows]
  uint32_t n_latent = 0;            // values of experts that are projected; 0: no projection
  float eps = 0.0F;
};
// -> latent_up * y, normed; + shared, normed; + residual, scaled: [n_embd, rows].
ggml_tensor* EndLayer(ggml_context* ctx, const LayerTensors& w, const LayerEnd& end);

}  // namespace moestro
