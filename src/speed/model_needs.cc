// SPDX-License-Identifier: MIT
#include "speed/model_needs.h"

#include <ggml.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "model/tensor_names.h"

namespace moestro {
namespace {

void Add(UseByType& uses, ggml_type type, uint64_t bytes, uint64_t weights) {
  WeightUse& use = uses[ggml_type_name(type)];
  use.bytes += bytes;
  use.weights += weights;
}

uint64_t WeightsOf(const TensorInfo& tensor) {
  return static_cast<uint64_t>(tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3]);
}

// Norms and biases are read too, but take no time beside matrices.
// Of the layers from `first` on.
void AddDense(const ModelWeights& weights, size_t first, ModelNeeds& needs) {
  for (const TensorInfo* tensor : weights.dense_tensors()) {
    if (LayerOfTensorName(tensor->name).value_or(first) < first) continue;
    const bool is_looked_up = tensor == weights.token_embd && weights.output != weights.token_embd;
    if (is_looked_up || tensor->ne[1] == 1) continue;
    Add(needs.dense, tensor->type, tensor->extent.length, WeightsOf(*tensor));
  }
}

// The mean expert of each layer, K times.
void AddExperts(const LayerExperts& experts, uint32_t n_used, ModelNeeds& needs) {
  for (const ExpertMatrix& matrix : experts.matrices) {
    const size_t n = matrix.types.size();
    for (size_t e = 0; e < n; ++e) {
      const auto type = matrix.types[e];
      const uint64_t weights = uint64_t{matrix.n_in} * matrix.n_out;
      const uint64_t bytes = ggml_row_size(type, matrix.n_in) * matrix.n_out;
      Add(needs.experts, type, bytes * n_used / n, weights * n_used / n);
      needs.all_experts += bytes;
    }
  }
}

void SetMeanExpert(ModelNeeds& needs) {
  const uint64_t experts = needs.shape.experts();
  needs.expert_bytes = experts > 0 ? needs.all_experts / experts : 0;
}

}  // namespace

bool IsExpertsName(std::string_view name) { return name.contains("_exps"); }

ModelNeeds NeedsByName(const GgufFile& file, const std::string& family, const MoeShape& shape) {
  constexpr std::string_view kEmbedding = "token_embd.weight";
  ModelNeeds needs{.family = family, .shape = shape, .n_layer = shape.n_layer};
  const bool is_tied = file.Find("output.weight") == nullptr;
  for (const TensorInfo& tensor : file.tensors()) {
    if (tensor.ne[1] == 1 || (tensor.name == kEmbedding && !is_tied)) continue;
    if (!IsExpertsName(tensor.name)) {
      Add(needs.dense, tensor.type, tensor.extent.length, WeightsOf(tensor));
      continue;
    }
    needs.all_experts += tensor.extent.length;
    Add(needs.experts, tensor.type, tensor.extent.length * shape.n_used / shape.n_expert,
        WeightsOf(tensor) * shape.n_used / shape.n_expert);
  }
  SetMeanExpert(needs);
  return needs;
}

ModelNeeds NeedsOf(const ModelFile& model) {
  ModelNeeds needs{
      .family = model.spec.arch_name, .shape = model.id.shape, .n_layer = model.spec.n_layer()};
  // A token that is decoded goes through the decoder alone, and a prompt's through the encoder,
  // which is as deep.
  const size_t first = model.spec.encoder ? model.spec.encoder->n_layer : 0;
  needs.row_bytes = uint64_t{model.spec.n_embd_expert()} * sizeof(float);
  AddDense(model.weights, first, needs);
  for (size_t l = 0; l < model.weights.layers.size(); ++l) {
    AddExperts(model.weights.layers[l].experts, l >= first ? needs.shape.n_used : 0, needs);
  }
  SetMeanExpert(needs);
  needs.shape.n_layer -= std::exchange(needs.shape.n_encoder, 0);
  needs.n_layer -= static_cast<uint32_t>(first);
  return needs;
}

}  // namespace moestro
