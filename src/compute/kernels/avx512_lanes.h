// SPDX-License-Identifier: MIT
// Sixteen rows in a 512-bit register: the operations of the formats and of tile.h in AVX-512 with
// VNNI. Include only in files compiled for these sets.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moestro {

struct Avx512Lanes {
  using Int = __m512i;
  using Float = __m512;
  static constexpr int kQuads = 4;       // rows / 4
  static constexpr int kMaxTokens = 16;  // 16 sums + 8 registers of weights + temporaries <= 32
  static constexpr int kMaxTokens256 = 8;
  // dpbusd takes unsigned weights: signed ones are shifted by this.
  static constexpr int32_t kSignedOffset = 128;

  static Float Zero() { return _mm512_setzero_ps(); }
  static Int Fill8(int value) { return _mm512_set1_epi8(static_cast<char>(value)); }
  static Int Fill32(int value) { return _mm512_set1_epi32(value); }
  static Int Broadcast(const void* four_bytes) {
    int32_t value;
    std::memcpy(&value, four_bytes, sizeof(value));
    return _mm512_set1_epi32(value);
  }
  static Float Broadcast(float value) { return _mm512_set1_ps(value); }

  // 16 bytes of each quad's row, a quad per 128 bits.
  static Int Gather16(const std::byte* const (&quad)[kQuads], size_t offset) {
    const auto load = [&](int q) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(quad[q] + offset));
    };
    // Masked loads that spread a quad over all lanes and keep one: no shuffles.
    Int v = _mm512_castsi128_si512(load(0));
    v = _mm512_mask_broadcast_i32x4(v, 0x00f0, load(1));
    v = _mm512_mask_broadcast_i32x4(v, 0x0f00, load(2));
    return _mm512_mask_broadcast_i32x4(v, 0xf000, load(3));
  }
  // Halves -> floats, lane 4q + i from quad q's row i at quad[q] + i * stride.
  static Float GatherHalves(const std::byte* const (&quad)[kQuads], size_t stride) {
    return _mm512_cvtph_ps(
        _mm256_set_m128i(Halves8(quad[2], quad[3], stride), Halves8(quad[0], quad[1], stride)));
  }
  // Two bytes of each row, as an unsigned number, placed as in GatherHalves().
  static Int Gather2(const std::byte* const (&quad)[kQuads], size_t stride) {
    return _mm512_cvtepu16_epi32(
        _mm256_set_m128i(Halves8(quad[2], quad[3], stride), Halves8(quad[0], quad[1], stride)));
  }
  // Words, halves and bytes that lie together, lane after lane.
  static Int LoadWords(const std::byte* at) { return _mm512_loadu_si512(at); }
  static void StoreWords(std::byte* at, Int v) { _mm512_storeu_si512(at, v); }
  static Int LoadHalves(const std::byte* at) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  static Int LoadBytes(const std::byte* at) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static Float LoadHalfFloats(const std::byte* at) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at)));
  }
  // The low half of each lane as a float.
  static Float LowHalf(Int v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }

  static Int UnpackLow32(Int a, Int b) { return _mm512_unpacklo_epi32(a, b); }
  static Int UnpackHigh32(Int a, Int b) { return _mm512_unpackhi_epi32(a, b); }
  static Int UnpackLow64(Int a, Int b) { return _mm512_unpacklo_epi64(a, b); }
  static Int UnpackHigh64(Int a, Int b) { return _mm512_unpackhi_epi64(a, b); }

  static Int And(Int a, Int b) { return _mm512_and_si512(a, b); }
  static Int Or(Int a, Int b) { return _mm512_or_si512(a, b); }
  static Int Xor(Int a, Int b) { return _mm512_xor_si512(a, b); }
  template <int kBits>
  static Int ShiftRight(Int v) {
    return _mm512_srli_epi32(v, kBits);
  }
  template <int kBits>
  static Int ShiftLeft(Int v) {
    return _mm512_slli_epi32(v, kBits);
  }
  static Int ShiftLeftEach(Int v, Int bits) { return _mm512_sllv_epi32(v, bits); }
  // The low byte of each 16-bit half, sign-extended.
  static Int SignExtendBytes(Int v) { return _mm512_srai_epi16(_mm512_slli_epi16(v, 8), 8); }
  static Int Add(Int a, Int b) { return _mm512_add_epi32(a, b); }
  static Int Negate(Int v) { return _mm512_sub_epi32(_mm512_setzero_si512(), v); }
  static Int Min(Int a, Int b) { return _mm512_min_epi32(a, b); }
  static Int Max(Int a, Int b) { return _mm512_max_epi32(a, b); }
  // Byte kByte of each lane, copied to all four bytes.
  template <int kByte>
  static Int SpreadByte(Int v) {
    const __m512i from =
        _mm512_broadcast_i32x4(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0x00000000));
    return _mm512_shuffle_epi8(v, _mm512_add_epi8(from, Fill8(kByte)));
  }
  // v | set in each byte whose bit is set: `bits` has one bit per byte, tested in `bytes`.
  static Int OrWhere(Int v, Int set, Int bytes, Int bits) {
    return _mm512_or_si512(v, _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(bytes, bits), set));
  }
  // Negates weights of a grid where the byte's bit is set, as in OrWhere(). The returned signs are
  // not used: ScaledDotGrid() needs none here.
  static Int SetSigns(Int bytes, Int bits, Int* weights) {
    *weights = _mm512_mask_sub_epi8(*weights, _mm512_test_epi8_mask(bytes, bits),
                                    _mm512_setzero_si512(), *weights);
    return bits;
  }
  // grid[i], where i is the kAt-th Index in each lane of `indices`.
  template <class Index, int kAt>
  static Int LookupWords(const uint32_t* grid, const Int& indices) {
    uint64_t lanes[8];
    std::memcpy(lanes, &indices, sizeof(lanes));
    const auto four = [&](int lane) {
      const auto word = [&](int of) { return static_cast<int>(grid[At<Index, kAt>(lanes, of)]); };
      return _mm_set_epi32(word(lane + 3), word(lane + 2), word(lane + 1), word(lane));
    };
    return Join(four(0), four(4), four(8), four(12));
  }
  // grid[2i] and grid[2i + 1].
  template <class Index, int kAt>
  static void LookupPairs(const uint32_t* grid, const Int& indices, Int* to) {
    uint64_t lanes[8];
    std::memcpy(lanes, &indices, sizeof(lanes));
    const auto two = [&](int lane) {
      const uint32_t* const first = grid + 2 * At<Index, kAt>(lanes, lane);
      const uint32_t* const second = grid + 2 * At<Index, kAt>(lanes, lane + 1);
      return _mm_castps_si128(_mm_loadh_pi(_mm_castsi128_ps(_mm_loadu_si64(first)),
                                           reinterpret_cast<const __m64*>(second)));
    };
    const Float a = _mm512_castsi512_ps(Join(two(0), two(4), two(8), two(12)));
    const Float b = _mm512_castsi512_ps(Join(two(2), two(6), two(10), two(14)));
    to[0] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88));
    to[1] = _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xdd));
  }
  // table[v] for bytes v < 16.
  static Int Lookup(const int8_t (&table)[16], Int v) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), v);
  }

  // sum + products of weights (bytes <= kMax, four per lane and register) with 4 * kCount values.
  template <int kMax, int kCount>
  static Int Dot(Int sum, const Int* weights, const int8_t* values) {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) {
      sum = _mm512_dpbusd_epi32(sum, weights[i], Broadcast(values + 4 * i));
    }
    return sum;
  }
  // Dot() for signed weights that went through PrepareSigned(); kSignedOffset times the sum of the
  // values must still be subtracted.
  static Int PrepareSigned(Int v) { return _mm512_xor_si512(v, Fill8(0x80)); }
  template <int kCount>
  static Int DotSigned(Int sum, const Int* weights, const int8_t* values) {
    return Dot<255, kCount>(sum, weights, values);
  }
  // sum + the two products of 16-bit pairs in each lane.
  static Int DotPairs(Int sum, Int a, Int b) { return _mm512_dpwssd_epi32(sum, a, b); }

  // A factor from the low or the high half of each lane, for ScaledDot.
  static Int LowScale(Int pair) { return _mm512_srai_epi32(_mm512_slli_epi32(pair, 16), 16); }
  static Int HighScale(Int pair) { return _mm512_srai_epi32(pair, 16); }
  // sum + scale * Dot(0, ...).
  template <int kMax, int kCount>
  static Int ScaledDot(Int sum, Int scale, const Int* weights, const int8_t* values) {
    const Int dot = Dot<kMax, kCount>(_mm512_setzero_si512(), weights, values);
    return _mm512_add_epi32(sum, _mm512_mullo_epi32(dot, scale));
  }
  // sum + scale * DotSigned(0, ...).
  template <int kCount>
  static Int ScaledDotSigned(Int sum, Int scale, const Int* weights, const int8_t* values) {
    return ScaledDot<255, kCount>(sum, scale, weights, values);
  }
  // sum + scale * products of a grid's weights, at most kMax without their signs; kSignedOffset
  // times the sum of the values must still be subtracted.
  template <int kMax, int kCount>
  static Int ScaledDotGrid(Int sum, Int scale, const Int* weights, const Int*,
                           const int8_t* values) {
    return ScaledDot<255, kCount>(sum, scale, weights, values);
  }
  // sum + the low halves of `scales` times Dot(0, first, ...) + the high halves times Dot(0,
  // second, ...). Each dot product must fit 16 bits.
  template <int kMax, int kCount>
  static Int ScaledDots(Int sum, Int scales, const Int* first, const int8_t* first_values,
                        const Int* second, const int8_t* second_values) {
    static_assert(kMax * kCount * 4 * 128 <= 32767);
    const Int low = Dot<kMax, kCount>(_mm512_setzero_si512(), first, first_values);
    const Int high = Dot<kMax, kCount>(_mm512_setzero_si512(), second, second_values);
    const Int both = _mm512_mask_blend_epi16(0xaaaaaaaa, low, _mm512_slli_epi32(high, 16));
    return DotPairs(sum, both, scales);
  }

  static Float BitsAsFloat(Int v) { return _mm512_castsi512_ps(v); }
  static Float ToFloat(Int v) { return _mm512_cvtepi32_ps(v); }
  static Float Multiply(Float a, Float b) { return _mm512_mul_ps(a, b); }
  static Float MultiplyAdd(Float a, Float b, Float c) { return _mm512_fmadd_ps(a, b, c); }
  static Float SubtractProduct(Float a, Float b, Float c) { return _mm512_fnmadd_ps(a, b, c); }

  template <int kQuad>
  static void StoreQuad(float* to, Float v) {
    _mm_storeu_ps(to, _mm512_extractf32x4_ps(v, kQuad));
  }

 private:
  // The index of a lane, from a register stored as pairs of lanes: by shifts, since look-ups are
  // bound by loads.
  template <class Index, int kAt>
  static size_t At(const uint64_t (&lanes)[8], int lane) {
    return static_cast<Index>(lanes[lane / 2] >>
                              (lane % 2 * 32 + kAt * 8 * static_cast<int>(sizeof(Index))));
  }
  static Int Join(__m128i a, __m128i b, __m128i c, __m128i d) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(b, a)),
                              _mm256_set_m128i(d, c), 1);
  }
  static __m128i Halves8(const std::byte* a, const std::byte* b, size_t stride) {
    const auto half = [stride](const std::byte* quad, size_t i) {
      uint16_t value;
      std::memcpy(&value, quad + i * stride, sizeof(value));
      return value;
    };
    __m128i v = _mm_cvtsi32_si128(half(a, 0));
    v = _mm_insert_epi16(v, half(a, 1), 1);
    v = _mm_insert_epi16(v, half(a, 2), 2);
    v = _mm_insert_epi16(v, half(a, 3), 3);
    v = _mm_insert_epi16(v, half(b, 0), 4);
    v = _mm_insert_epi16(v, half(b, 1), 5);
    v = _mm_insert_epi16(v, half(b, 2), 6);
    return _mm_insert_epi16(v, half(b, 3), 7);
  }
};

}  // namespace moestro
