// SPDX-License-Identifier: MIT
// Which of the larger features work together. README has the same table.
#pragma once

#include "base/result.h"
#include "engine/engine_options.h"

namespace moestro {

struct Features {
  bool little = false;
  bool draft = false;
  bool beams = false;
  bool low = false;
  bool prefer_resident = false;
  bool sequences = false;  // several, of bench
};

// Those that are options of an engine.
Features FeaturesOf(const EngineOptions& engine);

// kUsage: two of them do not work together; names them and what the first one works with.
Status CheckTogether(const Features& features);

// kUsage: `command` measures what all experts of a token do, and --little is on.
Status CheckAllExperts(const char* command, const EngineOptions& engine);

}  // namespace moestro
