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
// The model that a file of this shape is read as, as far as tensors show it.
// REQUIRES: the architecture is known.
ModelSpec SpecOf(const SynthShape& shape);
// A stock file of this shape has such a tensor.
bool IsWritten(Presence presence);

}  // namespace moestro
