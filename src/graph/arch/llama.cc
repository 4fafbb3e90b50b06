// SPDX-License-Identifier: MIT
// Mixtral: converters permute q and k so that rotation works on adjacent pairs.
#include "graph/arch.h"

namespace moestro {

ArchChoices LlamaChoices() { return {.rope_pairs = RopePairs::kAdjacent}; }

}  // namespace moestro
