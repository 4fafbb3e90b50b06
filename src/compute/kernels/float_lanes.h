// SPDX-License-Identifier: MIT
// Definitions for the vectors of all instruction sets. A vector type has kLanes floats and the
// functions of the structs in float_lanes256.h and float_lanes512.h, and those below for every
// machine.
#pragma once

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>
#include <string_view>

namespace moestro {

// IEEE half precision, ggml_fp16_t.
using Half = uint16_t;

// Coefficients of a polynomial for 2^x, |x| <= 1/2, the highest power first (powers of log(2) over
// factorials). The error is at most 1.3e-7.
inline constexpr float kPower[7] = {1.5403530e-4F, 1.3333558e-3F, 9.6181291e-3F, 5.5504109e-2F,
                                    2.4022651e-1F, 6.9314718e-1F, 1.0F};
// Weights below 2^kSmallestPower are 0.
inline constexpr float kSmallestPower = -125.0F;

// factor * sigmoid(x); NaN stays NaN.
template <class V>
inline typename V::Float TimesSigmoid(typename V::Float factor, typename V::Float x) {
  using Float = typename V::Float;
  constexpr float kLog2E = std::numbers::log2e_v<float>;
  const Float below = V::Min(x, V::Subtract(V::Zero(), x));  // -|x|
  const Float power = V::PowerOfTwo(V::Multiply(below, V::Broadcast(kLog2E)));
  const Float one = V::Broadcast(1.0F);
  const Float result =
      V::Divide(V::Multiply(factor, V::SelectNegative(x, power, one)), V::Add(one, power));
  // Adds NaN if x is NaN, else 0: where one operand is NaN, Max() takes the second.
  return V::Add(result, V::Multiply(V::Zero(), V::Max(V::Broadcast(-1.0F), below)));
}

// x * sigmoid(x); NaN stays NaN.
template <class V>
inline typename V::Float Silu(typename V::Float x) {
  return TimesSigmoid<V>(x, x);
}

// Vectors of four floats, compiled to the instructions of any target.

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
