// SPDX-License-Identifier: MIT
// Types with 256 weights to a block and small integer scales inside a block, against Q8_K tokens:
// blocks are unpacked and multiplied. Block layouts follow ggml's files; `rows` stands at the
// block. Written over a Lanes type (rows.h). All sums within a block are integers and exact.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "compute/kernels/operands.h"
#include "compute/kernels/rows.h"

namespace moestro {

// Four signed bytes per lane -> two registers of 16-bit pairs.
template <class V>
inline void BytesToPairs(typename V::Int bytes, typename V::Int* pairs) {
  using Int = typename V::Int;
  const Int low = V::Fill32(0xff);
  const Int high = V::Fill32(0xff0000);
  const Int first = V::Or(V::And(bytes, low), V::And(V::template ShiftLeft<8>(bytes), high));
  const Int second = V::Or(V::And(V::template ShiftRight<16>(bytes), low),
                           V::And(V::template ShiftRight<8>(bytes), high));
  pairs[0] = V::SignExtendBytes(first);
  pairs[1] = V::SignExtendBytes(second);
}

// BytesToPairs() with bytes 0 and 2 in the first register, 1 and 3 in the second: the pairs of
// sums16.
template <class V>
inline void BytesToPairsApart(typename V::Int bytes, typename V::Int* pairs) {
  pairs[0] = V::SignExtendBytes(bytes);
  pairs[1] = V::SignExtendBytes(V::template ShiftRight<8>(bytes));
}

// The sum over 2 * kPairs parts of a block of factor times the part's sum of values.
template <class V, int kPairs>
inline typename V::Int SumOfParts(const typename V::Int* pairs, const int16_t* sums) {
  typename V::Int total = V::Fill32(0);
#pragma GCC unroll 8
  for (int p = 0; p < kPairs; ++p) {
    total = V::DotPairs(total, pairs[p], V::Broadcast(sums + 2 * p));
  }
  return total;
}

// totals[t] += scale * dot of 4 * kCount weights with the values at `offset`.
template <class V, int kMax, int kCount, int kTokens>
inline void AddPart(const Activation256* const (&tokens)[kTokens], int64_t offset,
                    typename V::Int scale, const typename V::Int* w,
                    typename V::Int (&totals)[kTokens]) {
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    totals[t] =
        V::template ScaledDot<kMax, kCount>(totals[t], scale, w, tokens[t]->values + offset);
  }
}

// sums[t] += scale * activation scale * totals[t].
template <class V, int kTokens>
inline void AddTotals(const Activation256* const (&tokens)[kTokens], typename V::Float scale,
                      const typename V::Int (&totals)[kTokens],
                      typename V::Float (&sums)[kTokens]) {
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const typename V::Float both = V::Multiply(scale, V::Broadcast(tokens[t]->scale));
    sums[t] = V::MultiplyAdd(V::ToFloat(totals[t]), both, sums[t]);
  }
}

// Starts totals for signed weights with a scale for each 32 (four pairs) or 16 (eight pairs):
// scales times sums of values times -kSignedOffset.
template <class V, int kTokens, int kPairs>
inline void StartSigned(const Activation256* const (&tokens)[kTokens],
                        const typename V::Int (&scales)[kPairs],
                        typename V::Int (&totals)[kTokens]) {
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    if constexpr (V::kSignedOffset == 0) {
      totals[t] = V::Fill32(0);
    } else {
      static_assert(V::kSignedOffset == 128 && (kPairs == 4 || kPairs == 8));
      const int16_t* const sums = kPairs == 4 ? tokens[t]->sums32 : tokens[t]->sums16;
      totals[t] = V::Negate(V::template ShiftLeft<7>(SumOfParts<V, kPairs>(scales, sums)));
    }
  }
}

// The head of Q4_K and Q5_K: halves d and m, 8 scales s and 8 minima n of six bits in 12 bytes.
template <class V>
struct SixBitHead {
  typename V::Float scale;
  typename V::Float minimum;
  typename V::Int scales[4];  // pairs
  typename V::Int minima[4];

