// SPDX-License-Identifier: MIT
// Experts and weights of a batch of tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace moestro {

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
