// SPDX-License-Identifier: MIT
// Metadata -> the rotation of heads by position.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/meta_keys.h"

namespace moestro {

// `head_dim`: rotated dimensions if the file lacks the key for them. kInvalidFile, kUnsupported.
Result<RopeSpec> ReadRope(const MetaKeys& keys, uint32_t head_dim, uint32_t n_ctx_train);

// kInvalidFile: not above 0.
Result<float> ReadRopeBase(const MetaKeys& keys, std::string_view key, float fallback);

}  // namespace moestro
