// SPDX-License-Identifier: MIT
// What a run did, for summaries, bench output and tests. Same names everywhere.
#pragma once

#include <cstdint>

#include "base/histogram.h"
#include "base/share.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/layer/loss_counts.h"

namespace moestro {

struct PhaseStats {
  uint64_t tokens = 0;
  double seconds = 0.0;
  double wait_seconds = 0.0;  // compute threads had nothing to do but wait for bytes
  uint64_t expert_uses = 0;   // (layer, expert) requests, once for all rows of a step
  uint64_t hits = 0;          // resident when asked
  uint64_t misses = 0;        // not there when asked: absent or still on their way
  uint64_t late = 0;          // of these, on their way
  uint64_t evictions = 0;
  uint64_t row_uses = 0;            // (row, layer, expert)
  uint64_t row_hits = 0;            // of these, resident when asked
  uint64_t prefetches = 0;          // experts fetched before their router asked
  uint64_t used_prefetches = 0;     // of these, asked for in the end
  uint64_t dropped_prefetches = 0;  // of these, given up before they were read completely
  uint64_t disk_bytes = 0;          // expert bytes read, padding included
  uint64_t needed_bytes = 0;        // of experts that were used and had to be read
  // Of weights, keys and values that the steps had to read from memory: each weight once for all
  // rows of a step, experts among them, of the embedding the rows' own.
  uint64_t touched_bytes = 0;
  LossCounts losses = {};  // what was not exact

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
  double hit_rate() const { return Share(hits, expert_uses); }
  double row_hit_rate() const { return Share(row_hits, row_uses); }
  // Rows that share an expert of a step.
  double rows_per_use() const {
    return expert_uses > 0 ? static_cast<double>(row_uses) / static_cast<double>(expert_uses) : 0;
  }
  // Expert bytes read for a row.
  double bytes_per_row() const {
    return tokens > 0 ? static_cast<double>(disk_bytes) / static_cast<double>(tokens) : 0;
  }
};

// Decode steps that were computed with fewer experts first (EngineOptions::little).
struct LittleStats {
  uint64_t tokens = 0;  // computed so
  uint64_t again = 0;   // of these, with all experts afterwards
  uint64_t steps = 0;
  uint64_t steps_again = 0;  // with at least one such token
  double little_seconds = 0.0;
  double again_seconds = 0.0;
  // What the discarded passes said about the second ones' routing, and what was read of it before
  // its layer asked.
  PredictionScore foreseen = {};
  uint64_t prefetches = 0;
  uint64_t used_prefetches = 0;

  double fallback_ratio() const { return Share(again, tokens); }
  double fallback_share() const { return Share(steps_again, steps); }
};

// Tokens that were drafted and then checked by a step of several rows.
struct DraftStats {
  uint64_t rounds = 0;
  uint64_t proposed = 0;
  uint64_t accepted = 0;

  double acceptance() const { return Share(accepted, proposed); }
};

struct RunStats {
  PhaseStats prefill;
  PhaseStats decode;
  LittleStats little;  // part of decode
  DraftStats drafts;   // the same
  // Over decode's tokens.
  Histogram decode_ms;
  Histogram decode_bytes;  // needed_bytes

  // Of the rows of decode steps since the last call, `proposed` were drafts of tokens to come, of
  // which the text took `accepted`; the others are no tokens.
  void NoteDrafts(uint64_t proposed, uint64_t accepted) {
    decode.tokens -= proposed - accepted;
    drafts.proposed += proposed;
    drafts.accepted += accepted;
    ++drafts.rounds;
  }
};

}  // namespace moestro
