// SPDX-License-Identifier: MIT
// The rows of a step for the dense part. Plain values.
#pragma once

#include <cstdint>

#include "core/batch.h"
#include "core/ids.h"
#include "forward/dense/attention_tasks.h"
#include "forward/dense/state_rows.h"

namespace moestro {

// A row of a step, with the cells of its position and of all positions before it.
struct StepRow {
  Token token = 0;
  uint32_t position = 0;
  uint32_t cell = 0;  // cell of the row's key and value
  RowCells visible;   // positions 0 .. position of the sequence; the runs outlive the step
  // Cells in layers with cells of the last positions alone, if the model has such layers.
  uint32_t recent_cell = 0;
  RowCells recent = {};
  RowState state = {};
  // For a model with an encoder: whether the row is of a source; if not, the cells of the
  // sequence's source.
  bool is_source = false;
  RowCells source = {};
  SequenceId sequence = {};
};

// Rows [first, first + count) of a step.
struct StepRows {
  uint32_t first = 0;
  uint32_t count = 0;
};

}  // namespace moestro
