// SPDX-License-Identifier: MIT
// As formats256.h, for types whose weights are indices into a grid (operands.h), with separate
// signs. Entries are loaded from the table one by one: gather instructions took longer on a Zen 5
// (0.25 to 0.35 ns for an index, single loads 0.18) and on a Zen 4 (1.35 times the whole of IQ3_S).
#pragma once

#include <cstddef>
#include <cstdint>

#include "compute/kernels/formats256.h"
#include "compute/kernels/operands.h"
#include "compute/kernels/rows.h"

namespace moestro {

// Bytes of seven signs; the eighth makes the number of ones even.
template <class V>
inline typename V::Int EvenSigns(typename V::Int seven) {
  using Int = typename V::Int;
  static constexpr int8_t kOdd[16] = {0,    -128, -128, 0,    -128, 0,    0,    -128,
                                      -128, 0,    0,    -128, 0,    -128, -128, 0};
  const Int folded = V::And(V::Xor(seven, V::template ShiftRight<4>(seven)), V::Fill8(0x0f));
  return V::Or(seven, V::Lookup(kOdd, folded));
}

// Four times seven bits of signs -> four bytes.
template <class V>
inline typename V::Int SignBytes(typename V::Int word) {
  using Int = typename V::Int;
  const Int low = V::Or(V::And(word, V::Fill32(0x7f)),
                        V::And(V::template ShiftLeft<1>(word), V::Fill32(0x7f00)));
  const Int high = V::Or(V::And(V::template ShiftLeft<2>(word), V::Fill32(0x7f0000)),
                         V::And(V::template ShiftLeft<3>(word), V::Fill32(0x7f000000)));
  return EvenSigns<V>(V::Or(low, high));
}

// 2 * s + 1 of eight words' top nibbles s, pairs.
template <class V>
inline void OddScales(const typename V::Int* const (&words)[8], typename V::Int (&scales)[4]) {
  using Int = typename V::Int;
  const Int low = V::Fill32(0x1e);
  const Int high = V::Fill32(0x1e0000);
  const Int ones = V::Fill32(0x00010001);
#pragma GCC unroll 4
  for (int c = 0; c < 4; ++c) {
    const Int first = V::And(V::template ShiftRight<27>(*words[2 * c]), low);
    const Int second = V::And(V::template ShiftRight<11>(*words[2 * c + 1]), high);
    scales[c] = V::Or(V::Or(first, second), ones);
  }
}

// Sixteen weights of a block: their begin, their scale, and two registers with the signs of eight
// weights in every byte.
template <class V>
struct SixteenSigned {
  int64_t at;
  typename V::Int scale;
  typename V::Int signs[2];
};

// 32 weights of a block: their begin, a byte of signs for each eight weights, a scale for each
// half.
template <class V>
struct SignedBlock {
  int64_t at;
  typename V::Int signs;
  typename V::Int scales[2];

  // The kHalf-th half, with the signs of bytes kFirst and kSecond.
  template <int kHalf, int kFirst = 2 * kHalf, int kSecond = 2 * kHalf + 1>
  SixteenSigned<V> Half() const {
    return {at + 16 * kHalf,
            scales[kHalf],
            {V::template SpreadByte<kFirst>(signs), V::template SpreadByte<kSecond>(signs)}};
  }
};

// totals[t] += products of 16 weights, without signs in w.
template <class V, int kMax, int kTokens>
inline void AddSixteen(const SixteenSigned<V>& its, typename V::Int (&w)[4],
                       const Activation256* const (&tokens)[kTokens],
                       typename V::Int (&totals)[kTokens]) {
  using Int = typename V::Int;
  const Int low = V::Fill32(0x08040201);
  const Int high = V::Fill32(static_cast<int>(0x80402010));
  const Int signs[4] = {V::SetSigns(its.signs[0], low, w), V::SetSigns(its.signs[0], high, w + 1),
                        V::SetSigns(its.signs[1], low, w + 2),
                        V::SetSigns(its.signs[1], high, w + 3)};
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const int8_t* const values = tokens[t]->values + its.at;
    totals[t] = V::template ScaledDotGrid<kMax, 4>(totals[t], its.scale, w, signs, values);
  }
}

