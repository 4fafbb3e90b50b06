// SPDX-License-Identifier: MIT
// Qwen1.5-MoE, Qwen2-MoE: biases on q, k, v and a shared expert, both seen from the tensors.
#include "graph/arch.h"

namespace moestro {

ArchChoices Qwen2MoeChoices() { return {.rope_pairs = RopePairs::kHalves}; }

}  // namespace moestro
