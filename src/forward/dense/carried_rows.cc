// SPDX-License-Identifier: MIT
#include "forward/dense/carried_rows.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>

namespace moestro {

CarriedRows::CarriedRows(uint32_t n_embd)
    : n_embd_(n_embd), places_(kRows), values_(size_t{kRows} * n_embd) {}

// The newest row counts: a sequence that was cut back has had others at its positions.
std::span<const float> CarriedRows::Find(SequenceId sequence, uint32_t position) const {
  for (uint32_t back = 1; back <= kRows; ++back) {
    const uint32_t at = (next_ + kRows - back) % kRows;
    const Place& place = places_[at];
    if (!place.is_taken) break;
    if (place.sequence == sequence && place.position == position) {
      return std::span(values_).subspan(size_t{at} * n_embd_, n_embd_);
    }
  }
  return {};
}

void CarriedRows::Read(SequenceId sequence, uint32_t position, std::span<float> out) const {
  const std::span<const float> found = Find(sequence, position);
  if (found.empty()) {
    std::ranges::fill(out, 0.0F);
  } else {
    std::ranges::copy(found, out.begin());
  }
}

void CarriedRows::Remember(const StepRow& row, std::span<const float> output) {
  places_[next_] = {.sequence = row.sequence, .position = row.position, .is_taken = true};
  std::ranges::copy(output, values_.begin() + static_cast<ptrdiff_t>(size_t{next_} * n_embd_));
  next_ = (next_ + 1) % kRows;
}

void CarriedRows::Shift(std::span<const StepRow> rows, std::span<float> outputs) {
  const auto output = [&](size_t row) { return outputs.subspan(row * n_embd_, n_embd_); };
  // Stage: each row's predecessor in the step, and the carried rows of those that have none.
  std::map<SequenceId, size_t> latest;
  std::vector<std::optional<size_t>> before(rows.size());
  std::vector<float> carried;
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto known = latest.find(rows[r].sequence);
    if (known != latest.end()) {
      before[r] = known->second;
    } else {
      carried.resize(carried.size() + n_embd_);
      const std::span<float> last = std::span(carried).last(n_embd_);
      if (rows[r].position > 0) Read(rows[r].sequence, rows[r].position - 1, last);
    }
    latest[rows[r].sequence] = r;
  }
  // Stage: the last rows of each sequence are remembered.
  std::map<SequenceId, uint32_t> left;
  for (const StepRow& row : rows) ++left[row.sequence];
  for (size_t r = 0; r < rows.size(); ++r) {
    if (left[rows[r].sequence]-- <= kOfSequence) Remember(rows[r], output(r));
  }
  // Stage: outputs move on by one row of their sequence. A predecessor comes earlier in the step,
  // so the last row goes first.
  size_t first = carried.size();
  for (size_t r = rows.size(); r-- > 0;) {
    if (before[r]) {
      std::ranges::copy(output(*before[r]), output(r).begin());
    } else {
      first -= n_embd_;
      std::ranges::copy(std::span(carried).subspan(first, n_embd_), output(r).begin());
    }
  }
}

}  // namespace moestro
