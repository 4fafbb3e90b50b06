// SPDX-License-Identifier: MIT
// Replays a routing trace through the same SlotTable and policies that the engine runs, against a
// pretend disk and processor with a virtual clock. With the same trace, slots and policy, hits,
// misses and evictions are the engine's, in the same order. With a machine of lanes (machine.h) the
// engine's DeviceTier also runs. With the engine's costs (--latency-model) the plans are the
// engine's.
//
// The clock. Without lanes only decode takes time, and an expert takes the same time for any number
// of rows. With lanes prompts also take time, and an expert's time depends on its rows. A layer
// takes the time of its dense part and then of its slowest lane. The disk works beside both, first
// on the layer's own reads and then on prefetches. The head and other work outside the layers take
// no time.
//
// Thread rule: none; calls on different traces or from different threads do not meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/counters.h"
#include "base/result.h"
#include "core/machine.h"
#include "core/model_spec.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/devices/lane_planner.h"
#include "decide/layer/importance.h"
#include "decide/layer/layer_protocol.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/policy.h"
#include "decide/slots/slot_table.h"
#include "sim/machine.h"
#include "trace/trace.h"

namespace moestro {

// Finds the tokens of a trace that go through the layers together. Pure functions of values.

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

struct ReplayOptions {
  // slots of all pools: each pool gets slots for the same share of its experts, as in the engine
  uint64_t slots = 0;
  std::vector<uint64_t> pool_slots = {};  // slots of each of the trace's pools; empty: by `slots`
  PolicyChoice policy = {};               // also "belady"
  // Bytes of every expert, in one pool; 0: sizes and pools as in the trace.
  uint64_t expert_bytes = 0;
  // The costs of the machine. With lanes these are used: disk reads, the slowdown of disk and CPU
  // by each other, and the extra time of a layer with missing experts. `lanes` has the rest.
  MachineCosts costs = {};
  std::optional<LaneMachine> lanes = {};
  StepSize step = {};
  PredictorChoice predictor = {
      "none"};          // or "oracle": always right; "next-router" needs predictions
  uint32_t depth = 0;   // layers looked ahead; 0: all that the trace predicts, or 1
  bool fetches = true;  // false: predictions inform the policy only
  // Cheaper misses. `low_bytes`: of one low copy; 0: no low copies.
  LossyOptions lossy = {};
  uint64_t low_slots = 0;
  uint64_t low_bytes = 0;
  std::shared_ptr<const ExpertNorms> norms = {};  // for the importance "score-norm"
  // The model's router, for the weights of its choices; nullopt: weights are in proportion to the
  // recorded raw values.
  std::optional<RouterSpec> router = {};
  // Fewer experts first, as recorded in the trace. A token's recorded confidence decides whether
  // its first pass is kept.
  LittleOptions little = {};
  size_t count_from = 0;              // tokens before this one warm up and are not counted
  SlotTable::Observer observer = {};  // called after each request for memory's slots
  // With lanes: called with every layer's plan after the layer has run.
  std::function<void(const LayerPlan&)> plan_observer = {};

  // Whether a step has a first pass with fewer experts. False also if no result of the first pass
  // would be kept; the pass is then left out.
  bool has_little_pass() const {
    return little.is_on() && (little.fallback_share || little.gamma < 1.0);
  }
};

// The counts of decode: those of its slot tables, and those of its tokens.
struct ReplayCounts : ExpertCounts {
  uint64_t tokens = 0;
  LossCounts losses = {};  // counts of inexact choices
  // With ReplayOptions::little: tokens whose little pass was kept, tokens that were computed again
  // with all experts, and the score of those tokens' little passes as predictions of the second
  // ones.
  uint64_t kept = 0;
  uint64_t again = 0;
  PredictionScore foreseen = {};
  // HOBBIT's miss penalty: 1 for a read of a whole expert, the share of its bytes for a low copy.
  double penalty = 0.0;
  uint64_t bytes = 0;          // read
  double seconds = 0.0;        // virtual
  double stall_seconds = 0.0;  // seconds of waiting for the disk
  // The sum over tokens of the least time of a token. A token takes at least the time to read its
  // missing experts, and at least the time of its computation (with lanes: of the busiest lane of
  // each layer).
  double bound_seconds = 0.0;

  double fallback_ratio() const { return Share(again, kept + again); }
  double percent_of_bound() const { return seconds > 0.0 ? 100.0 * bound_seconds / seconds : 0.0; }
  double tokens_per_second() const {
    return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0;
  }

  static constexpr void Visit(auto&& visit) {
    using R = ReplayCounts;
    visit(&R::tokens, CounterText{.sim = "tokens"});
    ExpertCounts::Visit(visit);
    visit(&R::bytes, CounterText{.sim = "disk_bytes"});
    visit(&R::seconds, CounterText{.sim = "seconds"});
    visit(&R::stall_seconds, CounterText{.sim = "stall_seconds"});
    visit(&R::tokens_per_second, CounterText{.sim = "decode_tps"});
    visit(&R::bound_seconds, CounterText{});
    visit(&R::percent_of_bound, CounterText{.sim = "percent_of_bound"});
    visit(&R::losses, CounterText{});
    visit(&R::penalty, CounterText{.sim = "penalty"});
    visit(&R::kept, CounterText{.sim = "little_kept"});
    visit(&R::again, CounterText{.sim = "little_again"});
    visit(&R::fallback_ratio, CounterText{.sim = "fallback_ratio"});
    visit(&R::foreseen, CounterText{.sim = "foreseen_"});
  }
};
static_assert(CountsAllOf<ReplayCounts>());

struct ReplayResult : ReplayCounts {
  std::vector<PredictionScore> predictions = {};  // by distance
  LanesResult lanes = {};  // the places where experts were and ran; empty without lanes
};

// The slots of each pool of the trace's own copies in a replay with these options. kInvalidRequest:
// a pool would have fewer than K slots.
Result<std::vector<uint64_t>> SlotsOfPools(const TraceInfo& info, const ReplayOptions& options);

// kUsage: an unknown policy or predictor, fewer slots than one layer of a token needs, predictions
// that the trace does not hold, weights or candidates that lossy options need and the trace does
// not hold, a little pass that the trace does not hold, a little pass with belady or the oracle,
// slots of more devices than the machine has, belady on a machine with lanes, several rows for a
// trace that was recorded with steps of several rows. REQUIRES: lossy and little options are within
// their ranges (see their structs).
Result<ReplayResult> Replay(const Trace& trace, const ReplayOptions& options);

// Replays one trace with every combination of some choices.
//
// Pure. Thread rule: none.

struct Sweep {
  ReplayOptions options = {};  // shared by all replays; the members below replace its fields
  std::vector<PolicyChoice> policies = {};
  std::vector<uint64_t> slots = {};  // experts that memory holds
  // The members below replace fields of options.lanes; without lanes they are not used.
  std::vector<uint32_t> rows = {1};
  std::vector<uint64_t> device_slots = {0};  // experts that each device holds
  std::vector<PlaceMode> modes = {PlaceMode::kAuto};
};

struct SweepLine {
  std::string policy;
  uint64_t slots = 0;
  double percent = 0.0;  // of all experts
  ReplayResult result;
  bool has_lanes = false;  // the members below are for lanes
  PlaceMode mode = PlaceMode::kAuto;
  uint32_t rows = 1;
  uint64_t device_slots = 0;
};

// Replays every combination. Policies change slowest, then rows, device slots, slots and modes.
// Errors: Replay().
Result<std::vector<SweepLine>> ReplayAll(const Trace& trace, const Sweep& sweep);

}  // namespace moestro
