// SPDX-License-Identifier: MIT
// The layout that our kernels read as one stream. Rows form groups of as many rows as a register
// has lanes. A group holds the first four bytes of all its rows, then the next four of all, and so
// on to the end of the rows. Such a column is a register. A block whose size is no multiple of four
// has one narrower column (NarrowColumn). A group takes the bytes that its rows took; rows behind
// the last whole group stay unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "device/expert_kernel.h"
#include "device/kernels/rows.h"

namespace moestro {

// Interleaves a block of each row of a group: row r at from + r * row_bytes -> columns at `to`.
template <class V, class Format>
inline void InterleaveBlock(const Rows<V>& rows, const std::byte* from, size_t row_bytes,
                            std::byte* to) {
  constexpr size_t kLanes = 4 * V::kQuads;
  constexpr NarrowColumn kNarrow = Format::kNarrow;
  for (size_t at = 0; at < Format::kBytes;) {
    const bool is_narrow = at == kNarrow.at && kNarrow.bytes > 0;
    const size_t end = at < kNarrow.at ? kNarrow.at : Format::kBytes;
    if (!is_narrow && at + 16 <= end) {
      typename V::Int columns[4];
      rows.Load16(at, columns);
#pragma GCC unroll 4
      for (size_t k = 0; k < 4; ++k) V::StoreWords(to + kLanes * (at + 4 * k), columns[k]);
      at += 16;
      continue;
    }
    const size_t bytes = is_narrow ? kNarrow.bytes : 4;
    for (size_t r = 0; r < kLanes; ++r) {
      std::memcpy(to + kLanes * at + r * bytes, from + r * row_bytes + at, bytes);
    }
    at += bytes;
  }
}

// ExpertKernel::interleave.
template <class V, class Format>
[[gnu::flatten]] void InterleaveRows(const ExpertKernel::Matrix& matrix, std::byte* scratch) {
  constexpr int64_t kLanes = 4 * V::kQuads;
  const size_t group_bytes = kLanes * matrix.row_bytes;
  ExpertKernel::Call all{};  // the members that CacheWarmer reads
  all.rows = matrix.rows;
  all.row_bytes = matrix.row_bytes;
  all.n_rows = matrix.n_rows;
  Rows<V> rows{};
  rows.stride = matrix.row_bytes;
  for (int64_t r = 0; r + kLanes <= matrix.n_rows; r += kLanes) {
    std::byte* const group = matrix.rows + static_cast<size_t>(r) * matrix.row_bytes;
    const size_t ahead = static_cast<size_t>(r) * matrix.row_bytes + LookAhead(group_bytes);
    CacheWarmer<V> warmer(all, ahead, group_bytes);
    rows.warmer = &warmer;
    for (size_t q = 0; q < V::kQuads; ++q) rows.quad[q] = group + 4 * q * matrix.row_bytes;
    for (size_t at = 0; at < matrix.row_bytes; at += Format::kBytes) {
      InterleaveBlock<V, Format>(rows, group + at, matrix.row_bytes, scratch + kLanes * at);
      rows.Advance(Format::kBytes);
    }
    std::memcpy(group, scratch, group_bytes);
  }
}

}  // namespace moestro
