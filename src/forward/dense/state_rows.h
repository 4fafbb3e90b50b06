// SPDX-License-Identifier: MIT
// The rows of a graph in the order in which mixers with a state take them: sequence by sequence, a
// few consecutive rows at a time. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "memory/state_slots.h"

namespace moestro {

// The places of the state before a row and of the state after it. Both are the same place for a row
// that follows another row of its sequence, unless the state between the two is kept.
struct RowState {
  std::optional<StateSlot> from = {};  // nullopt: all zeros, before the first token
  std::optional<StateSlot> to = {};    // nullopt: no layer has a state
};

// Consecutive rows [first, first + count) of one sequence.
struct StateRun {
  uint32_t first = 0;
  uint32_t count = 0;
  RowState state;
};

class StateRows {
 public:
  StateRows() = default;
  // Runs of at most `most` rows. Rows without a place are left out; graphs that are only sized have
  // such rows.
  StateRows(std::span<const RowState> rows, uint32_t most);

  uint32_t sequences() const { return static_cast<uint32_t>(begins_.size()) - 1; }
  // Runs of a sequence in order of position; each run begins with the state that the run before it
  // wrote.
  std::span<const StateRun> of(uint32_t sequence) const {
    return std::span(runs_).subspan(begins_[sequence], begins_[sequence + 1] - begins_[sequence]);
  }

 private:
  std::vector<StateRun> runs_;          // sequence by sequence
  std::vector<uint32_t> begins_ = {0};  // [sequence], and the end
};

}  // namespace moestro
