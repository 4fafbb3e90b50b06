// SPDX-License-Identifier: MIT
// Metadata of mixers: rotation, latent attention, states.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/families/families.h"
#include "model/file_checks.h"

namespace moestro {

// Metadata -> the rotation of heads by position.

// `head_dim`: rotated dimensions if the file lacks the key for them. kInvalidFile, kUnsupported.
Result<RopeSpec> ReadRope(const MetaKeys& keys, uint32_t head_dim, uint32_t n_ctx_train);

// kInvalidFile: not above 0.
Result<float> ReadRopeBase(const MetaKeys& keys, std::string_view key, float fallback);

// Metadata -> latent attention. Keys and defaults follow gguf-py's constants and libllama's loader.

struct LatentLayers {
  uint32_t n_all = 0;           // layers of the file
  std::vector<bool> are_there;  // [evaluated layer]; false: the layer has another mixer
  uint32_t n_layer() const { return static_cast<uint32_t>(are_there.size()); }
};
// Latent attention of each evaluated layer; of a layer with another mixer it means nothing. The
// projecting matrices follow from the file's tensors. kInvalidFile, kUnsupported, with the key in
// the message.
Result<std::vector<LatentAttentionSpec>> ReadLatentAttention(const MetaKeys& keys,
                                                             const LatentRules& rules,
                                                             const LatentLayers& which,
                                                             uint32_t n_ctx_train);

// Metadata -> pooled attention of each evaluated layer. n_all: layers of the file. kInvalidFile,
// kUnsupported, with the key in the message.
Result<std::vector<PooledAttentionSpec>> ReadPooledAttention(const MetaKeys& keys,
                                                             RopePairs rope_pairs, uint32_t n_all,
                                                             uint32_t n_evaluated,
                                                             uint32_t n_ctx_train);

// Metadata -> mixers with a state, and the layers that have them.

// Finds those of the first `n_evaluated` of `n_all` layers that have a state, by
// StateLayers::kByInterval. kInvalidFile.
Result<std::vector<bool>> FindStateLayers(const MetaKeys& keys, uint32_t n_all,
                                          uint32_t n_evaluated);

// Read a layer's state mixer. kInvalidFile; kUnsupported: a size for which no kernel exists.
Result<DeltaNetSpec> ReadDeltaNet(const MetaKeys& keys, const StateRules& rules);
// n_all: layers of the file.
Result<DeltaNetSpec> ReadKimiDelta(const MetaKeys& keys, const StateRules& rules, uint32_t n_all);
Result<Mamba2Spec> ReadMamba2(const MetaKeys& keys);
Result<ShortConvSpec> ReadShortConv(const MetaKeys& keys, uint32_t n_embd);

}  // namespace moestro
