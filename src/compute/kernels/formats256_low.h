// SPDX-License-Identifier: MIT
// As formats256.h, for the types of two and three bits: sixteen parts of 16 weights, each part with
// a scale of its own. In each half of a block (128 weights), bits 2j and 2j + 1 of 32 bytes hold
// the j-th 32 weights, so 16 of these bytes hold every other part.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/formats256.h"
#include "compute/kernels/operands.h"
#include "compute/kernels/rows.h"

namespace moestro {

// totals[t] += scale * dot for two parts of 16 weights, 32 apart, the first at `offset`; a scale in
// each half of `scales`.
template <class V, int kMax, int kTokens>
inline void AddTwoParts(const Activation256* const (&tokens)[kTokens], int64_t offset,
                        typename V::Int scales, const typename V::Int* first,
                        const typename V::Int* second, typename V::Int (&totals)[kTokens]) {
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const int8_t* const values = tokens[t]->values + offset;
    totals[t] =
        V::template ScaledDots<kMax, 4>(totals[t], scales, first, values, second, values + 32);
  }
}

// 16 bytes of a scale s (low nibble) and a minimum m, 64 bytes of weights q, halves d and e:
// weights d * s * q - e * m.
struct FormatQ2_K {
  static constexpr size_t kBytes = 84;
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
    Int scales[8];
    Int minima[8];
    Head<V>(rows, scales, minima);
    Int totals[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) totals[t] = V::Fill32(0);
#pragma GCC unroll 1
    for (int half = 0; half < 2; ++half) {
      Sixteen<V>(rows, 2 * half, 128 * half, scales + 4 * half, tokens, totals);
      Sixteen<V>(rows, 2 * half + 1, 128 * half + 16, scales + 4 * half + 1, tokens, totals);
    }
    Int tail[4];
    // The last four bytes are used: a load behind the block may be behind the matrix.
    rows.Load16(68, tail);
    // A quarter of the scale, since Head() and Sixteen() give four times the products.
    AddTotals<V>(tokens, V::Multiply(V::LowHalf(tail[3]), V::Broadcast(0.25F)), totals, sums);
    SubtractMinima<V>(tokens, V::LowHalf(V::template ShiftRight<16>(tail[3])), minima, sums);
  }

 private:
  // Unpacks scales and minima in pairs: the first and third of each four parts, then the second and
  // fourth. The first scale of a pair is multiplied by four, as the weights of the second part are
  // (see Sixteen()).
  template <class V, class Source>
  static void Head(const Source& rows, typename V::Int* scales, typename V::Int* minima) {
    using Int = typename V::Int;
    Int head[4];
    rows.Load16(0, head);
    const Int first = V::Fill32(0x3c);
    const Int second = V::Fill32(0x0f0000);
    const Int both = V::Fill32(0x0f000f);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const Int odd = V::template ShiftRight<8>(head[k]);
      scales[2 * k] =
          V::Or(V::And(V::template ShiftLeft<2>(head[k]), first), V::And(head[k], second));
      scales[2 * k + 1] =
          V::Or(V::And(V::template ShiftRight<6>(head[k]), first), V::And(odd, second));
      minima[2 * k] = V::And(V::template ShiftRight<4>(head[k]), both);
      minima[2 * k + 1] = V::And(V::template ShiftRight<4>(odd), both);
    }
  }

  // Adds the weights in 16 bytes. Weights two bits up are not shifted down, which saves a shift and
  // makes them four times as large.
  template <class V, int kTokens, class Source>
  static void Sixteen(const Source& rows, int chunk, int64_t at, const typename V::Int* scales,
                      const Activation256* const (&tokens)[kTokens],
                      typename V::Int (&totals)[kTokens]) {
    using Int = typename V::Int;
    Int q[4];
    rows.Load16(static_cast<size_t>(16 + 16 * chunk), q);
    const Int low = V::Fill8(0x03);
    const Int high = V::Fill8(0x0c);
#pragma GCC unroll 2
    for (int c = 0; c < 2; ++c) {
      Int first[4];
      Int second[4];
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k) {
        first[k] = V::And(q[k], low);
        second[k] = V::And(q[k], high);
        q[k] = V::template ShiftRight<4>(q[k]);
      }
      AddTwoParts<V, 12>(tokens, at + 64 * c, scales[2 * c], first, second, totals);
    }
  }

  template <class V, int kTokens>
  static void SubtractMinima(const Activation256* const (&tokens)[kTokens],
                             typename V::Float minimum, const typename V::Int* minima,
                             typename V::Float (&sums)[kTokens]) {
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const typename V::Int total = SumOfParts<V, 8>(minima, tokens[t]->sums16);
      const typename V::Float both = V::Multiply(minimum, V::Broadcast(tokens[t]->scale));
      sums[t] = V::SubtractProduct(V::ToFloat(total), both, sums[t]);
    }
  }
};

