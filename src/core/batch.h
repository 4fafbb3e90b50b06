// SPDX-License-Identifier: MIT
// Input of a step: rows of (sequence, position, token), from one or many sequences, one or many
// tokens of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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

}  // namespace moestro
