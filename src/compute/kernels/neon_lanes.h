// SPDX-License-Identifier: MIT
// Four rows in a 128-bit register: the operations of the formats and of tile.h in NEON, with or
// without its dot products. Include only in files compiled for these sets.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moestro {

template <bool kHasDot>
struct NeonLanes {
  using Int = int32x4_t;
  using Float = float32x4_t;
  static constexpr int kQuads = 1;  // rows / 4
  // 8 sums + 8 registers of weights + temporaries <= 32; half for the sake of compile time where
  // products take most of the time.
  static constexpr int kMaxTokens = kHasDot ? 8 : 4;
  static constexpr int kMaxTokens256 = kMaxTokens;
  // Products of signed bytes with signed bytes exist.
  static constexpr int32_t kSignedOffset = 0;

  static Float Zero() { return vdupq_n_f32(0.0F); }
  static Int Fill8(int value) {
    return vreinterpretq_s32_s8(vdupq_n_s8(static_cast<int8_t>(value)));
  }
  static Int Fill32(int value) { return vdupq_n_s32(value); }
  static Int Broadcast(const void* four_bytes) {
    int32_t value;
    std::memcpy(&value, four_bytes, sizeof(value));
    return vdupq_n_s32(value);
  }
  static Float Broadcast(float value) { return vdupq_n_f32(value); }