// 32 bytes of third bits (bit p for the p-th 32 weights), 64 bytes of the two lower bits, 16 scales
// s of six bits in 12 bytes, a half d: weights d * (s - 32) * (q - 4).
struct FormatQ3_K {
  static constexpr size_t kBytes = 110;
  static constexpr NarrowColumn kNarrow = {.at = 96, .bytes = 2};
  using Activation = Activation256;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens256;
  template <class V>
  static constexpr auto kQuantise = Quantise256;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation256* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    using Int = typename V::Int;
    const InOrder<V, 6, Source> chunks(rows);
    Int scales[8];
    const typename V::Float scale = Tail<V>(rows, scales);
    Int totals[kTokens];
#pragma GCC unroll 16
    for (int t = 0; t < kTokens; ++t) {
      const Int parts = SumOfParts<V, 8>(scales, tokens[t]->sums16);
      totals[t] = V::Negate(V::template ShiftLeft<2>(parts));
    }
#pragma GCC unroll 1
    for (int part = 0; part < 2; ++part) {
      Int third[4];
      chunks.Get(part, third);
#pragma GCC unroll 1
      for (int half = 0; half < 2; ++half) {
        Int q[4];
        chunks.Get(2 + 2 * half + part, q);
        Sixteen<V>(q, third, 128 * half + 16 * part, scales + 4 * half + part, tokens, totals);
#pragma GCC unroll 4
        for (int k = 0; k < 4; ++k) third[k] = V::template ShiftRight<4>(third[k]);
      }
    }
    AddTotals<V>(tokens, scale, totals, sums);
  }

 private:
  // A quarter of d, and scales 4 * (s - 32): a byte s << 2 with its top bit flipped. Parts are in
  // pairs as in Q2_K.
  template <class V, class Source>
  static typename V::Float Tail(const Source& rows, typename V::Int* scales) {
    using Int = typename V::Int;
    Int tail[4];
    rows.LoadLast14(96, tail);
    Int word[3];
#pragma GCC unroll 3
    for (int k = 0; k < 3; ++k) {
      word[k] = V::Or(V::template ShiftRight<16>(tail[k]), V::template ShiftLeft<16>(tail[k + 1]));
    }
    // Words 0 and 1 hold nibbles; the last word holds two more bits above each nibble.
    const Int low = V::Fill8(0x3c);
    const Int top = V::Fill8(0xc0);
    const Int bytes[4] = {
        V::Or(V::And(V::template ShiftLeft<2>(word[0]), low),
              V::And(V::template ShiftLeft<6>(word[2]), top)),
        V::Or(V::And(V::template ShiftLeft<2>(word[1]), low),
              V::And(V::template ShiftLeft<4>(word[2]), top)),
        V::Or(V::And(V::template ShiftRight<2>(word[0]), low),
              V::And(V::template ShiftLeft<2>(word[2]), top)),
        V::Or(V::And(V::template ShiftRight<2>(word[1]), low), V::And(word[2], top))};
    const Int flip = V::Fill8(0x80);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) BytesToPairsApart<V>(V::Xor(bytes[k], flip), scales + 2 * k);
    return V::Multiply(V::LowHalf(V::template ShiftRight<16>(tail[3])), V::Broadcast(0.25F));
  }

  // Adds the weights in 16 bytes q, with their third bits in the low nibbles of `third`.
  template <class V, int kTokens>
  static void Sixteen(const typename V::Int* q, const typename V::Int* third, int64_t at,
                      const typename V::Int* scales, const Activation256* const (&tokens)[kTokens],
                      typename V::Int (&totals)[kTokens]) {
    using Int = typename V::Int;
    const Int two = V::Fill8(0x03);
    const Int bit = V::Fill8(0x04);
    Int first[4];
    Int second[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      first[k] = V::Or(V::And(q[k], two), V::And(V::template ShiftLeft<2>(third[k]), bit));
      second[k] = V::Or(V::And(V::template ShiftRight<2>(q[k]), two),
                        V::And(V::template ShiftLeft<1>(third[k]), bit));
    }
    AddTwoParts<V, 7>(tokens, at, scales[0], first, second, totals);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      first[k] = V::Or(V::And(V::template ShiftRight<4>(q[k]), two), V::And(third[k], bit));
      second[k] = V::Or(V::And(V::template ShiftRight<6>(q[k]), two),
                        V::And(V::template ShiftRight<1>(third[k]), bit));
    }
    AddTwoParts<V, 7>(tokens, at + 64, scales[2], first, second, totals);
  }
};

}  // namespace moestro
