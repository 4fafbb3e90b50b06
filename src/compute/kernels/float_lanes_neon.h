// SPDX-License-Identifier: MIT
// Vectors of four floats. Include only in files compiled for arm64.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "compute/kernels/float_lanes.h"

namespace moestro {

struct FloatLanesNeon {
  using Float = float32x4_t;
  static constexpr uint32_t kLanes = 4;
  static constexpr int kRows = 8;  // uses 16 sums of 32 registers
  static constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  static constexpr std::string_view kName = "neon";

  static Float Zero() { return vdupq_n_f32(0.0F); }
  static Float Load(const float* from) { return vld1q_f32(from); }
  static void Store(float* to, Float v) { vst1q_f32(to, v); }
  static Float Broadcast(float v) { return vdupq_n_f32(v); }
  static Float Add(Float a, Float b) { return vaddq_f32(a, b); }
  static Float Subtract(Float a, Float b) { return vsubq_f32(a, b); }
  static Float Multiply(Float a, Float b) { return vmulq_f32(a, b); }
  static Float MultiplyAdd(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  static Float Divide(Float a, Float b) { return vdivq_f32(a, b); }
  // Where an operand is NaN, Min() and Max() take the second.
  static Float Min(Float a, Float b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
  // `a` where x is negative, elsewhere `b`.
  static Float SelectNegative(Float x, Float a, Float b) {
    return vbslq_f32(vcltzq_s32(vreinterpretq_s32_f32(x)), a, b);
  }
  static float SumOf(Float v) { return vaddvq_f32(v); }
  static Float Max(Float a, Float b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
  static float LargestOf(Float v) {
    const Float two = Max(v, vextq_f32(v, v, 2));
    return vgetq_lane_f32(Max(two, vextq_f32(two, two, 1)), 0);
  }

  // 2^x for x <= 0; 0 below kSmallestPower.
  static Float PowerOfTwo(Float x) {
    const uint32x4_t is_normal = vcgeq_f32(x, Broadcast(kSmallestPower));
    const Float whole = vrndnq_f32(x);
    const Float part = vsubq_f32(x, whole);
    Float y = Broadcast(kPower[0]);
#pragma GCC unroll 8
    for (int i = 1; i < 7; ++i) y = vfmaq_f32(Broadcast(kPower[i]), y, part);
    const int32x4_t exponent = vshlq_n_s32(vcvtq_s32_f32(whole), 23);
    const int32x4_t bits = vaddq_s32(vreinterpretq_s32_f32(y), exponent);
    return vreinterpretq_f32_u32(vandq_u32(vreinterpretq_u32_s32(bits), is_normal));
  }

  static void ToFloat(const Half* from, float* to, size_t n) {
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      Store(to + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from + i))));
    }
    for (; i < n; ++i) {
      to[i] = vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(from[i]))), 0);
    }
  }

  static Float FromIntegers(const int8_t* from) {
    int32_t four;
    std::memcpy(&four, from, sizeof(four));
    const int16x8_t halves = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(halves)));
  }

  // [4][stride] -> [4][to_stride]
  static void Transpose(const float* from, size_t stride, float* to, size_t to_stride) {
    const Float r0 = Load(from);
    const Float r1 = Load(from + stride);
    const Float r2 = Load(from + 2 * stride);
    const Float r3 = Load(from + 3 * stride);
    const float64x2_t low02 = vreinterpretq_f64_f32(vzip1q_f32(r0, r1));
    const float64x2_t low13 = vreinterpretq_f64_f32(vzip1q_f32(r2, r3));
    const float64x2_t high02 = vreinterpretq_f64_f32(vzip2q_f32(r0, r1));
    const float64x2_t high13 = vreinterpretq_f64_f32(vzip2q_f32(r2, r3));
    Store(to, vreinterpretq_f32_f64(vzip1q_f64(low02, low13)));
    Store(to + to_stride, vreinterpretq_f32_f64(vzip2q_f64(low02, low13)));
    Store(to + 2 * to_stride, vreinterpretq_f32_f64(vzip1q_f64(high02, high13)));
    Store(to + 3 * to_stride, vreinterpretq_f32_f64(vzip2q_f64(high02, high13)));
  }
};

}  // namespace moestro
