// SPDX-License-Identifier: MIT
// The rows that the lanes of a register work on. A Lanes type V (avx512_lanes.h, avx2_lanes.h)
// names the registers; a lane is a matrix row, so every row and token has its own sum, added up
// block after block, whatever the neighbours are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compute/expert_kernel.h"

namespace moestro {

// Prefetches memory ahead of the reads, evenly over a tile's work. A tile's rows are read side by
// side, an order that no hardware prefetcher follows. Whole tiles are prefetched, too many bytes
// for the first-level cache, so they go into the second. (Q4_0, one token, bench/kernel_bench.cc:
// 7.5 GB/s without prefetch, 11 into the first level, 21 into the second, 33 a plain read loop.)
template <class V>
class CacheWarmer {
 public:
  // A warmer that prefetches nothing.
  CacheWarmer() = default;
  // Prefetches `bytes` bytes, from `from` bytes behind the call's first row on. Bytes behind the
  // last row are those of the call's `next`.
  CacheWarmer(const ExpertKernel::Call& call, size_t from, size_t bytes) {
    const size_t call_bytes = static_cast<size_t>(call.n_rows) * call.row_bytes;
    const bool inside = from < call_bytes;
    const std::byte* const base = inside ? call.rows : call.next;
    const size_t size = inside ? call_bytes : call.next_bytes;
    const size_t begin = inside ? from : from - call_bytes;
    if (begin >= size) return;
    at_ = base + begin;
    end_ = base + (bytes < size - begin ? begin + bytes : size);
  }
  // Prefetches the lines that keep ahead of reading 16 bytes of each row.
  void Step() {
    if (at_ >= end_) return;
    constexpr size_t kLines = V::kQuads + 1;
#pragma GCC unroll 8
    for (size_t i = 0; i < kLines; ++i) __builtin_prefetch(at_ + i * kLine, 0, 2);
    at_ += kLines * kLine;
  }

 private:
  static constexpr size_t kLine = 64;
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
};

// The distance of the prefetch: whole tiles, at least the bytes that hide the latency of DRAM.
template <class V>
size_t LookAhead(size_t tile_bytes) {
  constexpr size_t kLookAhead = 12288;
  return (kLookAhead + tile_bytes - 1) / tile_bytes * tile_bytes;
}

// The block under way in 4 * kQuads rows: row 4q + i at quad[q] + i * stride.
template <class V>
struct Rows {
  const std::byte* quad[V::kQuads];
  size_t stride;
  CacheWarmer<V>* warmer;
  const uint32_t* grid;  // table of formats with indices (operands.h)

  void Advance(size_t bytes) {
#pragma GCC unroll 4
    for (int q = 0; q < V::kQuads; ++q) quad[q] += bytes;
  }
  // 16 bytes of every row, transposed: out[k] holds bytes 4k..4k+3 of each row in its lane.
  void Load16(size_t offset, typename V::Int* out) const {
    using Int = typename V::Int;
    warmer->Step();
    const Int r0 = V::Gather16(quad, offset);
    const Int r1 = V::Gather16(quad, offset + stride);
    const Int r2 = V::Gather16(quad, offset + 2 * stride);
    const Int r3 = V::Gather16(quad, offset + 3 * stride);
    const Int low01 = V::UnpackLow32(r0, r1);
    const Int low23 = V::UnpackLow32(r2, r3);
    const Int high01 = V::UnpackHigh32(r0, r1);
    const Int high23 = V::UnpackHigh32(r2, r3);
    out[0] = V::UnpackLow64(low01, low23);
    out[1] = V::UnpackHigh64(low01, low23);
    out[2] = V::UnpackLow64(high01, high23);
    out[3] = V::UnpackHigh64(high01, high23);
  }
  // The half at `offset` of every row.
  typename V::Float LoadHalf(size_t offset) const {
    const std::byte* at[V::kQuads];
#pragma GCC unroll 4
    for (int q = 0; q < V::kQuads; ++q) at[q] = quad[q] + offset;
    return V::GatherHalves(at, stride);
  }
  // The first byte of every row.
  typename V::Int LoadFirstByte() const {
    return V::And(V::Gather2(quad, stride), V::Fill32(0xff));
  }
  // The half that starts a block of 16 bytes or more, and the word behind it.
  typename V::Float LoadHalfAndWord(typename V::Int* word) const {
    typename V::Int head[4];
    Load16(0, head);
    *word = V::Or(V::template ShiftRight<16>(head[0]), V::template ShiftLeft<16>(head[1]));
    return V::LowHalf(head[0]);
  }
  // The 14 bytes that end a block whose size is `offset` + 14: out[0] has the first two bytes in
  // its high half; its low half is not used.
  void LoadLast14(size_t offset, typename V::Int* out) const { Load16(offset - 2, out); }
};

// Rows that are interleaved (rows.h): row 4q + i is lane 4q + i of each column.
template <class V>
struct InterleavedRows {
  static constexpr size_t kLanes = 4 * V::kQuads;

