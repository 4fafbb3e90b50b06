// SPDX-License-Identifier: MIT
// Phi-3.5-MoE: norms and projections with biases, two sets of rope factors, and a query that is
// scaled before the scores are taken.
#include "graph/arch.h"

namespace moestro {

ArchChoices PhimoeChoices() {
  return {.rope_pairs = RopePairs::kHalves, .scale_query = true, .long_short_factors = true};
}

}  // namespace moestro
