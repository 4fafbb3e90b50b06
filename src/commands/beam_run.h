// SPDX-License-Identifier: MIT
// `moestro run --beams B`: the likeliest continuations of a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "cli/flags.h"
#include "cli/report.h"
#include "cli/terminal_session.h"
#include "engine/engine.h"
#include "engine/engine_options.h"
#include "text/text_tokens.h"

namespace moestro {

struct BeamFlags {
  std::optional<uint32_t> beams;  // empty: no beam search
  double length_penalty = 1.0;
  uint32_t n_best = 1;
};

// Call after all other flags of the command. `flags` must outlive the parsing.
void AddBeamFlags(Flags command, BeamFlags& flags);

struct BeamRequest {
  const BeamFlags& flags;
  const Prompt& prompt;
  std::string model;            // path
  const EngineOptions& engine;  // options that the session was loaded with
  int64_t n_predict = -1;       // negative: as many as the context holds
  bool json = false;            // instead of text
  bool shows_prompt = true;     // before the text
  PlanObserver plans = {};      // of --explain; may be empty
};

// Runs a beam search: makes room, starts the session, searches, prints. If one beam is printed, its
// text is printed as soon as all beams agree. Errors: those of the engine; kInvalidRequest for a
// prompt that does not fit, and for beams that do not fit in memory (names the number that fits).
Status RunBeams(const BeamRequest& request, TerminalSession& session, Output& output);

}  // namespace moestro