  const std::byte* at;
  CacheWarmer<V>* warmer;
  const uint32_t* grid;

  void Advance(size_t bytes) { at += kLanes * bytes; }
  void Load16(size_t offset, typename V::Int* out) const {
    warmer->Step();
#pragma GCC unroll 4
    for (size_t k = 0; k < 4; ++k) out[k] = V::LoadWords(at + kLanes * (offset + 4 * k));
  }
  typename V::Float LoadHalf(size_t offset) const {
    return V::LoadHalfFloats(at + kLanes * offset);
  }
  typename V::Int LoadFirstByte() const { return V::LoadBytes(at); }
  typename V::Float LoadHalfAndWord(typename V::Int* word) const {
    warmer->Step();
    *word = V::LoadWords(at + kLanes * 2);
    return V::LoadHalfFloats(at);
  }
  void LoadLast14(size_t offset, typename V::Int* out) const {
    warmer->Step();
    out[0] = V::template ShiftLeft<16>(V::LoadHalves(at + kLanes * offset));
#pragma GCC unroll 3
    for (size_t k = 0; k < 3; ++k) {
      out[k + 1] = V::LoadWords(at + kLanes * (offset + 2 + 4 * k));
    }
  }
};

// The column of an interleaved block that is less than four bytes wide; 0 bytes: none.
struct NarrowColumn {
  size_t at = 0;
  size_t bytes = 0;
};

// Low nibbles of four registers in w[0..3], high ones in w[4..7].
template <class V>
inline void SplitNibbles(typename V::Int* w) {
  const typename V::Int mask = V::Fill8(0x0f);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    w[k + 4] = V::And(V::template ShiftRight<4>(w[k]), mask);
    w[k] = V::And(w[k], mask);
  }
}

// Sets `value` in the i-th byte of w[k] if bit 4k + i of `word` is set.
template <class V>
inline void SetBytesOfBits(typename V::Int word, int value, typename V::Int* w) {
  using Int = typename V::Int;
  const Int low = V::Fill32(0x08040201);
  const Int high = V::Fill32(static_cast<int>(0x80402010));
  const Int set = V::Fill8(value);
  const Int bytes[4] = {V::template SpreadByte<0>(word), V::template SpreadByte<1>(word),
                        V::template SpreadByte<2>(word), V::template SpreadByte<3>(word)};
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    w[2 * k] = V::OrWhere(w[2 * k], set, bytes[k], low);
    w[2 * k + 1] = V::OrWhere(w[2 * k + 1], set, bytes[k], high);
  }
}

// The bytes that IQ4_NL and IQ4_XS store as nibbles.
inline constexpr int8_t kNonLinear[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// The layout that our kernels read as one stream. Rows form groups of as many rows as a register
// has lanes. A group holds the first four bytes of all its rows, then the next four of all, and so
// on to the end of the rows. Such a column is a register. A block whose size is no multiple of four
// has one narrower column (NarrowColumn). A group takes the bytes that its rows took; rows behind
// the last whole group stay unchanged.

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
    const size_t ahead = static_cast<size_t>(r) * matrix.row_bytes + LookAhead<V>(group_bytes);
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
