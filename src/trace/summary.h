// SPDX-License-Identifier: MIT
// Statistics of a trace about caching and prediction, before any simulation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/trace.h"

namespace moestro {

struct TraceSummary {
  uint64_t decode_tokens = 0;
  uint64_t prefill_tokens = 0;
  uint64_t sequences = 0;
  double popular_share = 0.0;  // of requests that go to each layer's most popular eighth
  double entropy = 0.0;        // of their popularity, mean over layers; 1: all alike, 0: always one
  double distinct_per_100 = 0.0;  // experts used in 100 tokens, mean over such windows; 0: shorter
  double reused_next = 0.0;       // share of requests that the token before made, too
  double reuse_p50 = 0.0;         // tokens between two uses of an expert
  double reuse_p90 = 0.0;
  // Share of a layer's experts among K predicted from the first half of the trace, on the second:
  double recall_popular = 0.0;  // the most popular ones
  double recall_paths = 0.0;    // the experts that followed those of the layer before
  double recall_repeat = 0.0;   // the experts of the token before
  // Decode tokens of a trace with a little pass:
  double little_recall = 0.0;  // share of the chosen experts among the K best of the little pass
  // Share of tokens whose little pass had a confidence above LittleOptions().gamma.
  double confident = 0.0;
  std::vector<double> recall_ahead = {};  // [distance - 1]: share that recorded predictions name
};

// Prefill and decode tokens alike.
TraceSummary Summarise(const Trace& trace);
std::string Describe(const TraceInfo& info, const TraceSummary& summary);  // several lines

}  // namespace moestro
