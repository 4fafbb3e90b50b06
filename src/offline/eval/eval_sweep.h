// SPDX-License-Identifier: MIT
// `eval --sweep`: the same text with every combination of some knobs' values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/knob_setting.h"
#include "engine/engine_options.h"
#include "learned/quality_choice.h"
#include "offline/eval/eval.h"

namespace moestro {

// Parses "cache=25%,50%;prefetch=0,1" into every combination, the last knob changing fastest.
// kUsage for errors of SetKnob(), for a knob that comes twice, and for more than 1000 combinations.
Result<std::vector<KnobSettings>> ParseSweep(std::string_view text);
// REQUIRES: the settings come from ParseSweep().
EngineOptions WithSettings(EngineOptions options, const KnobSettings& settings);

struct EvalPoint {
  KnobSettings settings;
  EvalFigures figures;  // with `against`
  double bytes_per_token = 0.0;
  double hit_rate = 0.0;
  double decode_tps = 0.0;
  double percent_of_bound = 0.0;
};
EvalPoint ToPoint(KnobSettings settings, const EvalResult& result);

// The measured setting of a run with `settings` over `base`, for a file: every knob that another
// run needs to do the same, files by their whole paths.
MeasuredSetting ToMeasured(const EngineOptions& base, const KnobSettings& settings,
                           const EvalResult& result);

// For each point: true if no other point is at least as fast with at most its mean KL, and better
// in one of the two.
std::vector<bool> ParetoFront(const std::vector<EvalPoint>& points);

}  // namespace moestro
