// SPDX-License-Identifier: MIT
// From recorded routing to learned paths, and how much they are worth.
#pragma once

#include <cstddef>

#include "core/ids.h"
#include "decide/path_table.h"
#include "trace/trace.h"

namespace moestro {

// A range of a trace's tokens; `end` is not in it. REQUIRES: begin <= end <= trace.tokens().
struct TokenRange {
  size_t begin = 0;
  size_t end = 0;
};

// Prefill and decode tokens alike.
PathTable LearnPaths(const Trace& trace, TokenRange range);

// Share of a layer's experts among K guessed, over all layers but the first; 0 without any.
struct PathRecall {
  double paths = 0.0;    // from what the two layers before were
  double popular = 0.0;  // the table's most popular experts
  double repeat = 0.0;   // those of the token before
};
PathRecall MeasurePaths(const PathTable& table, const Trace& trace, TokenRange range);

}  // namespace moestro
