// SPDX-License-Identifier: MIT
#include "sim/trace_steps.h"

namespace moestro {

size_t TokensOfStep(const Trace& trace, size_t first, const StepSize& size) {
  const bool is_source = trace.is_source(first);
  size_t n = 1;
  while (first + n < trace.tokens() && trace.joins_step(first + n) &&
         trace.is_source(first + n) == is_source) {
    ++n;
  }
  const Phase phase = trace.phase(first);
  if (n > 1 || (phase == Phase::kPrefill && trace.info().has_prompt_steps)) return n;
  const size_t of_phase = phase == Phase::kPrefill ? size.prefill_chunk : size.rows;
  const size_t most = is_source ? trace.tokens() : of_phase;
  const auto follows = [&](size_t t) {
    return t < trace.tokens() && !trace.starts_sequence(t) && trace.phase(t) == phase &&
           trace.is_source(t) == is_source;
  };
  while (n < most && follows(first + n)) ++n;
  return n;
}

bool HasStepsOfRows(const Trace& trace) {
  for (size_t t = 0; t < trace.tokens(); ++t) {
    if (trace.joins_step(t) && trace.phase(t) == Phase::kDecode) return true;
  }
  return false;
}

}  // namespace moestro
