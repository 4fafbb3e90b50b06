// SPDX-License-Identifier: MIT
// The nodes by which libllama's graph chooses experts, found from the chosen ids backwards:
//
//   ids <- the K largest <- [+ selection bias] <- [softmax or sigmoid] <- [+ bias] <- matrix x
//   input
//
// A router of any other form is not found: groups of experts, tables of tokens, other functions,
// quantised matrices.
#pragma once

#include <ggml.h>

#include <optional>

#include "core/model_spec.h"

namespace moestro {

// Tensors of the model, which outlive a graph.
struct RouterTensors {
  const ggml_tensor* matrix = nullptr;          // [n_embd, n_expert]
  const ggml_tensor* bias = nullptr;            // [n_expert] in F32; null: none
  const ggml_tensor* selection_bias = nullptr;  // nullptr: none
  Gating gating = Gating::kSoftmaxOfChosen;     // function from logits to scores before the choice
};

struct RouterNodes {
  RouterTensors tensors;
  const ggml_tensor* input = nullptr;  // [n_embd, rows] in F32, of the graph
};

// The tensor under all views; `tensor` itself if it is no view.
const ggml_tensor* BaseOf(const ggml_tensor* tensor);

// REQUIRES: the graph that computes `ids` exists.
std::optional<RouterNodes> FindRouter(const ggml_tensor& ids);

}  // namespace moestro
