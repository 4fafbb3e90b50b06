// SPDX-License-Identifier: MIT
// Definitions for the vectors of all instruction sets. A vector type has kLanes floats and the
// functions of the structs in float_lanes256.h, float_lanes512.h and float_lanes_portable.h.
#pragma once

#include <cstdint>
#include <numbers>

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

}  // namespace moestro
