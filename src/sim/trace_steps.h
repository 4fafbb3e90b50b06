// SPDX-License-Identifier: MIT
// Which tokens of a trace go through the layers together, and what routing them did. Pure functions
// of values.
#pragma once

#include <cstddef>
#include <vector>

#include "core/batch.h"
#include "core/routing.h"
#include "trace/trace.h"

namespace moestro {

struct StepSize {
  size_t prefill_chunk = 512;  // tokens of a prompt
  // Consecutive decode tokens of a sequence, where the trace was recorded one at a time.
  size_t rows = 1;
};

// The tokens computed together with `first`: those recorded so, else what is left of the prompt or
// of the sequence, as far as `size` allows. REQUIRES: first < tokens().
size_t TokensOfStep(const Trace& trace, size_t first, const StepSize& size);

// Whether some decode tokens were recorded together.
bool HasStepsOfRows(const Trace& trace);

struct RoutedRows {
  Routing routing;
  std::vector<RowKind> kinds;  // [row]
};

// `n` tokens from `first` on at a layer. Weights where the trace has them.
RoutedRows RowsOf(const Trace& trace, size_t first, size_t n, uint32_t layer);

}  // namespace moestro
