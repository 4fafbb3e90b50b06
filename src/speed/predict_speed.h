// SPDX-License-Identifier: MIT
// Predicts the speed of a model on a machine before the model is fetched: the simulator replays
// routing with the habits of known models, on a machine of measured speeds. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "core/machine.h"
#include "core/run_identity.h"
#include "learned/kept_facts.h"
#include "native/plan/fit.h"
#include "speed/device_price.h"
#include "speed/planned_model.h"
#include "speed/remote_price.h"
#include "trace/trace.h"

namespace moestro {

// Routing by the habits of known models, for a model that has not run yet. Pure.

struct RoutingHabit {
  // Some experts are chosen more often: the n-th best of a layer (n + 1)^-skew times as often as
  // the best.
  double skew = 0.0;
  // Chance that an expert of a token is the next token's, too, beyond the effect of `skew`.
  double again = 0.0;
};

// Every expert as likely as any other.
inline constexpr RoutingHabit kEvenRouting{};
// A habit that caches as well as the recorded routing of OLMoE-1B-7B (docs/plan.md has the
// comparison). Models with more experts to choose from cache better.
inline constexpr RoutingHabit kRecordedRouting{.skew = 1.15, .again = 0.2};

// Share of a layer's experts that its router chooses on the input of the layer before, too
// (docs/policies-results.md: 72, 74, 75 and 76 % on four texts).
inline constexpr double kForeseenShare = 0.74;

// The habit of a family of which routing has been recorded; nullptr: none has.
const RoutingHabit* RecordedHabitOf(std::string_view family);

// The habit with which a cache of `slots` experts misses a share `missing`, from 0 to 1, of the
// requests, as a run of the model did. kEvenRouting if that habit misses no more. Errors: those of
// Replay().
Result<RoutingHabit> HabitThatMisses(const MoeShape& shape, uint64_t slots, double missing);

// A text of `tokens` decoded ones with this habit, and with predictions for the next layer:
// kForeseenShare of a layer's experts, and drawn ones up to K. One seed gives one text. Errors:
// those of Trace::Create() for the shape.
Result<Trace> TraceOf(const MoeShape& shape, const RoutingHabit& habit, uint32_t tokens,
                      uint64_t seed);

// Tokens per second.
struct SpeedRange {
  double low = 0.0;
  double high = 0.0;
  double middle() const;  // the geometric mean
  bool contains(double speed) const { return speed >= low && speed <= high; }
};

struct BudgetSpeed {
  Fit fit = {};
  SpeedRange decode = {};  // behind the first hundred tokens
  SpeedRange prompt = {};  // of 512 tokens
};

// Largest factor between the ends of a range.
inline constexpr double kWidest = 2.0;
// Largest factor for a model that has run, for a family whose routing has been recorded, and where
// all experts are in memory.
inline constexpr double kWidestOfKnown = 1.5;

// Seconds of a decoded token with all experts in memory. kInvalidRequest, naming it: a type of
// weights that was not measured.
Result<double> ResidentSeconds(const ModelNeeds& needs, const MachineRates& rates);

// Predicts for one machine and all files of one model.
class SpeedPredictor {
 public:
  // `seen`: the misses of an earlier run of the model; nullopt: no run is known. `rates` outlives
  // it. kInvalidRequest: the disk was not measured; kInvalidRequest and kUnsupported: a shape that
  // no model has.
  static Result<SpeedPredictor> Create(const MoeShape& shape, std::string_view family,
                                       const std::optional<SeenCaching>& seen,
                                       const MachineRates& rates);

  // The speed for each fit. Errors: those of ResidentSeconds(). REQUIRES: needs of that shape.
  Result<std::vector<BudgetSpeed>> Predict(const ModelNeeds& needs,
                                           std::span<const Fit> fits) const;
  // Gain by hosts of so many bytes in a fit. Unknown routing counts as recorded routing. Errors:
  // those of ResidentSeconds(). REQUIRES: needs.row_bytes.
  Result<RemotePrice> PriceHosts(const ModelNeeds& needs, const Fit& fit,
                                 const std::vector<uint64_t>& host_bytes,
                                 const Network& network) const;
  // Gain by a device of this machine in a fit, of which name, vram and costs are set: the first
  // price by even routing, the second by recorded routing, both the same where routing is known.
  // Errors: those of ResidentSeconds().
  Result<std::pair<DevicePrice, DevicePrice>> PriceDevice(const ModelNeeds& needs, const Fit& fit,
                                                          const FixedMemory& fixed,
                                                          DeviceToPrice device) const;

 private:
  SpeedPredictor(const MachineRates& rates, Trace recorded, std::optional<Trace> even);

  const MachineRates* rates_;
  Trace recorded_;
  std::optional<Trace> even_;  // if the model's routing is not known
};

}  // namespace moestro
