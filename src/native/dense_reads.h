// SPDX-License-Identifier: MIT
// Which bytes beside the experts a pass over the layers cannot avoid reading from memory: every
// weight once for all of its rows, and what the rows look back at.
#pragma once

#include <cstdint>
#include <span>

#include "core/batch.h"
#include "core/model_spec.h"
#include "memory/layer_memory.h"
#include "model/weights.h"

namespace moestro {

struct DenseReads {
  uint64_t weights = 0;    // of all passes: everything but what follows
  uint64_t head = 0;       // the output matrix, if a row wants logits
  uint64_t embedding = 0;  // of one token
  uint64_t position = 0;   // its key and value in all layers
  uint64_t state = 0;      // of one sequence in all layers, read and written

  // Bytes as they stand in the file; repacked layouts take as many.
  static DenseReads Of(const ModelWeights& weights, const ModelSpec& spec,
                       const MemoryShape& remembers);
  // A sequence's positions count once, for its last row.
  uint64_t OfPass(std::span<const BatchRow> rows) const;
};

}  // namespace moestro
