// SPDX-License-Identifier: MIT
// What a step computes: rows of (sequence, position, token), from one or many sequences, one or
// many tokens of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/ids.h"

namespace moestro {

using SequenceId = Id<struct SequenceTag, uint32_t>;

// Whose traffic a row's experts are. Replacement policies, predictors and prefetch learn from
// decode alone; statistics and traces keep the two apart.
enum class RowKind : uint8_t { kDecode, kPrompt };

struct BatchRow {
  SequenceId sequence;
  uint32_t position = 0;  // the sequence's length, counting the rows of it before this one
  Token token = 0;
  RowKind kind = RowKind::kDecode;
  bool wants_logits = false;
};

struct Batch {
  std::vector<BatchRow> rows;

  size_t size() const { return rows.size(); }
  bool has_decode_rows() const {
    return std::ranges::any_of(rows, [](const BatchRow& r) { return r.kind == RowKind::kDecode; });
  }
};

}  // namespace moestro
