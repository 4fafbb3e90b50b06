// SPDX-License-Identifier: MIT
// The state of a scheduler, as plain values for reports.
#pragma once

#include <cstdint>
#include <vector>

#include "base/histogram.h"
#include "engine/engine.h"

namespace moestro {

struct TextStatus {
  uint32_t place = 0;       // below SchedulerStatus::parallel; no other running text has it
  bool is_written = false;  // false: the prompt is being computed
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t generated = 0;
  uint32_t positions = 0;  // computed so far
};

// Since the start.
struct ServeTotals {
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;        // the queue was full
  uint64_t prompt_tokens = 0;  // computed
  uint64_t cached_tokens = 0;  // of prompts, not computed again
  uint64_t generated = 0;
  uint64_t steps = 0;
  double prompt_seconds = 0.0;  // of steps with rows of prompts
  double text_seconds = 0.0;    // of all other steps
  Histogram gap_ms;             // between two tokens of a text
};

struct SchedulerStatus {
  std::vector<TextStatus> texts = {};
  uint32_t parallel = 0;
  uint32_t waiting = 0;
  uint32_t kept_prefixes = 0;
  uint64_t kept_tokens = 0;
  uint32_t saved_prefixes = 0;
  uint64_t saved_bytes = 0;
  Engine::KvRoom kv_room;
  ServeTotals totals;
  RunStats engine;
  std::vector<SlotContents> slots = {};  // of experts; once a second
};

}  // namespace moestro
