// SPDX-License-Identifier: MIT
// A gated delta net over the rows of a sequence: each value head has a matrix that every row
// changes, instead of keys and values of all positions.
#pragma once

#include <memory>

#include "base/result.h"
#include "core/model_spec.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

// Computes on the CPU. kNoMemory.
Result<std::unique_ptr<Mixer>> MakeDeltaNetMixer(const MixerParts& parts, const DeltaNetSpec& spec);

}  // namespace moestro
