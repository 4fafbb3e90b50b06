// SPDX-License-Identifier: MIT
// The state of a scheduler, as plain values for reports.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/counters.h"
#include "base/distribution.h"
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

// Counts of requests and steps.
struct ServeCounts {
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;            // the queue was full
  uint64_t prompt_tokens = 0;      // computed
  uint64_t cached_tokens = 0;      // of prompts, not computed again
  uint64_t recomputed_tokens = 0;  // of prompts, as in TextUsage
  uint64_t generated = 0;
  uint64_t steps = 0;
  double prompt_seconds = 0.0;  // of steps with rows of prompts
  double text_seconds = 0.0;    // of all other steps

  static constexpr void Visit(auto&& visit) {
    using S = ServeCounts;
    constexpr std::string_view kEnds = "requests_total";
    visit(&S::finished, CounterText{.json = "finished",
                                    .metric = kEnds,
                                    .label = "{end=\"finished\"}",
                                    .meaning = "Requests that have ended, by how."});
    visit(&S::cancelled,
          CounterText{.json = "cancelled", .metric = kEnds, .label = "{end=\"cancelled\"}"});
    visit(&S::failed, CounterText{.json = "failed", .metric = kEnds, .label = "{end=\"failed\"}"});
    visit(&S::refused, CounterText{.metric = kEnds, .label = "{end=\"refused\"}"});
    visit(&S::prompt_tokens, CounterText{.json = "prompt_tokens",
                                         .metric = "prompt_tokens_total",
                                         .meaning = "Tokens of prompts that were computed."});
    visit(&S::cached_tokens, CounterText{.json = "cached_tokens",
                                         .metric = "prompt_cached_tokens_total",
                                         .meaning = "Tokens of prompts that were there already."});
    visit(
        &S::recomputed_tokens,
        CounterText{.json = "recomputed_tokens",
                    .metric = "prompt_recomputed_tokens_total",
                    .meaning = "Tokens of prompts that were computed again, since a kept text has "
                               "them and no state at their end."});
    visit(&S::generated, CounterText{.json = "generated",
                                     .metric = "tokens_predicted_total",
                                     .meaning = "Tokens of answers."});
    visit(&S::steps, CounterText{.metric = "steps_total", .meaning = "Steps of the engine."});
    visit(&S::prompt_seconds, CounterText{.json = "prompt_seconds",
                                          .metric = "prompt_seconds_total",
                                          .meaning = "Time of steps with prompts in them."});
    visit(&S::text_seconds, CounterText{.json = "text_seconds",
                                        .metric = "tokens_predicted_seconds_total",
                                        .meaning = "Time of steps of answers alone."});
  }
};
static_assert(CountsAllOf<ServeCounts>());

// Since the start.
struct ServeTotals : ServeCounts {
  Histogram gap_ms;  // between two tokens of a text
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
  std::vector<SlotContents> slots = {};  // experts' slots; once a second
};

}  // namespace moestro
