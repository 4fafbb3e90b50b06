// SPDX-License-Identifier: MIT
// As formats_grid.h, for indices of nine and ten bits. Indices are widened to 16 bits while a block
// is loaded, long before their look-up: with widening just before, IQ2_XS took 1.2 times as long,
// IQ3_S 1.3 times, IQ2_S 1.6 times (one token, AVX2 on a Zen 4, bench/kernel_bench.cc).
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/formats256.h"
#include "compute/kernels/formats_grid.h"
#include "compute/kernels/operands.h"
#include "compute/kernels/rows.h"

namespace moestro {

// Widens four indices to 16 bits: 0 and 2 in to[0], 1 and 3 in to[1]. Low bytes are in `low`;
// `high` holds kBits more of each index, side by side, and nothing else.
template <class V, int kBits>
inline void WidenIndices(typename V::Int low, typename V::Int high, typename V::Int* to) {
  using Int = typename V::Int;
  static_assert(kBits == 1 || kBits == 2);
  const Int bytes = V::Fill32(0x00ff00ff);
  const Int top = V::Fill32(kBits == 1 ? 0x01000100 : 0x03000300);
  const Int apart = V::Or(high, V::template ShiftLeft<16 - 2 * kBits>(high));
  to[0] = V::Or(V::And(low, bytes), V::And(V::template ShiftLeft<8>(apart), top));
  to[1] = V::Or(V::And(V::template ShiftRight<8>(low), bytes),
                V::And(V::template ShiftLeft<8 - kBits>(apart), top));
}

// 2 * s + 1 of eight nibbles s, pairs.
template <class V>
inline void OddScalesOfNibbles(typename V::Int nibbles, typename V::Int (&scales)[4]) {
  const typename V::Int low = V::Fill32(0x1e);
  const typename V::Int high = V::Fill32(0x1e0000);
  const typename V::Int ones = V::Fill32(0x00010001);
#pragma GCC unroll 4
  for (typename V::Int& pair : scales) {
    pair = V::Or(V::Or(V::And(V::template ShiftLeft<1>(nibbles), low),
                       V::And(V::template ShiftLeft<13>(nibbles), high)),
                 ones);
    nibbles = V::template ShiftRight<8>(nibbles);
  }
}

// 2 * s + 1 of four nibbles s, the first and third in a pair, then the second and fourth, and so on
// for the next four: the pairs of sums16.
template <class V>
inline void OddScalesApart(typename V::Int nibbles, typename V::Int* scales) {
  using Int = typename V::Int;
  const Int low = V::Fill32(0x1e);
  const Int high = V::Fill32(0x1e0000);
  const Int ones = V::Fill32(0x00010001);
#pragma GCC unroll 2
  for (int k = 0; k < 2; ++k) {
    scales[2 * k] = V::Or(V::Or(V::And(V::template ShiftLeft<1>(nibbles), low),
                                V::And(V::template ShiftLeft<9>(nibbles), high)),
                          ones);
    scales[2 * k + 1] = V::Or(V::Or(V::And(V::template ShiftRight<3>(nibbles), low),
                                    V::And(V::template ShiftLeft<5>(nibbles), high)),
                              ones);
    nibbles = V::template ShiftRight<16>(nibbles);
  }
}

// A half d, 64 low bytes of indices of four weights g, 64 high bits of the indices, 256 signs, 8
// nibbles s: weights d * (2s + 1) * g, a scale for 32 weights.
struct FormatIQ3_S {
  static constexpr size_t kBytes = 110;
  static constexpr NarrowColumn kNarrow = {.at = 0, .bytes = 2};
  using Activation = Activation256;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens256;
  template <class V>
  static constexpr auto kQuantise = Quantise256;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation256* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    using Int = typename V::Int;
    Int tail[11];  // two words of high bits, eight of signs, one of scales
    rows.Load16(66, tail);
    Int indices[32];
#pragma GCC unroll 1
    for (int c = 0; c < 4; ++c) {
      Int q[4];
      rows.Load16(static_cast<size_t>(2 + 16 * c), q);
      Int high = tail[c / 2];
      tail[c / 2] = V::template ShiftRight<16>(high);
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        WidenIndices<V, 1>(q[k], V::And(high, V::Fill32(0x0f)), indices + 8 * c + 2 * k);
        high = V::template ShiftRight<4>(high);
      }
    }
    rows.Load16(82, tail + 4);
    rows.Load16(94, tail + 7);
    Int scales[4];
    OddScalesOfNibbles<V>(tail[10], scales);
    Int totals[kTokens];
    StartSigned<V>(tokens, scales, totals);
#pragma GCC unroll 1
    for (int c = 0; c < 4; ++c) {
      const Int low = V::LowScale(scales[c]);
      const Int high = V::HighScale(scales[c]);
      const Int* const signs = tail + 2 + 2 * c;
      Part<V>(rows.grid, indices + 8 * c, {64 * c, signs[0], {low, low}}, tokens, totals);
      Part<V>(rows.grid, indices + 8 * c + 4, {64 * c + 32, signs[1], {high, high}}, tokens,
              totals);
    }
    AddTotals<V>(tokens, rows.LoadHalf(0), totals, sums);
  }

 private:
  template <class V, int kTokens>
  static void Part(const uint32_t* grid, const typename V::Int* indices, const SignedBlock<V>& its,
                   const Activation256* const (&tokens)[kTokens],
                   typename V::Int (&totals)[kTokens]) {
    Sixteen<V>(grid, indices, its.template Half<0>(), tokens, totals);
    Sixteen<V>(grid, indices + 2, its.template Half<1>(), tokens, totals);
  }

  template <class V, int kTokens>
  static void Sixteen(const uint32_t* grid, const typename V::Int* indices,
                      const SixteenSigned<V>& its, const Activation256* const (&tokens)[kTokens],
                      typename V::Int (&totals)[kTokens]) {
    typename V::Int w[4] = {V::template LookupWords<uint16_t, 0>(grid, indices[0]),
                            V::template LookupWords<uint16_t, 0>(grid, indices[1]),
                            V::template LookupWords<uint16_t, 1>(grid, indices[0]),
                            V::template LookupWords<uint16_t, 1>(grid, indices[1])};
    AddSixteen<V, 15>(its, w, tokens, totals);
  }
};