  template <class Source>
  explicit SixBitHead(const Source& rows) {
    using Int = typename V::Int;
    Int head[4];
    rows.Load16(0, head);
    scale = V::LowHalf(head[0]);
    minimum = V::LowHalf(V::template ShiftRight<16>(head[0]));
    const Int six = V::Fill8(0x3f);
    const Int low = V::Fill8(0x0f);
    const Int top = V::Fill8(0x30);
    // Bytes 0-3 and 4-7 hold the first four scales and minima, and above each two bits of the last
    // four.
    BytesToPairs<V>(V::And(head[1], six), scales);
    BytesToPairs<V>(V::And(head[2], six), minima);
    BytesToPairs<V>(V::Or(V::And(head[3], low), V::And(V::template ShiftRight<2>(head[1]), top)),
                    scales + 2);
    BytesToPairs<V>(V::Or(V::And(V::template ShiftRight<4>(head[3]), low),
                          V::And(V::template ShiftRight<2>(head[2]), top)),
                    minima + 2);
  }

  template <int kTokens>
  void SubtractMinima(const Activation256* const (&tokens)[kTokens],
                      typename V::Float (&sums)[kTokens]) const {
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const typename V::Int total = SumOfParts<V, 4>(minima, tokens[t]->sums32);
      const typename V::Float both = V::Multiply(minimum, V::Broadcast(tokens[t]->scale));
      sums[t] = V::SubtractProduct(V::ToFloat(total), both, sums[t]);
    }
  }
};

// Six-bit head, 128 bytes of nibbles q: weights d * s * q - m * n. 32 bytes hold 32 weights in
// their low nibbles and the next 32 in the high ones.
struct FormatQ4_K {
  static constexpr size_t kBytes = 144;
  static constexpr NarrowColumn kNarrow = {};
  using Activation = Activation256;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens256;
  template <class V>
  static constexpr auto kQuantise = Quantise256;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation256* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    using Int = typename V::Int;
    const SixBitHead<V> head(rows);
    head.SubtractMinima(tokens, sums);
    Int totals[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) totals[t] = V::Fill32(0);
    const Int mask = V::Fill8(0x0f);
#pragma GCC unroll 1
    for (int c = 0; c < 4; ++c) {
      Int q[8];
      Int w[8];
      rows.Load16(static_cast<size_t>(16 + 32 * c), q);
      rows.Load16(static_cast<size_t>(32 + 32 * c), q + 4);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) w[k] = V::And(q[k], mask);
      AddPart<V, 15, 8>(tokens, 64 * c, V::LowScale(head.scales[c]), w, totals);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) w[k] = V::And(V::template ShiftRight<4>(q[k]), mask);
      AddPart<V, 15, 8>(tokens, 64 * c + 32, V::HighScale(head.scales[c]), w, totals);
    }
    AddTotals<V>(tokens, head.scale, totals, sums);
  }
};

// As Q4_K with a fifth bit: bit p of 32 bytes between head and nibbles belongs to the p-th 32
// weights.
struct FormatQ5_K {
  static constexpr size_t kBytes = 176;
  static constexpr NarrowColumn kNarrow = {};
  using Activation = Activation256;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens256;
  template <class V>
  static constexpr auto kQuantise = Quantise256;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation256* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    using Int = typename V::Int;
    const SixBitHead<V> head(rows);
    head.SubtractMinima(tokens, sums);
    Int totals[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) totals[t] = V::Fill32(0);
    Int fifth[8];
    rows.Load16(16, fifth);
    rows.Load16(32, fifth + 4);
    const Int mask = V::Fill8(0x0f);
    const Int bit = V::Fill8(0x10);
#pragma GCC unroll 1
    for (int c = 0; c < 4; ++c) {
      Int q[8];
      Int w[8];
      rows.Load16(static_cast<size_t>(48 + 32 * c), q);
      rows.Load16(static_cast<size_t>(64 + 32 * c), q + 4);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) {
        w[k] = V::Or(V::And(q[k], mask), V::And(V::template ShiftLeft<4>(fifth[k]), bit));
      }
      AddPart<V, 31, 8>(tokens, 64 * c, V::LowScale(head.scales[c]), w, totals);
#pragma GCC unroll 8
      for (int k = 0; k < 8; ++k) {
        w[k] = V::Or(V::And(V::template ShiftRight<4>(q[k]), mask),
                     V::And(V::template ShiftLeft<3>(fifth[k]), bit));
        fifth[k] = V::template ShiftRight<2>(fifth[k]);
      }
      AddPart<V, 31, 8>(tokens, 64 * c + 32, V::HighScale(head.scales[c]), w, totals);
    }
    AddTotals<V>(tokens, head.scale, totals, sums);
  }
};

