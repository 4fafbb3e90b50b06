// SPDX-License-Identifier: MIT
// Metadata -> latent attention. Keys and defaults follow gguf-py's constants and libllama's loader.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/families/family.h"
#include "model/meta_keys.h"

namespace moestro {

// Latent attention of each of the first `n_layer` of `n_all` layers. The projecting matrices follow
// from the file's tensors. kInvalidFile, kUnsupported, with the key in the message.
Result<std::vector<LatentAttentionSpec>> ReadLatentAttention(const MetaKeys& keys,
                                                             const LatentRules& rules,
                                                             uint32_t n_all, uint32_t n_layer,
                                                             uint32_t n_ctx_train);

}  // namespace moestro
