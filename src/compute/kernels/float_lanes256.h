// SPDX-License-Identifier: MIT
// Vectors of eight floats. Include only in files compiled for AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "compute/kernels/float_lanes.h"

namespace moestro {

struct FloatLanes256 {
  using Float = __m256;
  static constexpr uint32_t kLanes = 8;
  static constexpr int kRows = 4;  // uses 8 sums of 16 registers
  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  static constexpr std::string_view kName = "avx2";

  static Float Zero() { return _mm256_setzero_ps(); }
  static Float Load(const float* from) { return _mm256_loadu_ps(from); }
  static void Store(float* to, Float v) { _mm256_storeu_ps(to, v); }
  static Float Broadcast(float v) { return _mm256_set1_ps(v); }
  static Float Add(Float a, Float b) { return _mm256_add_ps(a, b); }
  static Float Subtract(Float a, Float b) { return _mm256_sub_ps(a, b); }
  static Float Multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float MultiplyAdd(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float Divide(Float a, Float b) { return _mm256_div_ps(a, b); }
  static Float Min(Float a, Float b) { return _mm256_min_ps(a, b); }
  // `a` where x is negative, elsewhere `b`.
  static Float SelectNegative(Float x, Float a, Float b) { return _mm256_blendv_ps(b, a, x); }
  static float SumOf(Float v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static Float Max(Float a, Float b) { return _mm256_max_ps(a, b); }
  static float LargestOf(Float v) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }

  // 2^x for x <= 0; 0 below kSmallestPower.
  static Float PowerOfTwo(Float x) {
    const Float is_normal = _mm256_cmp_ps(x, Broadcast(kSmallestPower), _CMP_GE_OQ);
    const Float whole = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const Float part = _mm256_sub_ps(x, whole);
    Float y = Broadcast(kPower[0]);
#pragma GCC unroll 8
    for (int i = 1; i < 7; ++i) y = _mm256_fmadd_ps(y, part, Broadcast(kPower[i]));
    const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
    const __m256i bits = _mm256_add_epi32(_mm256_castps_si256(y), exponent);
    return _mm256_and_ps(_mm256_castsi256_ps(bits), is_normal);
  }

  static void ToFloat(const Half* from, float* to, size_t n) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      Store(to + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i))));
    }
    for (; i < n; ++i) to[i] = _cvtsh_ss(from[i]);
  }

  static Float FromIntegers(const int8_t* from) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }

  // [8][stride] -> [8][to_stride]
  static void Transpose(const float* from, size_t stride, float* to, size_t to_stride) {
    // Loads rows i and i + 4 by halves, then transposes 4 x 4 within each half.
#pragma GCC unroll 2
    for (size_t half = 0; half < 2; ++half) {
      __m256 r[4];
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) {
        const float* at = from + i * stride + 4 * half;
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(at)),
                                    _mm_loadu_ps(at + 4 * stride), 1);
      }
      const __m256 low01 = _mm256_unpacklo_ps(r[0], r[1]);
      const __m256 high01 = _mm256_unpackhi_ps(r[0], r[1]);
      const __m256 low23 = _mm256_unpacklo_ps(r[2], r[3]);
      const __m256 high23 = _mm256_unpackhi_ps(r[2], r[3]);
      float* out = to + 4 * half * to_stride;
      Store(out, _mm256_shuffle_ps(low01, low23, 0x44));
      Store(out + to_stride, _mm256_shuffle_ps(low01, low23, 0xee));
      Store(out + 2 * to_stride, _mm256_shuffle_ps(high01, high23, 0x44));
      Store(out + 3 * to_stride, _mm256_shuffle_ps(high01, high23, 0xee));
    }
  }
};

}  // namespace moestro
