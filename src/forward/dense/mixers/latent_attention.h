// SPDX-License-Identifier: MIT
// Latent attention over the cells of a row's own sequence: all heads share one key of a position,
// whose latent is the value (core/model_spec.h).
//
// Thread rule: that of mixers (forward/dense/mixers/mixer.h).
#pragma once

#include <memory>

#include "base/result.h"
#include "core/model_spec.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

// Attention in tiles on the CPU, with a mask on a device. kNoMemory; kDevice, also for joined
// matrices, which are turned in memory.
Result<std::unique_ptr<Mixer>> MakeLatentAttentionMixer(const MixerParts& parts,
                                                        const LatentAttentionSpec& spec);

}  // namespace moestro
