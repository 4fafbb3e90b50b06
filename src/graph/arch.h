// SPDX-License-Identifier: MIT
// What tells one family of models from another once the shapes are known: one file of choices per
// architecture under arch/. Which optional tensors exist (biases, norms, shared experts) is read
// off the file, not listed here.
#pragma once

#include <cstdint>

#include "core/model_spec.h"

namespace moestro {

enum class RopePairs : uint8_t {
  kAdjacent,  // dimensions (2i, 2i+1)
  kHalves,    // dimensions (i, i + n/2)
};

enum class QkNorm : uint8_t {
  kNone,
  kPerHead,     // RMS over each head, before rotation
  kWholeVector  // RMS over all heads together, before rotation
};

struct ArchChoices {
  RopePairs rope_pairs = RopePairs::kHalves;
  QkNorm qk_norm = QkNorm::kNone;
  // The query is scaled after rotation instead of the attention scores.
  bool scale_query = false;
  // Rope factors come in a long and a short set, chosen by the context size.
  bool long_short_factors = false;
};

ArchChoices LlamaChoices();
ArchChoices Qwen2MoeChoices();
ArchChoices Qwen3MoeChoices();
ArchChoices OlmoeChoices();
ArchChoices PhimoeChoices();

ArchChoices ChoicesFor(Arch arch);

}  // namespace moestro
