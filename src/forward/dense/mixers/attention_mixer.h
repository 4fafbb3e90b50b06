// SPDX-License-Identifier: MIT
// Self-attention over the cells of a row's own sequence: heads that share keys and values, rotated
// by position, with the norms, limits and biases of model families.
#pragma once

#include <memory>

#include "base/result.h"
#include "core/model_spec.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

// Attention in tiles on the CPU, with a mask on a device. kNoMemory, kDevice.
Result<std::unique_ptr<Mixer>> MakeAttentionMixer(const MixerParts& parts,
                                                  const AttentionSpec& spec);

}  // namespace moestro
