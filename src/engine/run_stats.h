// SPDX-License-Identifier: MIT
// What a run did, for summaries, bench output and tests. Same names everywhere.
#pragma once

#include <cstdint>

#include "base/histogram.h"
#include "decide/loss_counts.h"

namespace moestro {

struct PhaseStats {
  uint64_t tokens = 0;
  double seconds = 0.0;
  double wait_seconds = 0.0;  // compute threads had nothing to do but wait for bytes
  uint64_t expert_uses = 0;   // (layer, expert) requests
  uint64_t hits = 0;          // resident when asked
  uint64_t misses = 0;        // not there when asked: absent or still on their way
  uint64_t late = 0;          // of these, on their way
  uint64_t evictions = 0;
  uint64_t prefetches = 0;          // experts fetched before their router asked
  uint64_t used_prefetches = 0;     // of these, asked for in the end
  uint64_t dropped_prefetches = 0;  // of these, given up before they were read completely
  uint64_t disk_bytes = 0;          // expert bytes read, padding included
  uint64_t needed_bytes = 0;        // of experts that were used and had to be read
  LossCounts losses = {};           // what was not exact

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
  double hit_rate() const {
    return expert_uses > 0 ? static_cast<double>(hits) / static_cast<double>(expert_uses) : 0;
  }
};

struct RunStats {
  PhaseStats prefill;
  PhaseStats decode;
  // Over decode's tokens.
  Histogram decode_ms;
  Histogram decode_bytes;  // needed_bytes
};

}  // namespace moestro
