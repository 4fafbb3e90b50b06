// SPDX-License-Identifier: MIT
// Types with one scale per 32 weights, against Q8_0 tokens: blocks are unpacked and multiplied.
// Block layouts follow ggml's files; `rows` stands at the block. Written over a Lanes type
// (rows.h).
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/operands.h"
#include "compute/kernels/rows.h"

namespace moestro {

// sums[t] += scale * activation scale * (bias + weights times values).
template <class V, int kTokens, class Dot>
inline void Accumulate32(const Activation32* const (&tokens)[kTokens], typename V::Float scale,
                         typename V::Float (&sums)[kTokens], Dot dot) {
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const typename V::Int product = dot(V::Broadcast(&tokens[t]->bias), tokens[t]->values);
    const typename V::Float both = V::Multiply(scale, V::Broadcast(tokens[t]->scale));
    sums[t] = V::MultiplyAdd(V::ToFloat(product), both, sums[t]);
  }
}

// sums[t] += activation scale * (d * weights times values + m * sum of values), the halves d and m
// in the lanes of `head`.
template <class V, int kTokens, class Dot>
inline void AccumulateWithMinimum(const Activation32* const (&tokens)[kTokens],
                                  typename V::Int head, typename V::Float (&sums)[kTokens],
                                  Dot dot) {
  const typename V::Float scale = V::LowHalf(head);
  const typename V::Float minimum = V::LowHalf(V::template ShiftRight<16>(head));
#pragma GCC unroll 16
  for (int t = 0; t < kTokens; ++t) {
    const typename V::Int product = dot(V::Fill32(0), tokens[t]->values);
    const typename V::Float sum = V::ToFloat(V::Broadcast(&tokens[t]->bias));
    const typename V::Float both =
        V::MultiplyAdd(V::ToFloat(product), scale, V::Multiply(sum, minimum));
    sums[t] = V::MultiplyAdd(both, V::Broadcast(tokens[t]->scale), sums[t]);
  }
}

template <class V, int kMax>
struct UnsignedDot {
  const typename V::Int* w;
  typename V::Int operator()(typename V::Int bias, const int8_t* values) const {
    return V::template Dot<kMax, 8>(bias, w, values);
  }
};

template <class V>
struct SignedDot {
  const typename V::Int* w;
  typename V::Int operator()(typename V::Int bias, const int8_t* values) const {
    return V::template DotSigned<8>(bias, w, values);
  }
};

// A half d and 16 bytes of nibbles n: weights d * (n - 8).
struct FormatQ4_0 {
  static constexpr size_t kBytes = 18;
  static constexpr NarrowColumn kNarrow = {.at = 0, .bytes = 2};
  using Activation = Activation32;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens;
  template <class V>
  static constexpr auto kQuantise = Quantise32<8>;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation32* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    typename V::Int w[8];
    rows.Load16(2, w);
    SplitNibbles<V>(w);
    Accumulate32<V>(tokens, rows.LoadHalf(0), sums, UnsignedDot<V, 15>{w});
  }
};

// Halves d and m, and 16 bytes of nibbles n: weights d * n + m.
struct FormatQ4_1 {
  static constexpr size_t kBytes = 20;
  static constexpr NarrowColumn kNarrow = {};
  using Activation = Activation32;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens;
  template <class V>
  static constexpr auto kQuantise = Quantise32<-1>;  // the bias is the sum of values

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation32* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    typename V::Int head[4];
    typename V::Int w[8];
    rows.Load16(0, head);
    rows.Load16(4, w);
    SplitNibbles<V>(w);
    AccumulateWithMinimum<V>(tokens, head[0], sums, UnsignedDot<V, 15>{w});
  }
};

// A half d, a word of fifth bits and 16 bytes of nibbles: weights d * (q - 16).
struct FormatQ5_0 {
  static constexpr size_t kBytes = 22;
  static constexpr NarrowColumn kNarrow = {.at = 0, .bytes = 2};
  using Activation = Activation32;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens;
  template <class V>
  static constexpr auto kQuantise = Quantise32<16>;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation32* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    typename V::Int w[8];
    typename V::Int fifth;
    const typename V::Float scale = rows.LoadHalfAndWord(&fifth);
    rows.Load16(6, w);
    SplitNibbles<V>(w);
    SetBytesOfBits<V>(fifth, 0x10, w);
    Accumulate32<V>(tokens, scale, sums, UnsignedDot<V, 31>{w});
  }
};

