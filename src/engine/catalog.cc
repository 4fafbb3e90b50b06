// SPDX-License-Identifier: MIT
#include "engine/catalog.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>

#include "core/ids.h"

namespace moestro {

ExpertCatalog MakeCatalog(const ModelWeights& weights) {
  ExpertCatalog catalog;
  for (const LayerWeights& layer : weights.layers) {
    if (layer.experts.is_empty()) continue;
    PoolShape shape;
    ExpertCatalog::Layer entry;
    for (size_t m = 0; m < kMatrices; ++m) {
      shape.slice_bytes[m] = layer.experts.matrices[m].slice_bytes;
      entry.slices[m] = layer.experts.matrices[m].slices;
    }
    const auto same = [&](const PoolShape& pool) { return pool.slice_bytes == shape.slice_bytes; };
    const auto found = std::ranges::find_if(catalog.pools, same);
    entry.pool = static_cast<uint32_t>(found - catalog.pools.begin());
    if (found == catalog.pools.end()) catalog.pools.push_back(shape);
    catalog.pools[entry.pool].experts += entry.slices[0].size();
    catalog.layers.push_back(std::move(entry));
  }
  return catalog;
}

Result<std::vector<LayerKernels>> FindLayerKernels(const ModelWeights& weights, bool own_kernels) {
  std::vector<LayerKernels> layers;
  std::map<ggml_type, ExpertKernel> known;
  for (const LayerWeights& layer : weights.layers) {
    if (layer.experts.is_empty()) continue;
    LayerKernels kernels;
    for (size_t m = 0; m < kMatrices; ++m) {
      const ExpertMatrix& matrix = layer.experts.matrices[m];
      if (!known.contains(matrix.type)) {
        TRY(ExpertKernel kernel, FindExpertKernel(matrix.type, own_kernels));
        known.emplace(matrix.type, kernel);
      }
      kernels.kernel[m] = known.at(matrix.type);
      kernels.row_bytes[m] = ggml_row_size(matrix.type, matrix.n_in);
    }
    kernels.n_embd = layer.experts[Matrix::kGate].n_in;
    kernels.n_ff = layer.experts[Matrix::kGate].n_out;
    layers.push_back(kernels);
  }
  return layers;
}

void AddForm(const ModelSpec& spec, const ModelTensors& tensors, std::span<LayerKernels> kernels) {
  const auto values = [](const ggml_tensor* t) {
    return t != nullptr ? static_cast<const float*>(t->data) : nullptr;
  };
  for (size_t l = 0; l < tensors.layers.size(); ++l) {
    if (!spec.has_experts(l)) continue;
    const LayerTensors& tensor = tensors.layers[l];
    LayerKernels& layer = kernels[spec.expert_layers_before(l)];
    layer.activation = spec.experts.activation;
    layer.bias = {values(tensor.gate_b), values(tensor.up_b), values(tensor.down_b)};
    if (tensor.selection_b != nullptr) {
      layer.selection_bias = {values(tensor.selection_b), spec.router.n_expert};
    }
  }
}

ExpertExec::Limits ExecLimits(const ModelSpec& spec, std::span<const LayerKernels> kernels,
                              uint32_t chunk) {
  ExpertExec::Limits limits{.tokens = chunk,
                            .n_used = spec.router.n_used,
                            .n_expert = spec.router.n_expert,
                            .n_embd = spec.n_embd};
  for (const LayerKernels& layer : kernels) {
    limits.n_ff = std::max(limits.n_ff, layer.n_ff);
    const auto bytes = [&](Matrix m, uint32_t n) {
      return layer.kernel[static_cast<size_t>(m)].activation_bytes(n);
    };
    limits.activation_bytes_embd =
        std::max({limits.activation_bytes_embd, bytes(Matrix::kGate, layer.n_embd),
                  bytes(Matrix::kUp, layer.n_embd)});
    limits.activation_bytes_ff =
        std::max(limits.activation_bytes_ff, bytes(Matrix::kDown, layer.n_ff));
  }
  return limits;
}

}  // namespace moestro