  // 16 bytes of the quad's row.
  static Int Gather16(const std::byte* const (&quad)[kQuads], size_t offset) {
    return LoadWords(quad[0] + offset);
  }
  // Halves -> floats, lane i from row i at quad[0] + i * stride.
  static Float GatherHalves(const std::byte* const (&quad)[kQuads], size_t stride) {
    return HalfFloats(Halves4(quad[0], stride));
  }
  // Two bytes of each row, as an unsigned number, placed as in GatherHalves().
  static Int Gather2(const std::byte* const (&quad)[kQuads], size_t stride) {
    return vreinterpretq_s32_u32(vmovl_u16(Halves4(quad[0], stride)));
  }
  // Words, halves and bytes that lie together, lane after lane.
  static Int LoadWords(const std::byte* at) {
    return vreinterpretq_s32_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(at)));
  }
  static void StoreWords(std::byte* at, Int v) {
    vst1q_u8(reinterpret_cast<uint8_t*>(at), vreinterpretq_u8_s32(v));
  }
  static Int LoadHalves(const std::byte* at) {
    return vreinterpretq_s32_u32(vmovl_u16(Together4(at)));
  }
  static Int LoadBytes(const std::byte* at) {
    uint32_t four;
    std::memcpy(&four, at, sizeof(four));
    const uint16x8_t halves = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    return vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(halves)));
  }
  static Float LoadHalfFloats(const std::byte* at) { return HalfFloats(Together4(at)); }
  // The low half of each lane as a float.
  static Float LowHalf(Int v) { return HalfFloats(vmovn_u32(vreinterpretq_u32_s32(v))); }

  static Int UnpackLow32(Int a, Int b) { return vzip1q_s32(a, b); }
  static Int UnpackHigh32(Int a, Int b) { return vzip2q_s32(a, b); }
  static Int UnpackLow64(Int a, Int b) {
    return vreinterpretq_s32_s64(vzip1q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }
  static Int UnpackHigh64(Int a, Int b) {
    return vreinterpretq_s32_s64(vzip2q_s64(vreinterpretq_s64_s32(a), vreinterpretq_s64_s32(b)));
  }

  static Int And(Int a, Int b) { return vandq_s32(a, b); }
  static Int Or(Int a, Int b) { return vorrq_s32(a, b); }
  static Int Xor(Int a, Int b) { return veorq_s32(a, b); }
  template <int kBits>
  static Int ShiftRight(Int v) {
    return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(v), kBits));
  }
  template <int kBits>
  static Int ShiftLeft(Int v) {
    return vshlq_n_s32(v, kBits);
  }
  static Int ShiftLeftEach(Int v, Int bits) { return vshlq_s32(v, bits); }
  // The low byte of each 16-bit half, sign-extended.
  static Int SignExtendBytes(Int v) {
    return vreinterpretq_s32_s16(vshrq_n_s16(vshlq_n_s16(vreinterpretq_s16_s32(v), 8), 8));
  }
  static Int Add(Int a, Int b) { return vaddq_s32(a, b); }
  static Int Negate(Int v) { return vnegq_s32(v); }
  static Int Min(Int a, Int b) { return vminq_s32(a, b); }
  static Int Max(Int a, Int b) { return vmaxq_s32(a, b); }
  // Byte kByte of each lane, copied to all four bytes.
  template <int kByte>
  static Int SpreadByte(Int v) {
    const uint32x4_t lanes = {0x00000000, 0x04040404, 0x08080808, 0x0c0c0c0c};
    const uint8x16_t from = vaddq_u8(vreinterpretq_u8_u32(lanes), vdupq_n_u8(kByte));
    return vreinterpretq_s32_u8(vqtbl1q_u8(vreinterpretq_u8_s32(v), from));
  }
  // v | set in each byte whose bit is set: `bits` has one bit per byte, tested in `bytes`.
  static Int OrWhere(Int v, Int set, Int bytes, Int bits) {
    return vorrq_s32(v, vandq_s32(IsSet(bytes, bits), set));
  }
  // Negates weights of a grid where the byte's bit is set, as in OrWhere(). The returned signs are
  // not used: ScaledDotGrid() needs none here.
  static Int SetSigns(Int bytes, Int bits, Int* weights) {
    const int8x16_t is_set = Bytes(IsSet(bytes, bits));
    *weights = vreinterpretq_s32_s8(vsubq_s8(veorq_s8(Bytes(*weights), is_set), is_set));
    return bits;
  }
  // grid[i], where i is the kAt-th Index in each lane of `indices`.
  template <class Index, int kAt>
  static Int LookupWords(const uint32_t* grid, const Int& indices) {
    const uint64x2_t lanes = vreinterpretq_u64_s32(indices);
    const auto word = [&](int lane) {
      return static_cast<int32_t>(grid[At<Index, kAt>(lanes, lane)]);
    };
    return Int{word(0), word(1), word(2), word(3)};
  }
  // grid[2i] and grid[2i + 1].
  template <class Index, int kAt>
  static void LookupPairs(const uint32_t* grid, const Int& indices, Int* to) {
    const uint64x2_t lanes = vreinterpretq_u64_s32(indices);
    const auto two = [&](int lane) {
      const int32x2_t first = LoadPair(grid + 2 * At<Index, kAt>(lanes, lane));
      return vcombine_s32(first, LoadPair(grid + 2 * At<Index, kAt>(lanes, lane + 1)));
    };
    const Int a = two(0);
    const Int b = two(2);
    to[0] = vuzp1q_s32(a, b);
    to[1] = vuzp2q_s32(a, b);
  }
  // table[v] for bytes v < 16.
  static Int Lookup(const int8_t (&table)[16], Int v) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s32(v)));
  }

  // sum + products of weights (bytes <= kMax, four per lane and register) with 4 * kCount values.
  template <int kMax, int kCount>
  static Int Dot(Int sum, const Int* weights, const int8_t* values) {
    static_assert(kMax <= 127 && kCount % 4 == 0);
    return DotBytes<kMax, kCount>(sum, weights, values);
  }
  // Dot() for signed weights that went through PrepareSigned(), which here are as they were.
  static Int PrepareSigned(Int v) { return v; }
  template <int kCount>
  static Int DotSigned(Int sum, const Int* weights, const int8_t* values) {
    return DotBytes<128, kCount>(sum, weights, values);
  }
  // sum + the two products of 16-bit pairs in each lane.
  static Int DotPairs(Int sum, Int a, Int b) {
    const int16x8_t x = vreinterpretq_s16_s32(a);
    const int16x8_t y = vreinterpretq_s16_s32(b);
    const Int low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    return vaddq_s32(sum, vpaddq_s32(low, vmull_high_s16(x, y)));
  }

  // A factor from the low or the high half of each lane, for ScaledDot.
  static Int LowScale(Int pair) { return vshrq_n_s32(vshlq_n_s32(pair, 16), 16); }
  static Int HighScale(Int pair) { return vshrq_n_s32(pair, 16); }
  // sum + scale * Dot(0, ...).
  template <int kMax, int kCount>
  static Int ScaledDot(Int sum, Int scale, const Int* weights, const int8_t* values) {
    return vmlaq_s32(sum, DotBytes<kMax, kCount>(vdupq_n_s32(0), weights, values), scale);
  }
  // sum + scale * DotSigned(0, ...).
  template <int kCount>
  static Int ScaledDotSigned(Int sum, Int scale, const Int* weights, const int8_t* values) {
    return ScaledDot<128, kCount>(sum, scale, weights, values);
  }
  // sum + scale * products of a grid's weights, at most kMax without their signs.
  template <int kMax, int kCount>
  static Int ScaledDotGrid(Int sum, Int scale, const Int* weights, const Int*,
                           const int8_t* values) {
    return ScaledDot<kMax, kCount>(sum, scale, weights, values);
  }
  // sum + the low halves of `scales` times Dot(0, first, ...) + the high halves times Dot(0,
  // second, ...).
  template <int kMax, int kCount>
  static Int ScaledDots(Int sum, Int scales, const Int* first, const int8_t* first_values,
                        const Int* second, const int8_t* second_values) {
    sum = ScaledDot<kMax, kCount>(sum, LowScale(scales), first, first_values);
    return ScaledDot<kMax, kCount>(sum, HighScale(scales), second, second_values);
  }

  static Float BitsAsFloat(Int v) { return vreinterpretq_f32_s32(v); }
  static Float ToFloat(Int v) { return vcvtq_f32_s32(v); }
  static Float Multiply(Float a, Float b) { return vmulq_f32(a, b); }
  static Float MultiplyAdd(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
  static Float SubtractProduct(Float a, Float b, Float c) { return vfmsq_f32(c, a, b); }

  template <int kQuad>
  static void StoreQuad(float* to, Float v) {
    static_assert(kQuad == 0);
    vst1q_f32(to, v);
  }

 private:
  static int8x16_t Bytes(Int v) { return vreinterpretq_s8_s32(v); }
  static Int IsSet(Int bytes, Int bits) {
    return vreinterpretq_s32_u8(vtstq_s8(Bytes(bytes), Bytes(bits)));
  }
  static Float HalfFloats(uint16x4_t halves) { return vcvt_f32_f16(vreinterpret_f16_u16(halves)); }
  static uint16x4_t Together4(const std::byte* at) {
    return vreinterpret_u16_u8(vld1_u8(reinterpret_cast<const uint8_t*>(at)));
  }
  static uint16x4_t Halves4(const std::byte* at, size_t stride) {
    const auto half = [&](size_t i) {
      uint16_t value;
      std::memcpy(&value, at + i * stride, sizeof(value));
      return value;
    };
    return uint16x4_t{half(0), half(1), half(2), half(3)};
  }
  static int32x2_t LoadPair(const uint32_t* at) {
    return vreinterpret_s32_u8(vld1_u8(reinterpret_cast<const uint8_t*>(at)));
  }
  // The index of a lane, from a register taken as pairs of lanes.
  template <class Index, int kAt>
  static size_t At(uint64x2_t lanes, int lane) {
    return static_cast<Index>(lanes[lane / 2] >>
                              (lane % 2 * 32 + kAt * 8 * static_cast<int>(sizeof(Index))));
  }

  // sum + products of signed weights, at most kMax without their signs, with 4 * kCount values.
  template <int kMax, int kCount>
  static Int DotBytes(Int sum, const Int* weights, const int8_t* values) {
    if constexpr (kHasDot) {
#pragma GCC unroll 8
      for (int i = 0; i < kCount; i += 4) {
        const int8x16_t sixteen = vld1q_s8(values + 4 * i);
        sum = DotLane<0>(sum, weights[i], sixteen);
        sum = DotLane<1>(sum, weights[i + 1], sixteen);
        sum = DotLane<2>(sum, weights[i + 2], sixteen);
        sum = DotLane<3>(sum, weights[i + 3], sixteen);
      }
      return sum;
    } else {
      return vaddq_s32(sum, AddProducts<kMax, kCount>(weights, values));
    }
  }
  // sum + products of four weights in each lane with the kLane-th four values.
  template <int kLane>
  static Int DotLane(Int sum, Int weights, int8x16_t values) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_laneq_s32(sum, Bytes(weights), values, kLane);
#else
    static_assert(!kHasDot, "compile with +dotprod");
    (void)weights;
    (void)values;
    return sum;
#endif
  }
  // As DotBytes() without dot products: products are added in 16 bits as long as sums fit for all
  // values, half of the lanes in each of two registers.
  template <int kMax, int kCount>
  static Int AddProducts(const Int* weights, const int8_t* values) {
    constexpr int kFit = 32767 / (kMax * 128);
    constexpr int kStep = kFit < kCount ? kFit : kCount;
    static_assert(kStep > 0);
    Int low = vdupq_n_s32(0);
    Int high = vdupq_n_s32(0);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; i += kStep) {
      const int8x16_t first = Bytes(Broadcast(values + 4 * i));
      int16x8_t left = vmull_s8(vget_low_s8(Bytes(weights[i])), vget_low_s8(first));
      int16x8_t right = vmull_high_s8(Bytes(weights[i]), first);
#pragma GCC unroll 8
      for (int k = i + 1; k < kCount && k < i + kStep; ++k) {
        const int8x16_t four = Bytes(Broadcast(values + 4 * k));
        left = vmlal_s8(left, vget_low_s8(Bytes(weights[k])), vget_low_s8(four));
        right = vmlal_high_s8(right, Bytes(weights[k]), four);
      }
      low = vpadalq_s16(low, left);
      high = vpadalq_s16(high, right);
    }
    return vpaddq_s32(low, high);
  }
};

}  // namespace moestro
