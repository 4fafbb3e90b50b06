// SPDX-License-Identifier: MIT
// The loops of attention over a block of keys. V is a vector type of one instruction set. Include
// only in files compiled for that set.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "compute/attention_kernel.h"
#include "compute/kernels/float_lanes.h"

namespace moestro {

struct AttentionRows {
  const float* at;
  size_t stride;
};

// Products of kRows queries with two vectors' columns, in registers: sums[q][0..1] +=
// factors[q][i] * columns[i][two vectors] for i in [begin, end), in this order.
template <class V, int kRows>
inline void AddProducts(typename V::Float (&sums)[kRows][2], AttentionRows factors,
                        AttentionRows columns, size_t begin, size_t end) {
  for (size_t i = begin; i < end; ++i) {
    const typename V::Float left = V::Load(columns.at + i * columns.stride);
    const typename V::Float right = V::Load(columns.at + i * columns.stride + V::kLanes);
#pragma GCC unroll 8
    for (int q = 0; q < kRows; ++q) {
      const typename V::Float factor =
          V::Broadcast(factors.at[static_cast<size_t>(q) * factors.stride + i]);
      sums[q][0] = V::MultiplyAdd(factor, left, sums[q][0]);
      sums[q][1] = V::MultiplyAdd(factor, right, sums[q][1]);
    }
  }
}

// scores [kRows][two vectors] of kRows queries with the keys of one column pair.
template <class V, int kRows>
[[gnu::flatten]] void Scores(const AttentionKernel::Block& b, uint32_t first, uint32_t column) {
  typename V::Float sums[kRows][2];
#pragma GCC unroll 8
  for (int q = 0; q < kRows; ++q) sums[q][0] = sums[q][1] = V::Zero();
  constexpr size_t kWidth = 2 * V::kLanes;
  AddProducts<V, kRows>(sums, {b.queries + size_t{first} * b.dim_k, b.dim_k},
                        {b.keys + size_t{column} * kWidth * b.dim_k, kWidth}, 0, b.dim_k);
  float* to = b.scores + size_t{first} * AttentionKernel::kKeys + column * kWidth;
#pragma GCC unroll 8
  for (int q = 0; q < kRows; ++q, to += AttentionKernel::kKeys) {
    V::Store(to, sums[q][0]);
    V::Store(to + V::kLanes, sums[q][1]);
  }
}

// sums [kRows][dim_v] += weights [kRows][keys] * values [keys][dim_v], for the columns of two
// vectors.
template <class V, int kRows>
[[gnu::flatten]] void Values(const AttentionKernel::Block& b, uint32_t first, uint32_t column) {
  typename V::Float sums[kRows][2];
  constexpr size_t kWidth = 2 * V::kLanes;
  float* at = b.sums + size_t{first} * b.dim_v + column * kWidth;
#pragma GCC unroll 8
  for (int q = 0; q < kRows; ++q) {
    sums[q][0] = V::Load(at + static_cast<size_t>(q) * b.dim_v);
    sums[q][1] = V::Load(at + static_cast<size_t>(q) * b.dim_v + V::kLanes);
  }
  AddProducts<V, kRows>(
      sums, {b.scores + size_t{first} * AttentionKernel::kKeys, AttentionKernel::kKeys},
      {b.values + column * kWidth, b.value_stride}, b.ranges[first].begin, b.ranges[first].end);
#pragma GCC unroll 8
  for (int q = 0; q < kRows; ++q, at += b.dim_v) {
    V::Store(at, sums[q][0]);
    V::Store(at + V::kLanes, sums[q][1]);
  }
}

// Scores -> weights, for one query: finds the largest score, scales the earlier sums down, and adds
// up the new weights lane by lane.
template <class V>
void Weigh(const AttentionKernel::Block& b, uint32_t query) {
  using Float = typename V::Float;
  constexpr uint32_t kVectors = AttentionKernel::kKeys / V::kLanes;
  const KeyRange range = b.ranges[query];
  float* scores = b.scores + size_t{query} * AttentionKernel::kKeys;
  if (b.added != nullptr) {
    const float* added = b.added[query];
    for (uint32_t k = 0; k < AttentionKernel::kKeys; ++k) scores[k] += added[k];
  }
  for (uint32_t k = 0; k < range.begin; ++k) scores[k] = V::kMinusInfinity;
  for (uint32_t k = range.end; k < AttentionKernel::kKeys; ++k) scores[k] = V::kMinusInfinity;
  Float best = V::Load(scores);
#pragma GCC unroll 8
  for (uint32_t i = 1; i < kVectors; ++i) best = V::Max(best, V::Load(scores + i * V::kLanes));
  const float before = b.largest[query];
  const float of_block = V::LargestOf(best);
  const float largest = of_block > before ? of_block : before;
  Float weights = V::Load(b.weights + size_t{query} * AttentionKernel::kMaxLanes);
  if (largest > before) {
    const Float shrink = V::PowerOfTwo(V::Broadcast(before - largest));
    weights = V::Multiply(weights, shrink);
    float* sums = b.sums + size_t{query} * b.dim_v;
    for (uint32_t d = 0; d < b.dim_v; d += V::kLanes) {
      V::Store(sums + d, V::Multiply(V::Load(sums + d), shrink));
    }
    b.largest[query] = largest;
  }
  const Float top = V::Broadcast(largest);
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kVectors; ++i) {
    const Float weight = V::PowerOfTwo(V::Subtract(V::Load(scores + i * V::kLanes), top));
    V::Store(scores + i * V::kLanes, weight);
    weights = V::Add(weights, weight);
  }
  V::Store(b.weights + size_t{query} * AttentionKernel::kMaxLanes, weights);
}

