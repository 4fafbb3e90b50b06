// SPDX-License-Identifier: MIT
#include "native/joined_keys.h"

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "base/bytes.h"

namespace moestro {
namespace {

constexpr uint64_t kAlignment = 64;

// nullptr: the layer has no such matrix.
const LatentAttentionSpec* JoinedOf(const LayerSpec& layer) {
  const LatentAttentionSpec* latent = layer.latent_attention();
  return latent != nullptr && latent->is_joined ? latent : nullptr;
}

ggml_type TurnedType(ggml_type joined) {
  return joined == GGML_TYPE_F32 ? GGML_TYPE_F32 : GGML_TYPE_F16;
}

uint64_t BytesOf(const LatentAttentionSpec& spec, ggml_type joined) {
  const uint64_t values = uint64_t{spec.n_head} * spec.n_plain * spec.n_latent;
  return AlignUp(values * ggml_type_size(TurnedType(joined)), kAlignment);
}

}  // namespace

uint64_t JoinedKeys::BytesFor(const ModelSpec& spec, const ModelWeights& weights) {
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < spec.n_layer(); ++l) {
    const LatentAttentionSpec* joined = JoinedOf(spec.layers[l]);
    if (joined != nullptr) bytes += BytesOf(*joined, weights.layers[l].latent_kv_b->type);
  }
  return bytes;
}

Result<JoinedKeys> JoinedKeys::Allocate(const ModelSpec& spec, const ModelWeights& weights,
                                        ModelTensors& tensors) {
  JoinedKeys keys;
  if (BytesFor(spec, weights) == 0) return keys;
  TRY(keys.buffer_, BackendBuffer::OnHost(BytesFor(spec, weights)));
  keys.context_.reset(ggml_init({.mem_size = (spec.n_layer() + 1) * ggml_tensor_overhead(),
                                 .mem_buffer = nullptr,
                                 .no_alloc = true}));
  uint64_t at = 0;
  for (uint32_t l = 0; l < spec.n_layer(); ++l) {
    const LatentAttentionSpec* joined = JoinedOf(spec.layers[l]);
    if (joined == nullptr) continue;
    const ggml_type type = weights.layers[l].latent_kv_b->type;
    ggml_tensor* to = ggml_new_tensor_3d(keys.context_.get(), TurnedType(type), joined->n_plain,
                                         joined->n_latent, joined->n_head);
    keys.buffer_.Place(to, at);
    at += BytesOf(*joined, type);
    keys.turned_.push_back({.layer = l, .spec = *joined, .to = to});
    tensors.layers[l].latent_k_b = to;
  }
  return keys;
}

void JoinedKeys::Fill(const ModelTensors& tensors) const {
  for (const Turned& turned : turned_) FillOne(turned, tensors.layers[turned.layer].latent_kv_b);
}

// joined: of each head n_plain rows of n_latent values for keys, then head_dim_v rows for values.
void JoinedKeys::FillOne(const Turned& turned, const ggml_tensor* joined) {
  const LatentAttentionSpec& spec = turned.spec;
  const ggml_to_float_t to_float = ggml_get_type_traits(joined->type)->to_float;
  std::vector<float> row(spec.n_latent);
  for (size_t head = 0; head < spec.n_head; ++head) {
    for (size_t i = 0; i < spec.n_plain; ++i) {
      const auto* from = static_cast<const std::byte*>(joined->data) +
                         (head * (spec.n_plain + spec.head_dim_v) + i) * joined->nb[1];
      if (joined->type == GGML_TYPE_F32) {
        std::memcpy(row.data(), from, row.size() * sizeof(float));
      } else {
        to_float(from, row.data(), spec.n_latent);
      }
      auto* to =
          static_cast<std::byte*>(turned.to->data) + head * turned.to->nb[2] + i * turned.to->nb[0];
      for (size_t r = 0; r < row.size(); ++r, to += turned.to->nb[1]) {
        if (turned.to->type == GGML_TYPE_F32) {
          std::memcpy(to, &row[r], sizeof(float));
        } else {
          const ggml_fp16_t half = ggml_fp32_to_fp16(row[r]);
          std::memcpy(to, &half, sizeof half);
        }
      }
    }
  }
}

}  // namespace moestro
