// SPDX-License-Identifier: MIT
// The engine's options by the names of their flags, for code that gets them as text: the command
// line and sweeps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "core/knob_setting.h"
#include "engine/engine_options.h"

namespace moestro {

// In the order in which help lists them, without dashes: "cache", "ram", ...
std::vector<std::string_view> KnownKnobs();
std::string KnobNames();  // the same in one line, for messages
// What the flag --name with this value does. kUsage for an unknown name, which lists the known
// ones, and for a value that the flag would refuse.
Status SetKnob(EngineOptions& options, std::string_view name, const std::string& value);

// True for knobs that set the budget: "cache", "ram".
bool IsBudgetKnob(std::string_view name);
// All others whose values are not the defaults. SetKnob() of each, over defaults, gives `options`
// back as far as knobs reach.
KnobSettings ChangedKnobs(const EngineOptions& options);

// "reproducible" is true, "opportunistic" false; kUsage otherwise.
Result<bool> ParseLossyMode(const std::string& text);

}  // namespace moestro
