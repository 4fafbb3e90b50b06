// SPDX-License-Identifier: MIT
// Matrices times activations as nodes of a graph: by a kernel of ours or by ggml, all rows at once
// or one by one (WeightSet). The kernels treat each row of activations alone, so its product has
// the same bits however many there are; ggml's has in a set with rows_alike.
//
// Thread rule: the functions and the graph on the engine thread; the nodes themselves run on all
// threads of the team.
#pragma once

#include <ggml.h>

#include <cstdint>
#include <span>

#include "device/row_kernel.h"

namespace moestro {

// Of each thread's stack, at most.
inline constexpr uint64_t kProductStackBytes = uint64_t{100} * 1024;

// weight^T x: weight [n_in, n_out], x F32 [n_in, rows] -> [n_out, rows].
ggml_tensor* MultiplyNode(ggml_context* ctx, ggml_tensor* weight, ggml_tensor* x);

// True if one node multiplies all of `weights`: kernels do, and read x in the same form.
bool ShareNode(std::span<ggml_tensor* const> weights);

// A norm of each row of activations before it is multiplied, in the same node.
struct InputNorm {
  static constexpr int64_t kMostValues = 16384;  // of a row
  const RowNorm* norm = nullptr;  // lives as long as the graph; null: x is normed already
  ggml_tensor* weight = nullptr;  // F32 [n_in]
};

// The products of each of `weights` with the same x F32 [n_in, rows], normed first if `norm` says
// so -> `products` [n_out, rows]: views of one tensor. x is quantised once, or once by each thread
// if rows are few. REQUIRES: ShareNode(weights); as many products; of a norm n_in <= kMostValues.
void MultiplyNodes(ggml_context* ctx, std::span<ggml_tensor* const> weights, ggml_tensor* x,
                   std::span<ggml_tensor*> products, const InputNorm& norm = {});

}  // namespace moestro
