// SPDX-License-Identifier: MIT
// Routing of texts, recorded by running a model on them: for `trace` and `profile`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine_options.h"
#include "trace/trace.h"

namespace moestro {

struct RecordOptions {
  std::string model;
  EngineOptions engine;
  std::vector<std::string> texts;  // paths; each begins a sequence, and more if it is long
  uint32_t random = 0;             // random tokens, before the texts; at most a context of them
  uint32_t seed = 1;               // of these
  uint32_t tokens = 0;             // of each text; 0: all
  bool predictions = false;        // what the next engine.prefetch layers' routers would say, too
  uint32_t prefill = 0;            // at the start of each sequence, evaluated at once
};

// Shows a progress bar on a terminal. Errors: those of the engine and of ReadTextFile().
Result<Trace> RecordTexts(const RecordOptions& options);

}  // namespace moestro
