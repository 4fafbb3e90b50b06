// SPDX-License-Identifier: MIT
#include "forward/dense/state_rows.h"

#include <algorithm>

namespace moestro {

StateRows::StateRows(std::span<const RowState> rows, uint32_t most) {
  std::vector<uint32_t> order;
  for (uint32_t row = 0; row < rows.size(); ++row) {
    if (rows[row].to) order.push_back(row);
  }
  // A sequence writes to one place.
  std::ranges::stable_sort(order, {}, [&](uint32_t row) { return rows[row].to->value; });
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t row = order[i];
    const bool is_next = i > 0 && rows[order[i - 1]].to == rows[row].to;
    if (!is_next && i > 0) begins_.push_back(static_cast<uint32_t>(runs_.size()));
    if (is_next && row == order[i - 1] + 1 && runs_.back().count < most) {
      ++runs_.back().count;
    } else {
      runs_.push_back({.first = row, .count = 1, .state = rows[row]});
    }
  }
  if (!runs_.empty()) begins_.push_back(static_cast<uint32_t>(runs_.size()));
}

}  // namespace moestro
