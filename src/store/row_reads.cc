// SPDX-License-Identifier: MIT
#include "store/row_reads.h"

#include "base/result.h"

namespace moestro {

std::vector<RowRead> MergeRows(const TableLayout& layout, std::span<const uint64_t> rows,
                               uint64_t most_bytes) {
  std::vector<RowRead> reads;
  Window window;  // of the last read
  for (size_t i = 0; i < rows.size(); ++i) {
    const Extent row = layout.ExtentOf(rows[i]);
    const Window its = CoveringWindow(row, layout.block);
    if (!reads.empty()) {
      RowRead& last = reads.back();
      CHECK(row.offset >= last.from.offset + last.from.length);
      const bool is_near = its.offset <= window.offset + window.length;
      const uint64_t together = its.offset + its.length - window.offset;
      if (is_near && together <= most_bytes) {
        last.from.length = row.offset + row.length - last.from.offset;
        ++last.count;
        window.length = together;
        continue;
      }
    }
    reads.push_back({.from = row, .first = i, .count = 1});
    window = its;
  }
  return reads;
}

std::optional<uint32_t> RowCache::Find(uint64_t row) {
  const auto found = by_row_.find(row);
  if (found == by_row_.end()) return std::nullopt;
  order_.splice(order_.begin(), order_, found->second);
  return found->second->place;
}

std::optional<uint32_t> RowCache::Insert(uint64_t row) {
  if (places_ == 0) return std::nullopt;
  CHECK(!by_row_.contains(row));
  if (order_.size() < places_) {
    order_.push_front({.row = row, .place = static_cast<uint32_t>(order_.size())});
  } else {
    order_.splice(order_.begin(), order_, std::prev(order_.end()));
    by_row_.erase(order_.front().row);
    order_.front().row = row;
  }
  by_row_.emplace(row, order_.begin());
  return order_.front().place;
}

}  // namespace moestro
