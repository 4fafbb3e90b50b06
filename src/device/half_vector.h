// SPDX-License-Identifier: MIT
// Rows of half-precision values: what attention does with cached values. Each element is computed
// in F32 with one fused multiply-add and rounded to the nearest half, as ggml's CPU backend does
// it, so that both give the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moestro {

// IEEE half precision, ggml_fp16_t.
using Half = uint16_t;

struct HalfVector {
  // y[i] = half(y[i] * factor)
  void (*scale)(Half* y, float factor, size_t n) = nullptr;
  // y[i] = half(y[i] + x[i] * factor)
  void (*add_scaled)(Half* y, const Half* x, float factor, size_t n) = nullptr;

  // The fastest that this machine runs.
  static HalfVector ForThisMachine();
  // Works everywhere.
  static HalfVector Portable();
};

}  // namespace moestro
