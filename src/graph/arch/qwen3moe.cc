// SPDX-License-Identifier: MIT
// Qwen3 MoE: q and k are normalised per head before rotation.
#include "graph/arch.h"

namespace moestro {

ArchChoices Qwen3MoeChoices() {
  return {.rope_pairs = RopePairs::kHalves, .qk_norm = QkNorm::kPerHead};
}

}  // namespace moestro
