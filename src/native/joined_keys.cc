// SPDX-License-Identifier: MIT
#include "native/joined_keys.h"

#include <cstddef>

namespace moestro {
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
