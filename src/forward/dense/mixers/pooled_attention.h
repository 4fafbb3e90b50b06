// SPDX-License-Identifier: MIT
// Attention to the last positions and to pools of all earlier ones (PooledAttentionSpec).
//
// Thread rule: the engine thread; a mixer's own nodes run on all threads of the team.
#pragma once

#include <memory>

#include "base/result.h"
#include "core/model_spec.h"
#include "forward/dense/mixers/mixer.h"

namespace moestro {

// REQUIRES: MixerParts::chosen is not null if a layer has an indexer. kNoMemory; kDevice: it is
// computed in memory.
Result<std::unique_ptr<Mixer>> MakePooledAttentionMixer(const MixerParts& parts,
                                                        const PooledAttentionSpec& spec);

}  // namespace moestro
