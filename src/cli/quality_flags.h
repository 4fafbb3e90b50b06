// SPDX-License-Identifier: MIT
// --quality: one wish in place of the flags that trade exactness for speed.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "cli/flags.h"
#include "engine/engine_options.h"

namespace moestro {

struct QualityWish {
  std::optional<double> kl;  // nats per token; nullopt: none
  std::string sweep_file;    // empty: MODEL.sweep.json
};

// REQUIRES: the flags of AddCommonFlags() are there, of which some exclude this one. `wish` must
// outlive the parsing.
void AddQualityFlags(Flags flags, QualityWish& wish);

// With a wish: takes the setting from the model's stored sweep and has the engine, as soon as it
// knows its memory, print one line on standard error that says which and why, and if it is only an
// estimate. Without: changes nothing. Errors: kIo without a sweep, naming the command that makes
// one; what ReadSweepFor() and ChooseQuality() say; kInvalidFile for a knob that SetKnob() refuses.
Status ApplyQuality(const QualityWish& wish, const std::string& model, EngineOptions& engine);

}  // namespace moestro
