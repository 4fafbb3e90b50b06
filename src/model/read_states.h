// SPDX-License-Identifier: MIT
// Metadata -> mixers with a state, and the layers that have them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "core/model_spec.h"
#include "model/families/family.h"
#include "model/meta_keys.h"

namespace moestro {

// Finds those of the first `n_evaluated` of `n_all` layers that have a state, by
// StateLayers::kByInterval. kInvalidFile.
Result<std::vector<bool>> FindStateLayers(const MetaKeys& keys, uint32_t n_all,
                                          uint32_t n_evaluated);

// Read a layer's state mixer. kInvalidFile; kUnsupported: a size for which no kernel exists.
Result<DeltaNetSpec> ReadDeltaNet(const MetaKeys& keys, const StateRules& rules);
// n_all: layers of the file.
Result<DeltaNetSpec> ReadKimiDelta(const MetaKeys& keys, uint32_t n_all);
Result<Mamba2Spec> ReadMamba2(const MetaKeys& keys);
Result<ShortConvSpec> ReadShortConv(const MetaKeys& keys, uint32_t n_embd);

}  // namespace moestro