// An unpacked block of IQ2_S or IQ2_XS.
template <class V>
struct Eights {
  const typename V::Int* indices;  // two registers for 32 weights
  const typename V::Int* signs;    // one register for 32 weights
  const typename V::Int* nibbles;  // two words, with a nibble for 16 weights
};

// The products of a block that begins with a half d: weights d / 8 * (2s + 1) * g.
template <class V, class Format, int kTokens, class Source>
inline void MultiplyEights(const Source& rows, const Eights<V>& block,
                           const Activation256* const (&tokens)[kTokens],
                           typename V::Float (&sums)[kTokens]) {
  using Int = typename V::Int;
  Int scales[8];
  OddScalesApart<V>(block.nibbles[0], scales);
  OddScalesApart<V>(block.nibbles[1], scales + 4);
  Int totals[kTokens];
  StartSigned<V>(tokens, scales, totals);
#pragma GCC unroll 1
  for (int c = 0; c < 4; ++c) {
    const Int a = scales[2 * c];
    const Int b = scales[2 * c + 1];
    const SignedBlock<V> low{64 * c, block.signs[2 * c], {V::LowScale(a), V::LowScale(b)}};
    const SignedBlock<V> high{
        64 * c + 32, block.signs[2 * c + 1], {V::HighScale(a), V::HighScale(b)}};
    Format::template Part<V>(rows.grid, block.indices + 4 * c, low, tokens, totals);
    Format::template Part<V>(rows.grid, block.indices + 4 * c + 2, high, tokens, totals);
  }
  AddTotals<V>(tokens, V::Multiply(rows.LoadHalf(0), V::Broadcast(0.125F)), totals, sums);
}

