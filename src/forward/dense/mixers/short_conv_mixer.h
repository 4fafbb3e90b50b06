// SPDX-License-Identifier: MIT
// A short convolution over the rows of a sequence, between two gates.
#pragma once

#include <memory>

#include "core/model_spec.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

// Computes on the CPU.
std::unique_ptr<Mixer> MakeShortConvMixer(const MixerParts& parts, const ShortConvSpec& spec);

}  // namespace moestro
