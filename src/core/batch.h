// SPDX-License-Identifier: MIT
// Input of a step: rows of (sequence, position, token), from one or many sequences, one or many
// tokens of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace moestro {

using SequenceId = Id<struct SequenceTag, uint32_t>;

// Kind of a row, by which its experts are counted. Predictors and prefetch learn from decode rows
// alone, replacement policies also from prompts after a sequence has begun alone and before a token
// is decoded; statistics and traces keep the two kinds apart.
enum class RowKind : uint8_t { kDecode, kPrompt };

struct BatchRow {
  SequenceId sequence;
  uint32_t position = 0;  // the sequence's length, with its earlier rows in this batch counted
  Token token = 0;
  RowKind kind = RowKind::kDecode;
  bool wants_logits = false;
  // The sequence can go back to the position after this row once the step has ended, while states
  // have room (Sequence::Keep()).
  bool is_kept = false;
};

// Treatment of an expert that is not in memory: read it, use its low copy, or leave it out.
enum class Misses : uint8_t { kRead, kLow, kDrop };

// A little step: its rows use fewer experts than the model's K, so it costs less.
struct LittleStep {
  uint32_t n_used = 0;  // experts of a row, below K; 0: the step is not a little one
  Misses misses = Misses::kRead;
  bool prefers_resident = false;  // the best resident experts run, up to n_used of them

  bool is_on() const { return n_used > 0; }
};

struct Batch {
  std::vector<BatchRow> rows;
  LittleStep little = {};  // REQUIRES: all rows decode, if `little` is on
  // Experts that the layers will probably need: [layer][row][K] in router order, for as many rows
  // as are known. The engine reads them ahead. Empty: nothing is known. REQUIRES: all rows decode,
  // if the list is not empty.
  std::vector<std::vector<ExpertId>> foreseen = {};

  size_t size() const { return rows.size(); }
  bool has_decode_rows() const {
    return std::ranges::any_of(rows, [](const BatchRow& r) { return r.kind == RowKind::kDecode; });
  }
};

// Experts and weights of a batch of tokens.

// Views of RoutingCandidates: of some rows, or of one row in all layers.
struct CandidateSpans {
  std::span<const ExpertId> experts = {};  // [n_tokens][per_row]
  std::span<const float> scores = {};      // [n_tokens][per_row], descending
  std::span<const float> raw = {};         // [n_tokens][per_row]
  std::span<const float> ranges = {};      // [n_tokens]
};

// The best experts of each row by the router's own order: the chosen K first, then those that could
// replace them. Scores are the values of that order (logits, or probabilities with the family's
// bias; minus infinity for experts that the router's groups exclude), raw values those that weights
// are made of (WeighChosen), ranges the largest score of all experts less the smallest of those not
// excluded.
struct RoutingCandidates {
  uint32_t per_row = 0;           // 0: not requested
  std::vector<ExpertId> experts;  // [n_tokens][per_row]
  std::vector<float> scores;      // [n_tokens][per_row], descending
  std::vector<float> raw;         // [n_tokens][per_row]
  std::vector<float> ranges;      // [n_tokens]

  CandidateSpans all() const {
    return {.experts = experts, .scores = scores, .raw = raw, .ranges = ranges};
  }
  CandidateSpans row(size_t token) const {
    const size_t first = token * per_row;
    return {.experts = all().experts.subspan(first, per_row),
            .scores = all().scores.subspan(first, per_row),
            .raw = all().raw.subspan(first, per_row),
            .ranges = all().ranges.subspan(token, 1)};
  }
  // Removes all rows; each later row has `n` candidates. The vectors keep their memory.
  void Clear(uint32_t n) {
    per_row = n;
    experts.clear();
    scores.clear();
    raw.clear();
    ranges.clear();
  }
  void Append(const CandidateSpans& more) {
    experts.append_range(more.experts);
    scores.append_range(more.scores);
    raw.append_range(more.raw);
    ranges.append_range(more.ranges);
  }
  bool operator==(const RoutingCandidates&) const = default;
};

// Number of candidates that are kept if requested: beyond three times K no score is near enough.
inline uint32_t CandidatesOf(uint32_t n_expert, uint32_t n_used) {
  return n_expert < 3 * n_used ? n_expert : 3 * n_used;
}

// Row t holds token t's K experts in router order (largest probability first; ties by lower id).
// Within a row no expert repeats.
struct Routing {
  uint32_t n_tokens = 0;
  uint32_t n_used = 0;            // K
  std::vector<ExpertId> experts;  // [n_tokens][n_used]
  std::vector<float> weights;     // [n_tokens][n_used]
  RoutingCandidates candidates = {};

  std::span<const ExpertId> experts_of(size_t token) const {
    return std::span(experts).subspan(token * n_used, n_used);
  }
  std::span<const float> weights_of(size_t token) const {
    return std::span(weights).subspan(token * n_used, n_used);
  }
};

}  // namespace moestro
