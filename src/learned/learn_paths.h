// SPDX-License-Identifier: MIT
// Learns paths from recorded routing, and measures their recall.
#pragma once

#include <cstddef>

#include "decide/ahead/path_table.h"
#include "learned/path_counter.h"
#include "trace/trace.h"

namespace moestro {

// A range of tokens; `end` is excluded. REQUIRES: begin <= end <= number of tokens.
struct TokenRange {
  size_t begin = 0;
  size_t end = 0;
};

// Adds the first `most` tokens of a trace, or all it has; prefill and decode tokens alike.
// REQUIRES: same shape.
void CountTrace(const Trace& trace, size_t most, PathCounter& counter);

// Share of a layer's experts among K predicted, over all layers but a stack's first; 0 without any.
struct PathRecall {
  double paths = 0.0;    // by the experts of the two layers before
  double popular = 0.0;  // the table's most popular experts
  double repeat = 0.0;   // by the experts of the token before
};
PathRecall MeasurePaths(const PathTable& table, const PathCounter& routing, TokenRange range);

}  // namespace moestro