// A half d, 16 bits and four bytes of 8 scales s (two bits and a nibble of each), 128 bytes of
// nibbles n: weights d * (s - 32) * kNonLinear[n]. A scale is for 32 weights, in 16 bytes.
struct FormatIQ4_XS {
  static constexpr size_t kBytes = 136;
  static constexpr NarrowColumn kNarrow = {};
  using Activation = Activation256;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens256;
  template <class V>
  static constexpr auto kQuantise = Quantise256;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation256* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    using Int = typename V::Int;
    Int head[4];
    rows.Load16(0, head);
    Int scales[4];
    FourfoldScales<V>(V::template ShiftRight<16>(head[0]), head[1], scales);
    Int totals[kTokens];
    StartSigned<V>(tokens, scales, totals);
#pragma GCC unroll 1
    for (int c = 0; c < 4; ++c) {
      ThirtyTwo<V>(rows, 2 * c, V::LowScale(scales[c]), tokens, totals);
      ThirtyTwo<V>(rows, 2 * c + 1, V::HighScale(scales[c]), tokens, totals);
    }
    const typename V::Float quarter = V::Multiply(V::LowHalf(head[0]), V::Broadcast(0.25F));
    AddTotals<V>(tokens, quarter, totals, sums);
  }

 private:
  // 4 * (s - 32), in pairs: a byte s << 2 with its top bit flipped.
  template <class V>
  static void FourfoldScales(typename V::Int top, typename V::Int nibbles,
                             typename V::Int* scales) {
    using Int = typename V::Int;
    const Int flip = V::Fill32(0x00800080);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const Int low = V::Or(V::And(V::template ShiftLeft<2>(nibbles), V::Fill32(0x3c)),
                            V::And(V::template ShiftLeft<6>(top), V::Fill32(0xc0)));
      const Int high = V::Or(V::And(V::template ShiftLeft<14>(nibbles), V::Fill32(0x3c0000)),
                             V::And(V::template ShiftLeft<20>(top), V::Fill32(0xc00000)));
      scales[c] = V::SignExtendBytes(V::Xor(V::Or(low, high), flip));
      nibbles = V::template ShiftRight<8>(nibbles);
      top = V::template ShiftRight<4>(top);
    }
  }

  template <class V, int kTokens, class Source>
  static void ThirtyTwo(const Source& rows, int part, typename V::Int scale,
                        const Activation256* const (&tokens)[kTokens],
                        typename V::Int (&totals)[kTokens]) {
    typename V::Int w[8];
    rows.Load16(static_cast<size_t>(8 + 16 * part), w);
    SplitNibbles<V>(w);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) w[k] = V::PrepareSigned(V::Lookup(kNonLinear, w[k]));
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      totals[t] =
          V::template ScaledDotSigned<8>(totals[t], scale, w, tokens[t]->values + 32 * part);
    }
  }
};

