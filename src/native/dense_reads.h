// SPDX-License-Identifier: MIT
// Counts the bytes beside the experts that a pass over the layers must read from memory: every
// weight once for all rows of the pass, and the keys, values and states that the rows use.
#pragma once

#include <cstdint>
#include <span>

#include "core/batch.h"
#include "core/model_spec.h"
#include "memory/layer_memory.h"
#include "model/model_file.h"

namespace moestro {

struct DenseReads {
  uint64_t weights = 0;    // bytes of every pass: all weights except the two below
  uint64_t head = 0;       // the output matrix, if a row has logits
  uint64_t embedding = 0;  // the embedding of one token
  uint64_t position = 0;   // the key and value of a position in all layers
  uint64_t state = 0;      // the state of one sequence in all layers, read and written

  // Bytes as in the file; repacked layouts have the same size.
  static DenseReads Of(const ModelWeights& weights, const ModelSpec& spec,
                       const MemoryShape& remembers);
  // A sequence's positions count once, for its last row.
  uint64_t OfPass(std::span<const BatchRow> rows) const;
};

}  // namespace moestro
