// SPDX-License-Identifier: MIT
// Matrices times activations as nodes of a graph: by a kernel of ours or by ggml, all rows at once
// or one by one (WeightSet). Our kernels treat each row of activations alone, so the row's product
// has the same bits beside any number of rows. ggml's product has this property in a set with
// rows_alike.
//
// Thread rule: the functions and the graph on the engine thread; the nodes themselves run on all
// threads of the team.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>

#include "compute/row_kernel.h"
#include "core/model_spec.h"

namespace moestro {

// Joins the gate and the up projection of an expert, on the CPU or in a graph. Pure; any thread.

// Constants of Activation::kSwigluOai.
inline constexpr float kOaiAlpha = 1.702F;
inline constexpr float kOaiLimit = 7.0F;

// gate[i] = activation(gate[i], up[i]). REQUIRES: equal sizes. Without a gate (HasGate()) both may
// be the same values. limit: of kSwiglu and kSwigluGate (FeedForwardSpec); 0: none.
void Join(Activation activation, std::span<const float> up, std::span<float> gate,
          float limit = 0.0F);

// The same in a graph: a node for activation(gate, up). gate: not used if the activation has none.
ggml_tensor* Activate(ggml_context* ctx, Activation activation, ggml_tensor* gate, ggml_tensor* up,
                      float limit = 0.0F);

// The most bytes that a node uses of each thread's stack.
inline constexpr uint64_t kProductStackBytes = uint64_t{100} * 1024;

// weight^T x: weight [n_in, n_out], x F32 [n_in, rows] -> [n_out, rows].
ggml_tensor* MultiplyNode(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x);

// Whether one node can multiply all of `weights`: our kernels do, and read x in one form.
bool ShareNode(std::span<ggml_tensor* const> weights);

// A norm of each row of activations before its product, in the same node.
struct InputNorm {
  static constexpr int64_t kMostValues = 16384;  // values of a row, at most
  const RowNorm* norm = nullptr;  // lives as long as the graph; null: x is normed already
  ggml_tensor* weight = nullptr;  // F32 [n_in]
};

// The products of each of `weights` with one x F32 [n_in, rows], normed first if `norm` has a norm
// -> `products` [n_out, rows]: views of one tensor. x is quantised once, or once by each thread if
// rows are few. REQUIRES: ShareNode(weights); as many products; with a norm n_in <= kMostValues.
void MultiplyNodes(ggml_context* ctx, std::span<ggml_tensor* const> weights, ggml_tensor* x,
                   std::span<ggml_tensor*> products, const InputNorm& norm = {});

}  // namespace moestro