// The first kChunks * 16 bytes of a block whose parts are used out of order. Wide lanes first read
// all parts front to back: sixteen cold rows read out of order come at 18 GB/s, in order at 23.
// Narrow lanes read part by part, since they lose more by keeping the parts on the stack.
template <class V, int kChunks, class Source>
class InOrder {
 public:
  explicit InOrder(const Source& rows) : rows_(rows) {
    if constexpr (kKeep) {
#pragma GCC unroll 1
      for (int k = 0; k < kChunks; ++k) rows.Load16(static_cast<size_t>(16 * k), kept_[k]);
    }
  }
  // As Rows::Load16 at 16 * chunk.
  void Get(int chunk, typename V::Int* out) const {
    if constexpr (kKeep) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) out[k] = kept_[chunk][k];
    } else {
      rows_.Load16(static_cast<size_t>(16 * chunk), out);
    }
  }

 private:
  static constexpr bool kKeep = V::kQuads > 2 && std::is_same_v<Source, Rows<V>>;
  const Source& rows_;
  typename V::Int kept_[kKeep ? kChunks : 1][4];
};

// 128 bytes of nibbles, 64 bytes of two more bits above each nibble, 16 signed scales s, a half d:
// weights d * s * (q - 32), a scale for 16 weights. A half of the block takes 64 and 32 of these
// bytes: 32 weights from each nibble of each 32 bytes.
struct FormatQ6_K {
  static constexpr size_t kBytes = 210;
  static constexpr NarrowColumn kNarrow = {.at = 208, .bytes = 2};
  using Activation = Activation256;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens256;
  template <class V>
  static constexpr auto kQuantise = Quantise256;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation256* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    using Int = typename V::Int;
    const InOrder<V, 13, Source> chunks(rows);
    Int bytes[4];
    chunks.Get(12, bytes);
    Int scales[8];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) BytesToPairsApart<V>(bytes[k], scales + 2 * k);
    Int totals[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const Int parts = SumOfParts<V, 8>(scales, tokens[t]->sums16);
      totals[t] = V::Negate(V::template ShiftLeft<5>(parts));
    }
#pragma GCC unroll 1
    for (int half = 0; half < 2; ++half) {
      Sixteen<V, 0>(chunks, half, scales + 4 * half, tokens, totals);
      Sixteen<V, 1>(chunks, half, scales + 4 * half, tokens, totals);
    }
    AddTotals<V>(tokens, rows.LoadHalf(208), totals, sums);
  }

 private:
  // Adds the kPart-th 16 of each 32 weights.
  template <class V, int kPart, int kTokens, class Source>
  static void Sixteen(const InOrder<V, 13, Source>& chunks, int half, const typename V::Int* scales,
                      const Activation256* const (&tokens)[kTokens],
                      typename V::Int (&totals)[kTokens]) {
    using Int = typename V::Int;
    Int a[8];
    Int b[8];
    Int top[4];
    chunks.Get(4 * half + kPart, a);
    chunks.Get(4 * half + kPart + 2, b);
    chunks.Get(8 + 2 * half + kPart, top);
    SplitNibbles<V>(a);
    SplitNibbles<V>(b);
    const Int mask = V::Fill8(0x30);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      a[k] = V::Or(a[k], V::And(V::template ShiftLeft<4>(top[k]), mask));
      b[k] = V::Or(b[k], V::And(V::template ShiftLeft<2>(top[k]), mask));
      a[k + 4] = V::Or(a[k + 4], V::And(top[k], mask));
      b[k + 4] = V::Or(b[k + 4], V::And(V::template ShiftRight<2>(top[k]), mask));
    }
    const int64_t at = 128 * half + 16 * kPart;
    const Int near = scales[kPart];
    const Int far = scales[kPart + 2];
    AddPart<V, 63, 4>(tokens, at, V::LowScale(near), a, totals);
    AddPart<V, 63, 4>(tokens, at + 32, V::HighScale(near), b, totals);
    AddPart<V, 63, 4>(tokens, at + 64, V::LowScale(far), a + 4, totals);
    AddPart<V, 63, 4>(tokens, at + 96, V::HighScale(far), b + 4, totals);
  }
};

}  // namespace moestro
