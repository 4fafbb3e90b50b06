// SPDX-License-Identifier: MIT
// Remembers the last layer's output of the last rows of each sequence, for a layer that predicts
// further tokens: the input of its row at a position has the output of the row before. A row whose
// predecessor is forgotten gets zeros, which costs acceptance of drafts and nothing else. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"
#include "forward/dense/step_rows.h"

namespace moestro {

class CarriedRows {
 public:
  // Rows of a sequence that a step leaves: those of the longest draft, and the one before it.
  static constexpr uint32_t kOfSequence = 17;
  // Rows of all sequences; the oldest are forgotten.
  static constexpr uint32_t kRows = 256;

  explicit CarriedRows(uint32_t n_embd);
  static uint64_t BytesFor(uint32_t n_embd) { return uint64_t{kRows} * n_embd * sizeof(float); }

  // Remembers outputs of a step's rows, and gives each row the output of the row before: `outputs`,
  // [rows][n_embd], changes in place. REQUIRES: rows of a sequence are in order of position.
  void Shift(std::span<const StepRow> rows, std::span<float> outputs);
  // The output of a row, or zeros, to `out` [n_embd].
  void Read(SequenceId sequence, uint32_t position, std::span<float> out) const;

 private:
  struct Place {
    SequenceId sequence = {};
    uint32_t position = 0;
    bool is_taken = false;
  };
  std::span<const float> Find(SequenceId sequence, uint32_t position) const;
  void Remember(const StepRow& row, std::span<const float> output);

  uint32_t n_embd_;
  std::vector<Place> places_;  // [kRows]
  std::vector<float> values_;  // [kRows][n_embd]
  uint32_t next_ = 0;          // the place that is taken next
};

}  // namespace moestro
