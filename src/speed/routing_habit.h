// SPDX-License-Identifier: MIT
// Routing by the habits of known models, for a model that has not run yet. Pure.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "core/model_id.h"
#include "trace/trace.h"

namespace moestro {

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

}  // namespace moestro
