// SPDX-License-Identifier: MIT
#include "hosted/router_nodes.h"

namespace moestro {
namespace {

bool IsOfModel(const ggml_tensor* tensor) {
  return tensor != nullptr && tensor->op == GGML_OP_NONE && tensor->view_src == nullptr;
}

bool IsMove(const ggml_tensor& node) {
  return node.op == GGML_OP_VIEW || node.op == GGML_OP_RESHAPE || node.op == GGML_OP_CONT;
}

// A node's sum of a row of the model and another source.
struct Sum {
  const ggml_tensor* row = nullptr;
  const ggml_tensor* other = nullptr;
};

std::optional<Sum> SumOf(const ggml_tensor& node) {
  if (node.op != GGML_OP_ADD) return std::nullopt;
  const ggml_tensor* const row = node.src[1];
  const bool is_row = IsOfModel(row) && row->type == GGML_TYPE_F32 && row->ne[0] == node.ne[0] &&
                      ggml_nelements(row) == row->ne[0];
  if (!is_row) return std::nullopt;
  return Sum{.row = row, .other = node.src[0]};
}

std::optional<Gating> GatingOf(const ggml_tensor& node) {
  if (node.op == GGML_OP_SOFT_MAX && node.src[1] == nullptr) return Gating::kSoftmax;
  if (node.op == GGML_OP_UNARY && ggml_get_unary_op(&node) == GGML_UNARY_OP_SIGMOID) {
    return Gating::kSigmoid;
  }
  return std::nullopt;
}

const ggml_tensor* SkipMoves(const ggml_tensor* tensor) {
  while (tensor != nullptr && IsMove(*tensor)) tensor = tensor->src[0];
  return tensor;
}

// Takes a sum away from the end of the chain.
const ggml_tensor* TakeSum(const ggml_tensor*& at) {
  at = SkipMoves(at);
  const std::optional<Sum> sum = at != nullptr ? SumOf(*at) : std::nullopt;
  if (!sum) return nullptr;
  at = SkipMoves(sum->other);
  return sum->row;
}

}  // namespace

const ggml_tensor* BaseOf(const ggml_tensor* tensor) {
  while (tensor->view_src != nullptr) tensor = tensor->view_src;
  return tensor;
}

std::optional<RouterNodes> FindRouter(const ggml_tensor& ids) {
  const ggml_tensor* at = SkipMoves(&ids);
  if (at == nullptr || (at->op != GGML_OP_ARGSORT && at->op != GGML_OP_TOP_K)) return std::nullopt;
  at = at->src[0];
  RouterNodes found;
  RouterTensors& its = found.tensors;
  its.selection_bias = TakeSum(at);
  if (at == nullptr) return std::nullopt;
  if (const std::optional<Gating> gating = GatingOf(*at)) {
    its.gating = *gating;
    at = at->src[0];
    its.bias = TakeSum(at);
  } else {
    its.bias = TakeSum(at);
  }
  if (at == nullptr || at->op != GGML_OP_MUL_MAT || !IsOfModel(at->src[0])) return std::nullopt;
  its.matrix = at->src[0];
  found.input = at->src[1];
  const bool is_plain = ggml_is_matrix(its.matrix) && ggml_is_contiguous(its.matrix) &&
                        !ggml_is_quantized(its.matrix->type) &&
                        found.input->type == GGML_TYPE_F32 && ggml_is_contiguous(found.input);
  if (!is_plain) return std::nullopt;
  return found;
}

}  // namespace moestro
