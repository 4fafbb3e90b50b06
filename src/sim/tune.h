// SPDX-License-Identifier: MIT
// The search for a policy's parameters, for one size and for many.
//
// Thread rule: none; calls on different traces or from different threads do not meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "decide/slots/policy.h"
#include "sim/replay.h"
#include "trace/trace.h"

namespace moestro {

// Finds a policy's parameters on the first tokens of a trace and measures them on the rest, which
// the search does not use. The search minimises the miss penalty (sim/replay.h). Without low copies
// the penalty is the number of misses. The first half of the training tokens only warms up, because
// a cache is full for most of a run and an empty cache needs other parameters. Pure: the same trace
// gives the same answer everywhere.
//
// Shares (see PolicyParameter) are searched together on a grid of their mixtures. Every other
// parameter is searched along its own axis, in logarithmic steps if its range spans decades. The
// search then goes on from the best values in smaller steps. The default values are always tried,
// and stay if the gain of the search is within chance. Of equal results the one nearest to the
// defaults wins.

struct TuneOptions {
  std::string policy = "next-use";
  uint64_t slots = 0;
  double train_percent = 50.0;  // of the tokens, the first ones; above 0 and below 100
  // The lossy options, low copies, lanes, rows and expert size to tune for; other fields are not
  // used.
  ReplayOptions lossy = {};
  // Called after every replayed candidate with the number of candidates so far.
  std::function<void(size_t tried)> progress = {};
};

struct TunedPolicy {
  PolicyChoice choice;  // every parameter written out
  ReplayResult
      // of `choice` on the later half of the training tokens: the search minimised this penalty
      training;
  ReplayResult held_out;  // of `choice` on the rest of the trace, the training tokens warming up
  ReplayResult held_out_standard;
};

// Number of tokens that the search uses. REQUIRES: percent is above 0 and below 100.
size_t TrainingTokens(const Trace& trace, double percent);

// kUsage: errors of Replay(), a percentage out of range. kInvalidRequest: a part of the trace has
// no decode token to count.
Result<TunedPolicy> Tune(const Trace& trace, const TuneOptions& options);

// The search for several policies and numbers of slots, its results compared with plain policies,
// and the tuning made from them.

struct TuneRequest {
  std::string policy;                // a name, or "all"
  std::vector<uint64_t> slots = {};  // sizes to tune for
  double train_percent = 50.0;
  ReplayOptions lossy = {};  // see TuneOptions
};

struct TunedAtSize {
  uint64_t slots = 0;
  double percent = 0.0;                 // of all experts
  std::vector<TunedPolicy> tuned = {};  // least penalty on the training tokens first
  // Results of lru, lfu, lfru and, without low copies and lanes, belady on the held-out tokens.
  struct Plain {
    std::string name;
    double hit_rate = 0.0;
    double penalty = 0.0;
  };
  std::vector<Plain> plain = {};
};

// "all", or a known policy; else kUsage with the known ones.
Result<std::string> ParseTunedPolicy(const std::string& text);

// `progress`: the policy and size, and the candidates tried so far. Errors: those of Tune().
Result<std::vector<TunedAtSize>> TuneSizes(
    const Trace& trace, const TuneRequest& request,
    const std::function<void(const std::string& what, size_t tried)>& progress);

// The tuning with the best policy of each size. REQUIRES: each size has a tuned policy.
PolicyTuning ToTuning(const TraceInfo& info, const std::vector<TunedAtSize>& sizes);

}  // namespace moestro
