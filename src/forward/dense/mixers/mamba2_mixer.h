// SPDX-License-Identifier: MIT
// Mamba-2 over the rows of a sequence: each head has a matrix that every row changes, instead of
// keys and values of all positions.
#pragma once

#include <memory>

#include "base/result.h"
#include "core/model_spec.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

// Computes on the CPU. kNoMemory.
Result<std::unique_ptr<Mixer>> MakeMamba2Mixer(const MixerParts& parts, const Mamba2Spec& spec);

}  // namespace moestro
