// SPDX-License-Identifier: MIT
#include "native/catalog.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>

#include "core/ids.h"

namespace moestro {

namespace {

// Adds the copies of one layer. File numbers of the slices count from `first_file`.
void AddLayer(const LayerExperts& experts, ExpertLayerId layer, uint32_t first_file,
              ExpertCatalog& catalog) {
  CopyForm form{.n_embd = experts[Matrix::kUp].n_in, .n_ff = experts[Matrix::kUp].n_out};
  for (uint16_t e = 0; e < experts[Matrix::kUp].slices.size(); ++e) {
    std::array<Extent, kMatrices> slices;
    for (size_t m = 0; m < kMatrices; ++m) {
      if (experts.matrices[m].slices.empty()) {
        form.types[m] = CopyForm::kNoMatrix;
        continue;
      }
      form.types[m] = experts.matrices[m].types[e];
      slices[m] = experts.matrices[m].slices[e];
      slices[m].file += first_file;
    }
    if (experts.is_fused) {  // one read brings gate and up
      slices[static_cast<size_t>(Matrix::kGate)].length *= 2;
      slices[static_cast<size_t>(Matrix::kUp)] = {};
    }
    catalog.Add(layer, ExpertId{e}, form, slices, experts.is_fused);
  }
}

}  // namespace

ExpertCatalog MakeCatalog(const ModelWeights& weights) {
  ExpertCatalog catalog;
  uint16_t l = 0;  // counts the layers with experts
  for (const LayerWeights& layer : weights.layers) {
    if (!layer.experts.is_empty()) AddLayer(layer.experts, ExpertLayerId{l++}, 0, catalog);
  }
  return catalog;
}

void AddLowCopies(const LowCopies& low, uint32_t first_file, ExpertCatalog& catalog) {
  for (uint16_t l = 0; l < low.layers.size(); ++l) {
    AddLayer(low.layers[l], ExpertLayerId{l}, first_file, catalog);
  }
}

uint64_t BytesOf(const ExpertCatalog& catalog, ExpertKey key) {
  uint64_t bytes = 0;
  for (const Extent& slice : catalog.copy(key).slices) bytes += slice.length;
  return bytes;
}

Result<std::vector<FormKernels>> FindFormKernels(const ExpertCatalog& catalog, bool own_kernels) {
  std::vector<FormKernels> forms;
  std::map<ggml_type, ExpertKernel> known;
  for (const CopyForm& form : catalog.forms) {
    FormKernels kernels{.kernel = {}, .n_embd = form.n_embd, .n_ff = form.n_ff};
    for (size_t m = 0; m < kMatrices; ++m) {
      if (!form.has(m)) continue;
      const auto type = static_cast<ggml_type>(form.types[m]);
      if (!known.contains(type)) {
        TRY(ExpertKernel kernel, FindExpertKernel(type, own_kernels));
        known.emplace(type, kernel);
      }
      kernels.kernel[m] = known.at(type);
      const bool is_down = static_cast<Matrix>(m) == Matrix::kDown;
      kernels.row_bytes[m] = ggml_row_size(type, is_down ? form.n_ff : form.n_embd);
    }
    forms.push_back(kernels);
  }
  return forms;
}

std::vector<LayerForm> LayerFormsOf(const ModelSpec& spec, const ModelTensors& tensors) {
  const auto values = [](const ggml_tensor* t) {
    return t != nullptr ? static_cast<const float*>(t->data) : nullptr;
  };
  std::vector<LayerForm> forms;
  for (size_t l = 0; l < tensors.layers.size(); ++l) {
    if (!spec.has_experts(l)) continue;
    const LayerTensors& tensor = tensors.layers[l];
    LayerForm form;
    form.activation = spec.experts.activation;
    form.limit = spec.layers[l].feed_forward.limit_expert;
    form.bias = {values(tensor.gate_b), values(tensor.up_b), values(tensor.down_b)};
    if (tensor.router_b != nullptr) {
      form.router_bias = {values(tensor.router_b), spec.router.n_expert};
    }
    if (tensor.selection_b != nullptr) {
      form.selection_bias = {values(tensor.selection_b), spec.router.n_expert};
    }
    if (tensor.token_experts != nullptr) {
      form.of_tokens = {static_cast<const int32_t*>(tensor.token_experts->data),
                        static_cast<size_t>(ggml_nelements(tensor.token_experts))};
    }
    if (tensor.down_scale != nullptr) {
      form.result_scale = {values(tensor.down_scale), spec.router.n_expert};
    }
    forms.push_back(form);
  }
  return forms;
}

namespace {

struct Found {
  std::vector<uint32_t> layers;
  std::vector<TurnedHeads::Matrix> matrices;
};

Found Find(const ModelSpec& spec, const ModelWeights& weights) {
  Found found;
  for (uint32_t l = 0; l < spec.n_layer(); ++l) {
    const LatentAttentionSpec* latent = spec.layers[l].latent_attention();
    if (latent == nullptr || !latent->is_joined) continue;
    found.layers.push_back(l);
    found.matrices.push_back({.type = weights.layers[l].latent_kv_b->type,
                              .n_row = latent->n_latent,
                              .n_head = latent->n_head,
                              .n_turned = latent->n_plain,
                              .n_left = latent->head_dim_v});
  }
  return found;
}

}  // namespace

uint64_t JoinedKeys::BytesFor(const ModelSpec& spec, const ModelWeights& weights) {
  return TurnedHeads::BytesFor(Find(spec, weights).matrices);
}

Result<JoinedKeys> JoinedKeys::Allocate(const ModelSpec& spec, const ModelWeights& weights,
                                        ModelTensors& tensors) {
  const Found found = Find(spec, weights);
  JoinedKeys joined;
  joined.layers_ = found.layers;
  TRY(joined.keys_, TurnedHeads::Allocate(found.matrices));
  for (size_t i = 0; i < found.layers.size(); ++i) {
    tensors.layers[found.layers[i]].latent_k_b = joined.keys_.tensor(i);
  }
  return joined;
}

void JoinedKeys::Fill(const ModelTensors& tensors) const {
  for (size_t i = 0; i < layers_.size(); ++i) {
    keys_.Fill(i, tensors.layers[layers_[i]].latent_kv_b);
  }
}

}  // namespace moestro
