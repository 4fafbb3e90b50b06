// SPDX-License-Identifier: MIT
// Finds a policy's parameters on the first tokens of a trace and says what they are worth on the
// rest, which the search never sees. What it minimises is the miss penalty (sim/replay.h): misses,
// where there are no low copies. The earlier half of the training tokens only warms up: a cache
// is full for most of its life, and what suits an empty one is something else. Pure: the same trace
// gives the same answer everywhere.
//
// Shares (see PolicyParameter) are searched together on a grid of their mixtures, every other
// parameter along its own axis, logarithmic where its range spans decades; then in ever smaller
// steps from the best. The default values are always tried and stay where the search gains no more
// than luck could; of equals those nearest to them win.
//
// Thread rule: none; calls on different traces or from different threads do not meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "decide/slots/policy.h"
#include "sim/replay.h"
#include "trace/trace.h"

namespace moestro {

struct TuneOptions {
  std::string policy = "next-use";
  uint64_t slots = 0;
  double train_percent = 50.0;  // of the tokens, the first ones; above 0 and below 100
  // Lossy options, low copies, lanes, rows and the size of an expert to tune for; what else it says
  // is not looked at.
  ReplayOptions lossy = {};
  // Told of every candidate that was replayed: how many so far.
  std::function<void(size_t tried)> progress = {};
};

struct TunedPolicy {
  PolicyChoice choice;  // every parameter written out
  ReplayResult
      training;  // of `choice` on the later half of the training tokens: its penalty was minimised
  ReplayResult held_out;  // of `choice` on the rest of the trace, the training tokens warming up
  ReplayResult held_out_standard;
};

// The tokens that the search sees. REQUIRES: percent is above 0 and below 100.
size_t TrainingTokens(const Trace& trace, double percent);

// kUsage: what Replay() refuses, a percentage out of range. kInvalidRequest: a part of the trace
// has no decode token to count.
Result<TunedPolicy> Tune(const Trace& trace, const TuneOptions& options);

}  // namespace moestro
