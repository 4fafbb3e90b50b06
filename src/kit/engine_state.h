// SPDX-License-Identifier: MIT
// State of an engine that outlasts a restart of its parts: requests of callers, and counters.
//
// Thread rule: that of Engine.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "base/result.h"
#include "base/stop_signal.h"
#include "decide/slots/slot_table.h"
#include "engine/engine.h"
#include "engine/run_stats.h"
#include "engine/watchers.h"

namespace moestro {

struct EngineState {
  EngineState(StopSignal::AtLook at_look, Progress reports)
      : stop(std::move(at_look)), progress(std::move(reports)) {}
  EngineState(const EngineState&) = delete;
  EngineState& operator=(const EngineState&) = delete;

  StopSignal stop;
  std::optional<Error> closed = {};  // why no further step can be computed; parts may be missing
  Watchers watchers = {};
  SlotTable::Observer request_observer = {};
  RunStats stats = {};
  Progress progress;
  // Calls `progress`, if any.
  const Progress report = [this](const char* what, uint64_t done, uint64_t total) {
    if (progress) progress(what, done, total);
  };
};

}  // namespace moestro
