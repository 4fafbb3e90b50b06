// SPDX-License-Identifier: MIT
// The search for several policies and numbers of slots, its results compared with plain policies,
// and the tuning made from them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "decide/slots/policy_tuning.h"
#include "sim/tune.h"
#include "trace/trace.h"

namespace moestro {

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
