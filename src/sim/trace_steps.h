// SPDX-License-Identifier: MIT
// Finds the tokens of a trace that go through the layers together. Pure functions of values.
#pragma once

#include <cstddef>

#include "trace/trace.h"

namespace moestro {

struct StepSize {
  size_t prefill_chunk = 512;  // tokens of a prompt, if the trace does not say
  // Consecutive decode tokens of a sequence in a step, if the trace was recorded one token at a
  // time.
  size_t rows = 1;
};

// The tokens computed together with `first`: the tokens recorded together, else the rest of the
// prompt or of the sequence, at most `size`, or a whole source. REQUIRES: first < tokens().
size_t TokensOfStep(const Trace& trace, size_t first, const StepSize& size);

// Whether some decode tokens were recorded together.
bool HasStepsOfRows(const Trace& trace);

}  // namespace moestro
