// SPDX-License-Identifier: MIT
// Vectors of four floats, compiled to the instructions of any target.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>

#include "device/kernels/float_lanes.h"

namespace moestro {

struct FloatLanesPortable {
  static constexpr uint32_t kLanes = 4;
  using Float [[gnu::vector_size(16)]] = float;
  static constexpr int kRows = 4;
  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  static constexpr std::string_view kName = "portable";

  static Float Zero() { return Float{}; }
  static Float Load(const float* from) {
    Float v;
    std::memcpy(&v, from, sizeof(v));
    return v;
  }
  static void Store(float* to, Float v) { std::memcpy(to, &v, sizeof(v)); }
  static Float Broadcast(float v) { return Float{v, v, v, v}; }
  static Float Add(Float a, Float b) { return a + b; }
  static Float Subtract(Float a, Float b) { return a - b; }
  static Float Multiply(Float a, Float b) { return a * b; }
  static Float MultiplyAdd(Float a, Float b, Float c) { return a * b + c; }
  static Float Divide(Float a, Float b) { return a / b; }
  static Float Min(Float a, Float b) { return a < b ? a : b; }
  // `a` where x is negative, elsewhere `b`.
  static Float SelectNegative(Float x, Float a, Float b) { return x < Zero() ? a : b; }
  static float SumOf(Float v) { return (v[0] + v[1]) + (v[2] + v[3]); }
  static Float Max(Float a, Float b) { return a > b ? a : b; }
  static float LargestOf(Float v) { return std::max(std::max(v[0], v[1]), std::max(v[2], v[3])); }
  static Float PowerOfTwo(Float x) {
    for (uint32_t i = 0; i < kLanes; ++i) x[i] = x[i] >= kSmallestPower ? std::exp2(x[i]) : 0.0F;
    return x;
  }
  static void ToFloat(const Half* from, float* to, size_t n) {
    ggml_fp16_to_fp32_row(from, to, static_cast<int64_t>(n));
  }
  static Float FromIntegers(const int8_t* from) {
    Float v;
    for (uint32_t i = 0; i < kLanes; ++i) v[i] = from[i];
    return v;
  }
  static void Transpose(const float* from, size_t stride, float* to, size_t to_stride) {
    for (uint32_t i = 0; i < kLanes; ++i) {
      for (uint32_t j = 0; j < kLanes; ++j) to[j * to_stride + i] = from[i * stride + j];
    }
  }
};

}  // namespace moestro
