// SPDX-License-Identifier: MIT
// Checks whether an engine can compute a batch.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "core/batch.h"
#include "core/model_spec.h"
#include "memory/sequence.h"

namespace moestro {

struct BatchRules {
  const ModelSpec& spec;
  uint32_t n_ctx = 0;
  uint32_t chunk = 0;
  bool has_low = false;  // every expert has a low copy
};

// kInvalidRequest: no rows, a little step that the engine cannot take, an unknown sequence, a token
// out of range, a position that does not follow or is past n_ctx, foreseen experts of another
// shape. For a model with an encoder also: a source that is not whole, that other rows interrupt,
// that is longer than a chunk, or whose rows want logits.
Status CheckBatch(const Batch& batch, const SequenceTable& sequences, const BatchRules& rules);

}  // namespace moestro