// The number of queries from `first` on, at most kMost, with equal ranges of keys.
template <int kMost>
uint32_t CountAlike(const AttentionKernel::Block& b, uint32_t first) {
  uint32_t n = 1;
  while (n < kMost && first + n < b.n_queries && b.ranges[first + n] == b.ranges[first]) ++n;
  return n;
}

// Prefetches the lines of pieces, a few with each call, so that requests never wait for one
// another.
class LinesAhead {
 public:
  LinesAhead(std::span<const AttentionKernel::Piece> pieces, size_t calls) : pieces_(pieces) {
    size_t lines = 0;
    for (const AttentionKernel::Piece& piece : pieces) lines += LinesOf(piece);
    per_call_ = calls > 0 ? (lines + calls - 1) / calls : lines;
  }
  void Ask() {
    for (size_t n = per_call_; n > 0 && !pieces_.empty(); --n) {
      __builtin_prefetch(pieces_.front().at + line_ * kLine, 0, 2);
      if (++line_ < LinesOf(pieces_.front())) continue;
      line_ = 0;
      pieces_ = pieces_.subspan(1);
    }
  }

 private:
  static constexpr size_t kLine = 64;
  static size_t LinesOf(const AttentionKernel::Piece& piece) {
    return (piece.bytes + kLine - 1) / kLine;
  }

  std::span<const AttentionKernel::Piece> pieces_;
  size_t line_ = 0;  // index of a line in the first piece
  size_t per_call_ = 0;
};

// AttentionKernel::attend.
template <class V>
void AttendBlock(const AttentionKernel::Block& b) {
  constexpr int kRows = V::kRows;
  constexpr uint32_t kWidth = 2 * V::kLanes;
  const uint32_t columns = AttentionKernel::kKeys / kWidth + b.dim_v / kWidth;
  LinesAhead ahead(b.ahead, size_t{columns} * (b.n_queries / kRows + b.n_queries % kRows));
  // Scores of all keys, also those that no row attends to; Weigh() drops the latter.
  for (uint32_t column = 0; column < AttentionKernel::kKeys / kWidth; ++column) {
    uint32_t q = 0;
    for (; q + kRows <= b.n_queries; q += kRows) {
      Scores<V, kRows>(b, q, column);
      ahead.Ask();
    }
    for (; q < b.n_queries; ++q) {
      Scores<V, 1>(b, q, column);
      ahead.Ask();
    }
  }
  for (uint32_t q = 0; q < b.n_queries; ++q) {
    if (!b.ranges[q].is_empty()) Weigh<V>(b, q);
  }
  for (uint32_t column = 0; column < b.dim_v / kWidth; ++column) {
    for (uint32_t q = 0; q < b.n_queries;) {
      if (CountAlike<kRows>(b, q) == kRows) {
        Values<V, kRows>(b, q, column);
        q += kRows;
      } else {
        Values<V, 1>(b, q, column);
        ++q;
      }
      ahead.Ask();
    }
  }
}

// AttentionKernel::turn: keys [kKeys][stride] -> [column pair][dim][2 * lanes].
template <class V>
void TurnKeys(const float* keys, size_t stride, uint32_t dim, float* turned) {
  constexpr uint32_t kWidth = 2 * V::kLanes;
  for (uint32_t column = 0; column < AttentionKernel::kKeys / kWidth; ++column) {
    const float* from = keys + size_t{column} * kWidth * stride;
    float* to = turned + size_t{column} * kWidth * dim;
    uint32_t d = 0;
    for (; d + V::kLanes <= dim; d += V::kLanes) {
      V::Transpose(from + d, stride, to + size_t{d} * kWidth, kWidth);
      V::Transpose(from + V::kLanes * stride + d, stride, to + size_t{d} * kWidth + V::kLanes,
                   kWidth);
    }
    for (; d < dim; ++d) {
      for (uint32_t k = 0; k < kWidth; ++k) to[size_t{d} * kWidth + k] = from[k * stride + d];
    }
  }
}

// AttentionKernel::from_f16.
template <class V>
void FromF16(const std::byte* from, float* to, size_t n) {
  V::ToFloat(reinterpret_cast<const Half*>(from), to, n);
}

// AttentionKernel::from_f32.
template <class V>
void FromF32(const std::byte* from, float* to, size_t n) {
  std::memcpy(to, from, n * sizeof(float));
}

// AttentionKernel::from_q8: blocks of a factor, a half, and its integers.
template <class V>
void FromQ8(const std::byte* from, float* to, size_t n) {
  constexpr KvTypeInfo kBlock = InfoOf(KvType::kQ8);
  for (size_t i = 0; i < n; i += kBlock.block, from += kBlock.block_bytes) {
    float factor = 0.0F;
    V::ToFloat(reinterpret_cast<const Half*>(from), &factor, 1);
    const auto* integers = reinterpret_cast<const int8_t*>(from + sizeof(Half));
#pragma GCC unroll 8
    for (uint32_t j = 0; j < kBlock.block; j += V::kLanes) {
      V::Store(to + i + j, V::Multiply(V::Broadcast(factor), V::FromIntegers(integers + j)));
    }
  }
}

template <class V>
inline constexpr AttentionKernel kAttentionKernel = {.attend = AttendBlock<V>,
                                                     .from_f16 = FromF16<V>,
                                                     .from_q8 = FromQ8<V>,
                                                     .from_f32 = FromF32<V>,
                                                     .turn = TurnKeys<V>,
                                                     .lanes = V::kLanes,
                                                     .name = V::kName};

}  // namespace moestro
