// SPDX-License-Identifier: MIT
// Table of the larger features that work together. docs/flags.md has the same table.
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
  bool sequences = false;  // several sequences, in bench
};

// The features that are options of an engine.
Features FeaturesOf(const EngineOptions& engine);

// kUsage: two features do not work together; the message names them and the features that work with
// the first one.
Status CheckTogether(const Features& features);

// kUsage: `command` measures all experts of a token, and --little is on.
Status CheckAllExperts(const char* command, const EngineOptions& engine);

}  // namespace moestro
