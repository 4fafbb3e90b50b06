// SPDX-License-Identifier: MIT
// As formats256.h, for types whose weights are named by indices into a grid (grids.h), their signs
// apart. Entries come from the table one by one: gather instructions took longer on a Zen 5 (0.25
// to 0.35 ns for an index, single loads 0.18).
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels/activations.h"
#include "device/kernels/formats256.h"
#include "device/kernels/rows.h"

namespace moestro {

// Four times seven bits of signs -> four bytes; the eighth sign makes the number of ones even.
template <class V>
inline typename V::Int SignBytes(typename V::Int word) {
  using Int = typename V::Int;
  static constexpr int8_t kOdd[16] = {0,    -128, -128, 0,    -128, 0,    0,    -128,
                                      -128, 0,    0,    -128, 0,    -128, -128, 0};
  const Int low = V::Or(V::And(word, V::Fill32(0x7f)),
                        V::And(V::template ShiftLeft<1>(word), V::Fill32(0x7f00)));
  const Int high = V::Or(V::And(V::template ShiftLeft<2>(word), V::Fill32(0x7f0000)),
                         V::And(V::template ShiftLeft<3>(word), V::Fill32(0x7f000000)));
  const Int seven = V::Or(low, high);
  const Int folded = V::And(V::Xor(seven, V::template ShiftRight<4>(seven)), V::Fill8(0x0f));
  return V::Or(seven, V::Lookup(kOdd, folded));
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

// Sixteen weights of a block: where they begin, their scale, and the signs of eight in every byte
// of each of two registers.
template <class V>
struct SixteenSigned {
  int64_t at;
  typename V::Int scale;
  typename V::Int signs[2];
};

// totals[t] += scale * dot of 16 weights at `offset`, without signs in w; the signs of eight in
// every byte of each of two registers.
template <class V, int kMax, int kTokens>
inline void AddSixteen(const Activation256* const (&tokens)[kTokens], int64_t offset,
                       typename V::Int scale, const typename V::Int (&bytes)[2],
                       typename V::Int (&w)[4], typename V::Int (&totals)[kTokens]) {
  using Int = typename V::Int;
  const Int low = V::Fill32(0x08040201);
  const Int high = V::Fill32(static_cast<int>(0x80402010));
  const Int signs[4] = {V::SetSigns(bytes[0], low, w), V::SetSigns(bytes[0], high, w + 1),
                        V::SetSigns(bytes[1], low, w + 2), V::SetSigns(bytes[1], high, w + 3)};
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const int8_t* const values = tokens[t]->values + offset;
    totals[t] = V::template ScaledDotGrid<kMax, 4>(totals[t], scale, w, signs, values);
  }
}

// A half d, 64 indices of four weights g, 8 words of signs and a scale s above them: weights
// d / 4 * (2s + 1) * g, a word for 32 of them.
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
    using Int = typename V::Int;
    const Int signs = SignBytes<V>(q[16 + part]);
    const SixteenSigned<V> first{
        32 * part, scale, {V::template SpreadByte<0>(signs), V::template SpreadByte<1>(signs)}};
    const SixteenSigned<V> second{
        32 * part + 16,
        scale,
        {V::template SpreadByte<2>(signs), V::template SpreadByte<3>(signs)}};
    Sixteen<V>(grid, q + 2 * part, first, tokens, totals);
    Sixteen<V>(grid, q + 2 * part + 1, second, tokens, totals);
  }

  template <class V, int kTokens>
  static void Sixteen(const uint32_t* grid, const typename V::Int* q, const SixteenSigned<V>& its,
                      const Activation256* const (&tokens)[kTokens],
                      typename V::Int (&totals)[kTokens]) {
    typename V::Int w[4];
    const auto* const indices = reinterpret_cast<const uint8_t*>(q);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) w[k] = V::LookupWords(grid, indices + k);
    AddSixteen<V, 62>(tokens, its.at, its.scale, its.signs, w, totals);
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
    using Int = typename V::Int;
    const Int signs = SignBytes<V>(q[2 * part + 1]);
    const SixteenSigned<V> first{
        32 * part, scale, {V::template SpreadByte<0>(signs), V::template SpreadByte<1>(signs)}};
    const SixteenSigned<V> second{
        32 * part + 16,
        scale,
        {V::template SpreadByte<2>(signs), V::template SpreadByte<3>(signs)}};
    const auto* const indices = reinterpret_cast<const uint8_t*>(q + 2 * part);
    Sixteen<V>(grid, indices, first, tokens, totals);
    Sixteen<V>(grid, indices + 2, second, tokens, totals);
  }

  template <class V, int kTokens>
  static void Sixteen(const uint32_t* grid, const uint8_t* indices, const SixteenSigned<V>& its,
                      const Activation256* const (&tokens)[kTokens],
                      typename V::Int (&totals)[kTokens]) {
    typename V::Int w[4];
    V::LookupPairs(grid, indices, w);
    V::LookupPairs(grid, indices + 1, w + 2);
    AddSixteen<V, 43>(tokens, its.at, its.scale, its.signs, w, totals);
  }
};

}  // namespace moestro
