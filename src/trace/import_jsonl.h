// SPDX-License-Identifier: MIT
// Routing that other tools recorded: a JSON object per line,
//   {"layers": [[id, id, ...], ...]}
// with the chosen experts of every layer. Other keys are ignored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "trace/trace.h"

namespace moestro {

// One sequence of decode tokens without weights. `experts` per layer; nullopt: the highest id that
// occurs plus one, which is too low when the last experts were never chosen. kIo: cannot be read;
// kInvalidFile: names the line and what is wrong.
Result<Trace> ImportJsonl(const std::string& path, std::optional<uint32_t> experts);

}  // namespace moestro