// A half d, 32 low bytes of indices of eight weights g, 256 signs, 32 times two high bits of
// indices, 16 nibbles s: weights d / 8 * (2s + 1) * g, a scale for 16 weights.
struct FormatIQ2_S {
  static constexpr size_t kBytes = 82;
  static constexpr NarrowColumn kNarrow = {.at = 0, .bytes = 2};
  using Activation = Activation256;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens256;
  template <class V>
  static constexpr auto kQuantise = Quantise256;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation256* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    using Int = typename V::Int;
    Int tail[4];  // two words of high bits, two of scales
    rows.Load16(66, tail);
    Int indices[16];
#pragma GCC unroll 1
    for (int c = 0; c < 2; ++c) {
      Int q[4];
      rows.Load16(static_cast<size_t>(2 + 16 * c), q);
      Int high = tail[c];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        WidenIndices<V, 2>(q[k], V::And(high, V::Fill32(0xff)), indices + 8 * c + 2 * k);
        high = V::template ShiftRight<8>(high);
      }
    }
    Int signs[8];
    rows.Load16(34, signs);
    rows.Load16(50, signs + 4);
    MultiplyEights<V, FormatIQ2_S>(rows, {indices, signs, tail + 2}, tokens, sums);
  }

  template <class V, int kTokens>
  static void Part(const uint32_t* grid, const typename V::Int* q, const SignedBlock<V>& its,
                   const Activation256* const (&tokens)[kTokens],
                   typename V::Int (&totals)[kTokens]) {
    AddTwoEights<V, uint16_t, 0, 0>(grid, q[0], q[1], its.template Half<0>(), tokens, totals);
    AddTwoEights<V, uint16_t, 1, 1>(grid, q[0], q[1], its.template Half<1>(), tokens, totals);
  }
};

// A half d, 32 indices of eight weights g, nine bits each, and seven bits of signs above them, 16
// nibbles s: weights d / 8 * (2s + 1) * g, a scale for 16 weights.
struct FormatIQ2_XS {
  static constexpr size_t kBytes = 74;
  static constexpr NarrowColumn kNarrow = {.at = 0, .bytes = 2};
  using Activation = Activation256;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens256;
  template <class V>
  static constexpr auto kQuantise = Quantise256;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation256* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    using Int = typename V::Int;
    Int indices[16];
    Int signs[8];  // bytes 0 and 2 of a part's first half, 1 and 3 of its second
#pragma GCC unroll 1
    for (int c = 0; c < 4; ++c) {
      Int q[4];
      rows.Load16(static_cast<size_t>(2 + 16 * c), q);
#pragma GCC unroll 2
      for (int k = 0; k < 2; ++k) {
        const Int first = V::And(V::template ShiftRight<9>(q[2 * k]), V::Fill32(0x007f007f));
        const Int second = V::And(V::template ShiftRight<1>(q[2 * k + 1]), V::Fill32(0x7f007f00));
        signs[2 * c + k] = EvenSigns<V>(V::Or(first, second));
      }
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) indices[4 * c + k] = V::And(q[k], V::Fill32(0x01ff01ff));
    }
    Int tail[4];
    // The last eight bytes are used: a load behind the block may be behind the matrix.
    rows.Load16(58, tail);
    MultiplyEights<V, FormatIQ2_XS>(rows, {indices, signs, tail + 2}, tokens, sums);
  }

  template <class V, int kTokens>
  static void Part(const uint32_t* grid, const typename V::Int* q, const SignedBlock<V>& its,
                   const Activation256* const (&tokens)[kTokens],
                   typename V::Int (&totals)[kTokens]) {
    AddTwoEights<V, uint16_t, 0, 1>(grid, q[0], q[0], its.template Half<0, 0, 2>(), tokens, totals);
    AddTwoEights<V, uint16_t, 0, 1>(grid, q[1], q[1], its.template Half<1, 1, 3>(), tokens, totals);
  }
};

}  // namespace moestro
