// SPDX-License-Identifier: MIT
// Compiled for AVX2, FMA and F16C.
#include "device/kernels/half_f16c.h"

#include <immintrin.h>

namespace moestro {
namespace {

constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
constexpr size_t kLanes = 8;

__m256 Load(const uint16_t* from) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
}
void Store(uint16_t* to, __m256 value) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value, kNearest));
}

}  // namespace

void ScaleF16c(uint16_t* y, float factor, size_t n) {
  const __m256 f = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) Store(y + i, _mm256_mul_ps(Load(y + i), f));
  for (; i < n; ++i) y[i] = _cvtss_sh(_cvtsh_ss(y[i]) * factor, kNearest);
}

void AddScaledF16c(uint16_t* y, const uint16_t* x, float factor, size_t n) {
  const __m256 f = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Store(y + i, _mm256_fmadd_ps(Load(x + i), f, Load(y + i)));
  }
  for (; i < n; ++i) {
    y[i] = _cvtss_sh(__builtin_fmaf(_cvtsh_ss(x[i]), factor, _cvtsh_ss(y[i])), kNearest);
  }
}

}  // namespace moestro
