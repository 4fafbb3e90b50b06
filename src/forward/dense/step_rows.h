// SPDX-License-Identifier: MIT
// The rows of a step, as the dense part takes them. Plain values.
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
  uint32_t cell = 0;  // the cell of its key and value
  RowCells visible;   // positions 0 .. position of its sequence; the runs outlive the step
  // The same in layers with cells of the last positions alone, if the model has such.
  uint32_t recent_cell = 0;
  RowCells recent = {};
  RowState state = {};
  // Of a model with an encoder: whether it is a row of a source; if not, the cells of its source.
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
