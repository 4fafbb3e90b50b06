// SPDX-License-Identifier: MIT
// The table of an engine's options: one row for each option that a user may set.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/engine_options.h"
#include "engine/option_row.h"

namespace moestro {

// The rows in the order in which help lists them; options of a part are together.
std::span<const OptionRow> OptionTable();

// kUsage for the first value outside its range, naming the flag, the value and the range.
Status CheckOptions(const EngineOptions& options, std::span<const OptionRow> table = OptionTable());

// REQUIRES: the table has the row. `name` without dashes.
const OptionRow& FindOption(std::string_view name);

}  // namespace moestro
