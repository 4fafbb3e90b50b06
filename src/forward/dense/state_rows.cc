// SPDX-License-Identifier: MIT
#include "forward/dense/state_rows.h"

#include <algorithm>

namespace moestro {

StateRows::StateRows(std::span<const RowState> rows, uint32_t most) {
  std::vector<std::vector<StateRun>> sequences;
  std::vector<StateSlot> written;  // [sequence]: place that the last run writes
  for (uint32_t row = 0; row < rows.size(); ++row) {
    const RowState& state = rows[row];
    if (!state.to) continue;
    const auto same = std::ranges::find_if(written, [&](StateSlot place) {
      return place == *state.to || (state.from && place == *state.from);
    });
    const auto sequence = static_cast<size_t>(same - written.begin());
    if (same == written.end()) {
      written.push_back(*state.to);
      sequences.emplace_back();
    }
    std::vector<StateRun>& runs = sequences[sequence];
    const bool goes_on = !runs.empty() && written[sequence] == *state.to &&
                         runs.back().first + runs.back().count == row && runs.back().count < most;
    written[sequence] = *state.to;
    if (goes_on) {
      ++runs.back().count;
    } else {
      runs.push_back({.first = row, .count = 1, .state = state});
    }
  }
  for (const std::vector<StateRun>& runs : sequences) {
    runs_.append_range(runs);
    begins_.push_back(static_cast<uint32_t>(runs_.size()));
  }
}

}  // namespace moestro
