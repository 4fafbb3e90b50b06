// SPDX-License-Identifier: MIT
#include "forward/dense/chosen_positions.h"

#include <algorithm>

namespace moestro {

uint64_t ChosenPositions::BytesFor(uint32_t rows, uint32_t top_k, uint32_t n_ctx) {
  return uint64_t{rows} * (n_ctx > top_k ? top_k : 0) * sizeof(CellRun);
}

Result<std::unique_ptr<ChosenPositions>> ChosenPositions::Create(uint32_t rows, uint32_t top_k,
                                                                 uint32_t n_ctx) {
  std::unique_ptr<ChosenPositions> chosen(new ChosenPositions(rows, n_ctx > top_k ? top_k : 0));
  if (chosen->top_k_ == 0) return chosen;
  TRY(chosen->runs_, HostMemory::Allocate(BytesFor(rows, top_k, n_ctx)));
  return chosen;
}

void ChosenPositions::Begin(uint32_t first, std::span<const RowCells> visible) {
  for (size_t r = 0; r < visible.size(); ++r) {
    rows_[first + r] = visible[r];
    if (!is_chosen(visible[r])) continue;
    rows_[first + r] = {.runs = runs(first + static_cast<uint32_t>(r)), .n_positions = top_k_};
  }
}

ChosenPositions::Kept ChosenPositions::Take(size_t count) const {
  const CellRun* first = runs(0).data();
  return {.runs = {first, first + count * top_k_},
          .rows = {rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(count)}};
}

void ChosenPositions::Give(const Kept& kept) {
  std::ranges::copy(kept.runs, runs(0).data());
  std::ranges::copy(kept.rows, rows_.begin());
}

}  // namespace moestro
