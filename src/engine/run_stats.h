// SPDX-License-Identifier: MIT
// Counters of a run, for summaries, bench output and tests. All reports use the same names.
#pragma once

#include <cstdint>

#include "base/counters.h"
#include "base/distribution.h"
#include "decide/ahead/prefetch_planner.h"
#include "decide/layer/lossy_options.h"
#include "decide/slots/slot_table.h"
#include "store/row_reads.h"

namespace moestro {

// `sum` divided by `count`; 0 if count is 0.
inline double Each(double sum, uint64_t count) {
  return count > 0 ? sum / static_cast<double>(count) : 0.0;
}

// A phase's work: the experts that its steps requested, the time, the bytes and the losses.
struct PhaseStats : ExpertCounts {
  uint64_t tokens = 0;
  double seconds = 0.0;
  double wait_seconds = 0.0;  // the compute threads had no work and waited for bytes
  // Time that more threads would not shorten: all of the layers' time but shared products,
  // attention and experts, and waits for bytes; of steps whose graphs the engine runs itself.
  double serial_seconds = 0.0;
  uint64_t serial_steps = 0;
  // Bytes of weights, keys and values that the steps had to read from memory. Each weight, of
  // experts too, counts once for all rows of a step. Of the embedding, the rows' own part counts.
  uint64_t touched_bytes = 0;
  LossCounts losses = {};  // counts of inexact choices
  TableCounts table = {};  // of tables on the disk

  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
  // The mean number of rows that share an expert of a step.
  double rows_per_use() const { return Each(static_cast<double>(row_requests), requests); }
  // Expert bytes read for a row.
  double bytes_per_row() const { return Each(static_cast<double>(bytes_read), tokens); }

  static constexpr void Visit(auto&& visit) {
    using P = PhaseStats;
    visit(&P::tokens, CounterText{.json = "decode_tokens", .prefill = "prefill_tokens"});
    visit(&P::seconds, CounterText{.json = "decode_seconds", .prefill = "prefill_seconds"});
    visit(&P::tokens_per_second, CounterText{.json = "decode_tps", .prefill = "prefill_tps"});
    ExpertCounts::Visit(visit);
    visit(&P::bytes_per_row, CounterText{.json = "bytes_per_row"});
    visit(&P::wait_seconds,
          CounterText{.json = "decode_wait_seconds",
                      .prefill = "prefill_wait_seconds",
                      .metric = "read_wait_seconds_total",
                      .meaning = "Time in which there was nothing to do but wait for bytes."});
    visit(&P::serial_seconds, CounterText{.json = "decode_serial_seconds"});
    visit(&P::serial_steps, CounterText{.json = "decode_serial_steps"});
    visit(&P::touched_bytes, CounterText{});
    visit(&P::losses, CounterText{});
    visit(&P::table, CounterText{});
  }
};
static_assert(CountsAllOf<PhaseStats>());

// Decode steps that were computed with fewer experts first (EngineOptions::little).
struct LittleStats {
  uint64_t tokens = 0;  // tokens computed with fewer experts first
  uint64_t again = 0;   // of `tokens`: computed again with all experts
  uint64_t steps = 0;
  uint64_t steps_again = 0;  // steps with at least one token computed again
  double little_seconds = 0.0;
  double again_seconds = 0.0;
  // Score of the discarded passes as predictions of the second passes' routing, and the experts
  // that were read by them before their layer requested them.
  PredictionScore foreseen = {};
  uint64_t prefetches = 0;
  uint64_t used_prefetches = 0;

  double fallback_ratio() const { return Share(again, tokens); }
  double fallback_share() const { return Share(steps_again, steps); }
  double little_step_seconds() const { return Each(little_seconds, steps); }
  double again_step_seconds() const { return Each(again_seconds, steps_again); }

  static constexpr void Visit(auto&& visit) {
    using L = LittleStats;
    visit(&L::tokens, CounterText{.json = "little_tokens"});
    visit(&L::again, CounterText{.json = "little_again"});
    visit(&L::fallback_ratio, CounterText{.json = "fallback_ratio"});
    visit(&L::steps, CounterText{});
    visit(&L::steps_again, CounterText{});
    visit(&L::little_seconds, CounterText{});
    visit(&L::again_seconds, CounterText{});
    visit(&L::little_step_seconds, CounterText{.json = "little_step_seconds"});
    visit(&L::again_step_seconds, CounterText{.json = "again_step_seconds"});
    visit(&L::foreseen, CounterText{.json = "foreseen_"});
    visit(&L::prefetches, CounterText{.json = "foreseen_prefetches"});
    visit(&L::used_prefetches, CounterText{.json = "foreseen_used_prefetches"});
  }
};
static_assert(CountsAllOf<LittleStats>());

// Tokens that were drafted and then checked by a step of several rows.
struct DraftStats {
  uint64_t rounds = 0;
  uint64_t proposed = 0;
  uint64_t accepted = 0;

  double acceptance() const { return Share(accepted, proposed); }

  static constexpr void Visit(auto&& visit) {
    visit(&DraftStats::proposed, CounterText{.json = "drafted_tokens",
                                             .metric = "drafted_tokens_total",
                                             .meaning = "Tokens that --draft guessed."});
    visit(&DraftStats::accepted, CounterText{.json = "accepted_tokens",
                                             .metric = "accepted_drafts_total",
                                             .meaning = "Guessed tokens that answers took."});
    visit(&DraftStats::rounds, CounterText{.json = "draft_steps",
                                           .metric = "draft_steps_total",
                                           .meaning = "Steps that checked guessed tokens."});
  }
};
static_assert(CountsAllOf<DraftStats>());

// Falls of speed while a run went on: of a disk or a machine that is hot, or that others use.
struct SlowedStats {
  uint64_t disk = 0;     // times that reads became slower by a third or more
  uint64_t compute = 0;  // times that computing did

  static constexpr void Visit(auto&& visit) {
    visit(&SlowedStats::disk, CounterText{.json = "disk_slowed",
                                          .metric = "disk_slowed_total",
                                          .meaning = "Times that reads became slower by a third."});
    visit(&SlowedStats::compute,
          CounterText{.json = "compute_slowed",
                      .metric = "compute_slowed_total",
                      .meaning = "Times that computing became slower by a third."});
  }
};
static_assert(CountsAllOf<SlowedStats>());

struct RunStats {
  PhaseStats prefill;
  PhaseStats decode;
  LittleStats little;  // part of decode
  DraftStats drafts;   // part of decode
  SlowedStats slowed;  // in decode
  // Over the tokens of decode.
  Histogram decode_ms;
  Histogram decode_bytes;  // needed_bytes

  // Call after decode steps with drafts. Of their rows, `proposed` were drafts of later tokens, and
  // the text took `accepted` of these. The other drafts do not count as tokens.
  void NoteDrafts(uint64_t proposed, uint64_t accepted) {
    decode.tokens -= proposed - accepted;
    drafts.proposed += proposed;
    drafts.accepted += accepted;
    ++drafts.rounds;
  }
};

}  // namespace moestro
