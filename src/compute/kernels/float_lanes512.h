// SPDX-License-Identifier: MIT
// Vectors of sixteen floats. Include only in files compiled for AVX-512 F, BW, DQ, VL.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "compute/kernels/float_lanes.h"

namespace moestro {

struct FloatLanes512 {
  using Float = __m512;
  static constexpr uint32_t kLanes = 16;
  static constexpr int kRows = 8;  // uses 16 sums of 32 registers
  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  static constexpr std::string_view kName = "avx512";

  static Float Zero() { return _mm512_setzero_ps(); }
  static Float Load(const float* from) { return _mm512_loadu_ps(from); }
  static void Store(float* to, Float v) { _mm512_storeu_ps(to, v); }
  static Float Broadcast(float v) { return _mm512_set1_ps(v); }
  static Float Add(Float a, Float b) { return _mm512_add_ps(a, b); }
  static Float Subtract(Float a, Float b) { return _mm512_sub_ps(a, b); }
  static Float Multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float MultiplyAdd(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float Divide(Float a, Float b) { return _mm512_div_ps(a, b); }
  static Float Min(Float a, Float b) { return _mm512_min_ps(a, b); }
  // `a` where x is negative, elsewhere `b`.
  static Float SelectNegative(Float x, Float a, Float b) {
    return _mm512_mask_blend_ps(_mm512_movepi32_mask(_mm512_castps_si512(x)), b, a);
  }
  static float SumOf(Float v) { return _mm512_reduce_add_ps(v); }
  static Float Max(Float a, Float b) { return _mm512_max_ps(a, b); }
  static float LargestOf(Float v) { return _mm512_reduce_max_ps(v); }

  // 2^x for x <= 0; 0 below kSmallestPower.
  static Float PowerOfTwo(Float x) {
    const __mmask16 is_normal = _mm512_cmp_ps_mask(x, Broadcast(kSmallestPower), _CMP_GE_OQ);
    const Float whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Float part = _mm512_sub_ps(x, whole);
    Float y = Broadcast(kPower[0]);
#pragma GCC unroll 8
    for (int i = 1; i < 7; ++i) y = _mm512_fmadd_ps(y, part, Broadcast(kPower[i]));
    return _mm512_maskz_scalef_ps(is_normal, y, whole);
  }

  static void ToFloat(const Half* from, float* to, size_t n) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      Store(to + i,
            _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i))));
    }
    for (; i < n; ++i) to[i] = _cvtsh_ss(from[i]);
  }

  static Float FromIntegers(const int8_t* from) {
    return _mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
  }

  // [16][stride] -> [16][to_stride]
  static void Transpose(const float* from, size_t stride, float* to, size_t to_stride) {
    // Loads rows i, i + 4, i + 8, i + 12 by quarters, then transposes 4 x 4 within each quarter.
    __m512 rows[16];
#pragma GCC unroll 16
    for (size_t quarter = 0; quarter < 4; ++quarter) {
#pragma GCC unroll 16
      for (size_t i = 0; i < 4; ++i) {
        const auto at = [&](size_t row) { return _mm_loadu_ps(from + row * stride + 4 * quarter); };
        const __m512 a = _mm512_castps128_ps512(at(i));
        const __m512 b = _mm512_insertf32x4(a, at(i + 4), 1);
        const __m512 c = _mm512_insertf32x4(b, at(i + 8), 2);
        rows[4 * quarter + i] = _mm512_insertf32x4(c, at(i + 12), 3);
      }
    }
#pragma GCC unroll 16
    for (size_t quarter = 0; quarter < 4; ++quarter) {
      const __m512* r = rows + 4 * quarter;
      const __m512 low01 = _mm512_unpacklo_ps(r[0], r[1]);
      const __m512 high01 = _mm512_unpackhi_ps(r[0], r[1]);
      const __m512 low23 = _mm512_unpacklo_ps(r[2], r[3]);
      const __m512 high23 = _mm512_unpackhi_ps(r[2], r[3]);
      float* out = to + 4 * quarter * to_stride;
      Store(out, _mm512_shuffle_ps(low01, low23, 0x44));
      Store(out + to_stride, _mm512_shuffle_ps(low01, low23, 0xee));
      Store(out + 2 * to_stride, _mm512_shuffle_ps(high01, high23, 0x44));
      Store(out + 3 * to_stride, _mm512_shuffle_ps(high01, high23, 0xee));
    }
  }
};

}  // namespace moestro