// totals[t] += products of two indices of eight weights each, at most 43: the kFirst-th Index in
// lanes of `first`, the kSecond-th of `second`.
template <class V, class Index, int kFirst, int kSecond, int kTokens>
inline void AddTwoEights(const uint32_t* grid, const typename V::Int& first,
                         const typename V::Int& second, const SixteenSigned<V>& its,
                         const Activation256* const (&tokens)[kTokens],
                         typename V::Int (&totals)[kTokens]) {
  typename V::Int w[4];
  V::template LookupPairs<Index, kFirst>(grid, first, w);
  V::template LookupPairs<Index, kSecond>(grid, second, w + 2);
  AddSixteen<V, 43>(its, w, tokens, totals);
}

// A half d, 64 indices of four weights g, 8 words of signs and a scale s above them: weights d / 4
// * (2s + 1) * g, a word for 32 weights.
struct FormatIQ3_XXS {
  static constexpr size_t kBytes = 98;
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
    Int q[24];
#pragma GCC unroll 1
    for (int k = 0; k < 6; ++k) rows.Load16(static_cast<size_t>(2 + 16 * k), q + 4 * k);
    Int scales[4];
    OddScales<V>({q + 16, q + 17, q + 18, q + 19, q + 20, q + 21, q + 22, q + 23}, scales);
    Int totals[kTokens];
    StartSigned<V>(tokens, scales, totals);
#pragma GCC unroll 1
    for (int c = 0; c < 4; ++c) {
      Part<V>(rows.grid, q, 2 * c, V::LowScale(scales[c]), tokens, totals);
      Part<V>(rows.grid, q, 2 * c + 1, V::HighScale(scales[c]), tokens, totals);
    }
    AddTotals<V>(tokens, V::Multiply(rows.LoadHalf(0), V::Broadcast(0.25F)), totals, sums);
  }

 private:
  template <class V, int kTokens>
  static void Part(const uint32_t* grid, const typename V::Int (&q)[24], int part,
                   typename V::Int scale, const Activation256* const (&tokens)[kTokens],
                   typename V::Int (&totals)[kTokens]) {
    const SignedBlock<V> its{32 * part, SignBytes<V>(q[16 + part]), {scale, scale}};
    Sixteen<V>(grid, q[2 * part], its.template Half<0>(), tokens, totals);
    Sixteen<V>(grid, q[2 * part + 1], its.template Half<1>(), tokens, totals);
  }

  template <class V, int kTokens>
  static void Sixteen(const uint32_t* grid, const typename V::Int& indices,
                      const SixteenSigned<V>& its, const Activation256* const (&tokens)[kTokens],
                      typename V::Int (&totals)[kTokens]) {
    typename V::Int w[4] = {V::template LookupWords<uint8_t, 0>(grid, indices),
                            V::template LookupWords<uint8_t, 1>(grid, indices),
                            V::template LookupWords<uint8_t, 2>(grid, indices),
                            V::template LookupWords<uint8_t, 3>(grid, indices)};
    AddSixteen<V, 62>(its, w, tokens, totals);
  }
};

// A half d, then for each 32 weights four indices of eight weights g and a word of signs and a
// scale s above them: weights d / 8 * (2s + 1) * g.
struct FormatIQ2_XXS {
  static constexpr size_t kBytes = 66;
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
    Int q[16];
#pragma GCC unroll 1
    for (int k = 0; k < 4; ++k) rows.Load16(static_cast<size_t>(2 + 16 * k), q + 4 * k);
    Int scales[4];
    OddScales<V>({q + 1, q + 3, q + 5, q + 7, q + 9, q + 11, q + 13, q + 15}, scales);
    Int totals[kTokens];
    StartSigned<V>(tokens, scales, totals);
#pragma GCC unroll 1
    for (int c = 0; c < 4; ++c) {
      Part<V>(rows.grid, q, 2 * c, V::LowScale(scales[c]), tokens, totals);
      Part<V>(rows.grid, q, 2 * c + 1, V::HighScale(scales[c]), tokens, totals);
    }
    AddTotals<V>(tokens, V::Multiply(rows.LoadHalf(0), V::Broadcast(0.125F)), totals, sums);
  }

 private:
  template <class V, int kTokens>
  static void Part(const uint32_t* grid, const typename V::Int (&q)[16], int part,
                   typename V::Int scale, const Activation256* const (&tokens)[kTokens],
                   typename V::Int (&totals)[kTokens]) {
    const typename V::Int& indices = q[2 * part];
    const SignedBlock<V> its{32 * part, SignBytes<V>(q[2 * part + 1]), {scale, scale}};
    AddTwoEights<V, uint8_t, 0, 1>(grid, indices, indices, its.template Half<0>(), tokens, totals);
    AddTwoEights<V, uint8_t, 2, 3>(grid, indices, indices, its.template Half<1>(), tokens, totals);
  }
};

}  // namespace moestro