// Halves d and m, a word of fifth bits and 16 bytes of nibbles: weights d * q + m.
struct FormatQ5_1 {
  static constexpr size_t kBytes = 24;
  static constexpr NarrowColumn kNarrow = {};
  using Activation = Activation32;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens;
  template <class V>
  static constexpr auto kQuantise = Quantise32<-1>;  // the bias is the sum of values

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation32* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    typename V::Int head[4];
    typename V::Int w[8];
    rows.Load16(0, head);
    rows.Load16(8, w);
    SplitNibbles<V>(w);
    SetBytesOfBits<V>(head[1], 0x10, w);
    AccumulateWithMinimum<V>(tokens, head[0], sums, UnsignedDot<V, 31>{w});
  }
};

// A half d and 32 signed bytes b: weights d * b.
struct FormatQ8_0 {
  static constexpr size_t kBytes = 34;
  static constexpr NarrowColumn kNarrow = {.at = 0, .bytes = 2};
  using Activation = Activation32;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens;
  template <class V>
  static constexpr auto kQuantise = Quantise32<V::kSignedOffset>;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation32* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    typename V::Int w[8];
    rows.Load16(2, w);
    rows.Load16(18, w + 4);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) w[k] = V::PrepareSigned(w[k]);
    Accumulate32<V>(tokens, rows.LoadHalf(0), sums, SignedDot<V>{w});
  }
};

// A half d and 16 bytes of nibbles n: weights d * kNonLinear[n].
struct FormatIQ4_NL {
  static constexpr size_t kBytes = 18;
  static constexpr NarrowColumn kNarrow = {.at = 0, .bytes = 2};
  using Activation = Activation32;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens;
  template <class V>
  static constexpr auto kQuantise = Quantise32<V::kSignedOffset>;

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation32* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    typename V::Int w[8];
    rows.Load16(2, w);
    SplitNibbles<V>(w);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) w[k] = V::PrepareSigned(V::Lookup(kNonLinear, w[k]));
    Accumulate32<V>(tokens, rows.LoadHalf(0), sums, SignedDot<V>{w});
  }
};

// A byte e and 16 bytes of nibbles n: weights 2^(e - 128) * twice the 4-bit float n.
struct FormatMXFP4 {
  static constexpr size_t kBytes = 17;
  static constexpr NarrowColumn kNarrow = {.at = 0, .bytes = 1};
  using Activation = Activation32;
  template <class V>
  static constexpr int kMaxTokens = V::kMaxTokens;
  template <class V>
  static constexpr auto kQuantise = Quantise32<12>;

  // Twice the 4-bit float, plus 12 to make the number unsigned.
  static constexpr int8_t kTwicePlus12[16] = {12, 13, 14, 15, 16, 18, 20, 24,
                                              12, 11, 10, 9,  8,  6,  4,  0};

  template <class V, int kTokens, class Source>
  static void Block(const Source& rows, const Activation32* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    typename V::Int w[8];
    rows.Load16(1, w);
    SplitNibbles<V>(w);
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) w[k] = V::Lookup(kTwicePlus12, w[k]);
    Accumulate32<V>(tokens, Power(V{}, rows.LoadFirstByte()), sums, UnsignedDot<V, 24>{w});
  }

 private:
  // 2^(e - 128). Below e = 2 the power is no normal float: one bit of the mantissa.
  template <class V>
  static typename V::Float Power(V, typename V::Int e) {
    const typename V::Int normal = V::template ShiftLeft<23>(V::Add(e, V::Fill32(-1)));
    const typename V::Int tiny = V::ShiftLeftEach(V::Fill32(0x00200000), V::Min(e, V::Fill32(2)));
    return V::BitsAsFloat(V::Max(normal, tiny));
  }
};

}  // namespace moestro
