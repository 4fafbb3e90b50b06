// SPDX-License-Identifier: MIT
// How one block of each weight type is unpacked and multiplied, for any register width. Written
// over a Lanes type (avx512_lanes.h, avx2_lanes.h): a lane is a matrix row, so every row and token
// has its own sum, added up block after block, whoever its neighbours are.
//
// Block layouts follow ggml's file format; `rows` stands at the block of each row.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

#include "compute/kernels/activations.h"

namespace moestro {

// The block under way in 4 * kQuads rows: row 4q + i at quad[q] + i * stride.
template <class V>
struct Rows {
  const std::byte* quad[V::kQuads];
  size_t stride;

  void Advance(size_t bytes) {
#pragma GCC unroll 4
    for (int q = 0; q < V::kQuads; ++q) quad[q] += bytes;
  }
  // 16 bytes of every row, transposed: out[k] holds bytes 4k..4k+3 of each row in its lane.
  void Load16(size_t offset, typename V::Int* out) const {
    using Int = typename V::Int;
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
};

// sums[t] += scale * activation scale * (dot + bias), for types with one scale per 32 weights.
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

// Low nibbles of 16 bytes in w[0..3], high ones in w[4..7].
template <class V>
inline void SplitNibbles(typename V::Int* w) {
  const typename V::Int mask = V::Fill8(0x0f);
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    w[k + 4] = V::And(V::template ShiftRight<4>(w[k]), mask);
    w[k] = V::And(w[k], mask);
  }
}

// half scale, 16 bytes of nibbles: scale * (nibble - 8).
struct FormatQ4_0 {
  static constexpr ggml_type kType = GGML_TYPE_Q4_0;
  static constexpr int64_t kBlock = 32;
  static constexpr size_t kBytes = 18;
  using Activation = Activation32;
  template <class V>
  static constexpr auto Quantise() {
    return Quantise32<8>;
  }

  template <class V, int kTokens>
  static void Block(const Rows<V>& rows, const Activation32* const (&tokens)[kTokens],
                    typename V::Float (&sums)[kTokens]) {
    typename V::Int w[8];
    rows.Load16(2, w);
    SplitNibbles<V>(w);
    Accumulate32<V>(tokens, V::GatherHalves(rows.quad, rows.stride), sums,
                    [&w](typename V::Int bias, const int8_t* values) {
                      return V::template Dot<15, 8>(bias, w, values);
                    });
  }
};

}  // namespace moestro
