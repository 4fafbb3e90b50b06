// SPDX-License-Identifier: MIT
#include "device/half_vector.h"

#include <ggml.h>

#include <cmath>

#if defined(__x86_64__)
#include "device/kernels/half_f16c.h"
#endif

namespace moestro {
namespace {

void Scale(Half* y, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = ggml_fp32_to_fp16(ggml_fp16_to_fp32(y[i]) * factor);
}

void AddScaled(Half* y, const Half* x, float factor, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    y[i] = ggml_fp32_to_fp16(std::fma(ggml_fp16_to_fp32(x[i]), factor, ggml_fp16_to_fp32(y[i])));
  }
}

}  // namespace

HalfVector HalfVector::Portable() { return {.scale = Scale, .add_scaled = AddScaled}; }

HalfVector HalfVector::ForThisMachine() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      __builtin_cpu_supports("f16c")) {
    return {.scale = ScaleF16c, .add_scaled = AddScaledF16c};
  }
#endif
  return Portable();
}

}  // namespace moestro
