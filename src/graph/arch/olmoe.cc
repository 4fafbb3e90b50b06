// SPDX-License-Identifier: MIT
// OLMoE: q and k are normalised as whole vectors before they are cut into heads.
#include "graph/arch.h"

namespace moestro {

ArchChoices OlmoeChoices() {
  return {.rope_pairs = RopePairs::kHalves, .qk_norm = QkNorm::kWholeVector};
}

}  // namespace moestro
