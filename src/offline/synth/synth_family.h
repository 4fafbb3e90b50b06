// SPDX-License-Identifier: MIT
// Parts of a synthetic model of a family, by the family's own description (model/families).
#pragma once

#include <string_view>

#include "core/model_spec.h"
#include "model/families/family.h"
#include "offline/synth/synth_shapes.h"

namespace moestro {

// Sizes of relative positions, where a model has them: those of T5.
inline constexpr uint32_t kSynthBuckets = 32;
inline constexpr uint32_t kSynthDistance = 128;

// nullptr: unknown.
const Family* FindSynthFamily(std::string_view arch);
// The ModelSpec of a file of this shape, as far as the tensors determine it.
// REQUIRES: the architecture is known.
ModelSpec SpecOf(const SynthShape& shape);
// Whether a stock file has a tensor of this presence.
bool IsWritten(Presence presence);

}  // namespace moestro
