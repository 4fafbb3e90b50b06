// SPDX-License-Identifier: MIT
// --quality: one value in place of the flags that trade exactness for speed.
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

// REQUIRES: the flags of AddCommonFlags() have been added; some of them exclude this flag. `wish`
// must outlive the parsing.
void AddQualityFlags(Flags flags, QualityWish& wish);

// With a wish: takes the setting from the model's stored sweep. As soon as the engine has planned
// its memory, it prints one line on standard error with the setting and the reason, and marks an
// estimate. Without a wish: changes nothing. Errors: kIo without a sweep, naming the command that
// makes a sweep; those of ReadSweepFor() and ChooseQuality(); kInvalidFile for a knob that
// SetKnob() refuses.
Status ApplyQuality(const QualityWish& wish, const std::string& model, EngineOptions& engine);

}  // namespace moestro
