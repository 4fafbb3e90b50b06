// SPDX-License-Identifier: MIT
// Eight rows in a 256-bit register: the operations of the formats and of tile.h in AVX2, FMA and
// F16C, with or without the 256-bit form of VNNI. Include only in files compiled for these sets.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace moestro {

template <bool kVnni>
struct Avx2Lanes {
  using Int = __m256i;
  using Float = __m256;
  static constexpr int kQuads = 2;      // rows / 4
  static constexpr int kMaxTokens = 4;  // 4 sums + 8 registers of weights + temporaries <= 16
  static constexpr int kMaxTokens256 = 4;
  // dpbusd takes unsigned weights: signed ones are shifted by this. Without dpbusd signs change
  // sides.
  static constexpr int32_t kSignedOffset = kVnni ? 128 : 0;

  static Float Zero() { return _mm256_setzero_ps(); }
  static Int Fill8(int value) { return _mm256_set1_epi8(static_cast<char>(value)); }
  static Int Fill32(int value) { return _mm256_set1_epi32(value); }
  static Int Broadcast(const void* four_bytes) {
    int32_t value;
    std::memcpy(&value, four_bytes, sizeof(value));
    return _mm256_set1_epi32(value);
  }
  static Float Broadcast(float value) { return _mm256_set1_ps(value); }

  // 16 bytes of each quad's row, a quad per 128 bits.
  static Int Gather16(const std::byte* const (&quad)[kQuads], size_t offset) {
    const auto load = [&](int q) {
      return _mm_loadu_si128(reinterpret_cast<const __m128i*>(quad[q] + offset));
    };
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load(0)), load(1), 1);
  }
  // Halves -> floats, lane 4q + i from quad q's row i at quad[q] + i * stride.
  static Float GatherHalves(const std::byte* const (&quad)[kQuads], size_t stride) {
    return _mm256_cvtph_ps(Halves8(quad, stride));
  }
  // Two bytes of each row, as an unsigned number, placed as in GatherHalves().
  static Int Gather2(const std::byte* const (&quad)[kQuads], size_t stride) {
    return _mm256_cvtepu16_epi32(Halves8(quad, stride));
  }
  // Words, halves and bytes that lie together, lane after lane.
  static Int LoadWords(const std::byte* at) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  }
  static void StoreWords(std::byte* at, Int v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), v);
  }
  static Int LoadHalves(const std::byte* at) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  static Int LoadBytes(const std::byte* at) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  }
  static Float LoadHalfFloats(const std::byte* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  // The low half of each lane as a float.
  static Float LowHalf(Int v) {
    const __m256i low = _mm256_and_si256(v, _mm256_set1_epi32(0xffff));
    const __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(low), _mm256_extracti128_si256(low, 1));
    return _mm256_cvtph_ps(halves);
  }

  static Int UnpackLow32(Int a, Int b) { return _mm256_unpacklo_epi32(a, b); }
  static Int UnpackHigh32(Int a, Int b) { return _mm256_unpackhi_epi32(a, b); }
  static Int UnpackLow64(Int a, Int b) { return _mm256_unpacklo_epi64(a, b); }
  static Int UnpackHigh64(Int a, Int b) { return _mm256_unpackhi_epi64(a, b); }

  static Int And(Int a, Int b) { return _mm256_and_si256(a, b); }
  static Int Or(Int a, Int b) { return _mm256_or_si256(a, b); }
  static Int Xor(Int a, Int b) { return _mm256_xor_si256(a, b); }
  template <int kBits>
  static Int ShiftRight(Int v) {
    return _mm256_srli_epi32(v, kBits);
  }
  template <int kBits>
  static Int ShiftLeft(Int v) {
    return _mm256_slli_epi32(v, kBits);
  }
  static Int ShiftLeftEach(Int v, Int bits) { return _mm256_sllv_epi32(v, bits); }
  // The low byte of each 16-bit half, sign-extended.
  static Int SignExtendBytes(Int v) { return _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8); }
  static Int Add(Int a, Int b) { return _mm256_add_epi32(a, b); }
  static Int Negate(Int v) { return _mm256_sub_epi32(_mm256_setzero_si256(), v); }
  static Int Min(Int a, Int b) { return _mm256_min_epi32(a, b); }
  static Int Max(Int a, Int b) { return _mm256_max_epi32(a, b); }
  // Byte kByte of each lane, copied to all four bytes.
  template <int kByte>
  static Int SpreadByte(Int v) {
    const __m256i from =
        _mm256_broadcastsi128_si256(_mm_set_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0x00000000));
    return _mm256_shuffle_epi8(v, _mm256_add_epi8(from, Fill8(kByte)));
  }
  // v | set in each byte whose bit is set: `bits` has one bit per byte, tested in `bytes`.
  static Int OrWhere(Int v, Int set, Int bytes, Int bits) {
    const Int is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
    return _mm256_or_si256(v, _mm256_and_si256(is_set, set));
  }
  // Negates weights of a grid where the byte's bit is set, as in OrWhere(). Returns the signs for
  // ScaledDotGrid(): without VNNI weights stay and values change sides.
  static Int SetSigns(Int bytes, Int bits, Int* weights) {
    const Int is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits);
    if constexpr (kVnni) {
      *weights = _mm256_sub_epi8(_mm256_xor_si256(*weights, is_set), is_set);
      return is_set;
    } else {
      return _mm256_or_si256(is_set, Fill8(1));
    }
  }
  // grid[i], where i is the kAt-th Index in each lane of `indices`.
  template <class Index, int kAt>
  static Int LookupWords(const uint32_t* grid, const Int& indices) {
    uint64_t lanes[4];
    std::memcpy(lanes, &indices, sizeof(lanes));
    const auto word = [&](int lane) { return static_cast<int>(grid[At<Index, kAt>(lanes, lane)]); };
    return _mm256_set_epi32(word(7), word(6), word(5), word(4), word(3), word(2), word(1), word(0));
  }
  // grid[2i] and grid[2i + 1].
  template <class Index, int kAt>
  static void LookupPairs(const uint32_t* grid, const Int& indices, Int* to) {
    uint64_t lanes[4];
    std::memcpy(lanes, &indices, sizeof(lanes));
    const auto two = [&](int lane) {
      const uint32_t* const first = grid + 2 * At<Index, kAt>(lanes, lane);
      const uint32_t* const second = grid + 2 * At<Index, kAt>(lanes, lane + 1);
      return _mm_loadh_pi(_mm_castsi128_ps(_mm_loadu_si64(first)),
                          reinterpret_cast<const __m64*>(second));
    };
    const Float a = _mm256_set_m128(two(4), two(0));
    const Float b = _mm256_set_m128(two(6), two(2));
    to[0] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    to[1] = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0xdd));
  }
  // table[v] for bytes v < 16.
  static Int Lookup(const int8_t (&table)[16], Int v) {
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(t), v);
  }

  // sum + products of weights (bytes <= kMax, four per lane and register) with 4 * kCount values.
  template <int kMax, int kCount>
  static Int Dot(Int sum, const Int* weights, const int8_t* values) {
    if constexpr (kVnni) {
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        sum = DotBytes(sum, weights[i], Broadcast(values + 4 * i));
      }
      return sum;
    } else {
      return AddPairs<kMax, kCount>(sum, _mm256_set1_epi16(1), weights, values);
    }
  }
  // Dot() for signed weights that went through PrepareSigned(); kSignedOffset times the sum of the
  // values must still be subtracted.
  static Int PrepareSigned(Int v) {
    if constexpr (kVnni) return _mm256_xor_si256(v, Fill8(0x80));
    return v;
  }
  template <int kCount>
  static Int DotSigned(Int sum, const Int* weights, const int8_t* values) {
    if constexpr (kVnni) {
      return Dot<255, kCount>(sum, weights, values);
    } else {
      const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        const __m256i pairs = SignedPairs(weights[i], Broadcast(values + 4 * i));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
      }
      return sum;
    }
  }
  // sum + scale * DotSigned(0, ...), with a scale from LowScale() or HighScale().
  template <int kCount>
  static Int ScaledDotSigned(Int sum, Int scale, const Int* weights, const int8_t* values) {
    if constexpr (kVnni) {
      return ScaledDot<255, kCount>(sum, scale, weights, values);
    } else {
#pragma GCC unroll 8
      for (int i = 0; i < kCount; ++i) {
        const __m256i pairs = SignedPairs(weights[i], Broadcast(values + 4 * i));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, scale));
      }
      return sum;
    }
  }
  // sum + scale * products of a grid's weights, at most kMax without their signs; kSignedOffset
  // times the sum of the values must still be subtracted.
  template <int kMax, int kCount>
  static Int ScaledDotGrid(Int sum, Int scale, const Int* weights, const Int* signs,
                           const int8_t* values) {
    if constexpr (kVnni) {
      return ScaledDot<255, kCount>(sum, scale, weights, values);
    } else {
      const auto pairs = [=](int i) {
        const __m256i signed_values = _mm256_sign_epi8(Broadcast(values + 4 * i), signs[i]);
        return _mm256_maddubs_epi16(weights[i], signed_values);
      };
      constexpr int kFit = 32767 / (kMax * 2 * 128);
      constexpr int kStep = kFit < kCount ? kFit : kCount;
#pragma GCC unroll 8
      for (int i = 0; i < kCount; i += kStep) {
        __m256i sixteen = pairs(i);
#pragma GCC unroll 8
        for (int k = i + 1; k < kCount && k < i + kStep; ++k) {
          sixteen = _mm256_add_epi16(sixteen, pairs(k));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(sixteen, scale));
      }
      return sum;
    }
  }
  // sum + the two products of 16-bit pairs in each lane.
  static Int DotPairs(Int sum, Int a, Int b) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
  }

  // A factor from the low or the high half of each lane, for ScaledDot.
  static Int LowScale(Int pair) {
    if constexpr (kVnni) return _mm256_srai_epi32(_mm256_slli_epi32(pair, 16), 16);
    return _mm256_blend_epi16(pair, _mm256_slli_epi32(pair, 16), 0xaa);
  }
  static Int HighScale(Int pair) {
    if constexpr (kVnni) return _mm256_srai_epi32(pair, 16);
    return _mm256_blend_epi16(pair, _mm256_srli_epi32(pair, 16), 0x55);
  }
  // sum + scale * Dot(0, ...).
  template <int kMax, int kCount>
  static Int ScaledDot(Int sum, Int scale, const Int* weights, const int8_t* values) {
    if constexpr (kVnni) {
      const Int dot = Dot<kMax, kCount>(_mm256_setzero_si256(), weights, values);
      return _mm256_add_epi32(sum, _mm256_mullo_epi32(dot, scale));
    } else {
      return AddPairs<kMax, kCount>(sum, scale, weights, values);
    }
  }
  // sum + the low halves of `scales` times Dot(0, first, ...) + the high halves times Dot(0,
  // second, ...). Each dot product must fit 16 bits.
  template <int kMax, int kCount>
  static Int ScaledDots(Int sum, Int scales, const Int* first, const int8_t* first_values,
                        const Int* second, const int8_t* second_values) {
    if constexpr (kVnni) {
      static_assert(kMax * kCount * 4 * 128 <= 32767);
      const Int low = Dot<kMax, kCount>(_mm256_setzero_si256(), first, first_values);
      const Int high = Dot<kMax, kCount>(_mm256_setzero_si256(), second, second_values);
      return DotPairs(sum, _mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa), scales);
    } else {
      sum = AddPairs<kMax, kCount>(sum, LowScale(scales), first, first_values);
      return AddPairs<kMax, kCount>(sum, HighScale(scales), second, second_values);
    }
  }

  static Float BitsAsFloat(Int v) { return _mm256_castsi256_ps(v); }
  static Float ToFloat(Int v) { return _mm256_cvtepi32_ps(v); }
  static Float Multiply(Float a, Float b) { return _mm256_mul_ps(a, b); }
  static Float MultiplyAdd(Float a, Float b, Float c) { return _mm256_fmadd_ps(a, b, c); }
  static Float SubtractProduct(Float a, Float b, Float c) { return _mm256_fnmadd_ps(a, b, c); }

  template <int kQuad>
  static void StoreQuad(float* to, Float v) {
    _mm_storeu_ps(to, _mm256_extractf128_ps(v, kQuad));
  }

 private:
  // The index of a lane, from a register stored as pairs of lanes: by shifts, since look-ups are
  // bound by loads.
  template <class Index, int kAt>
  static size_t At(const uint64_t (&lanes)[4], int lane) {
    return static_cast<Index>(lanes[lane / 2] >>
                              (lane % 2 * 32 + kAt * 8 * static_cast<int>(sizeof(Index))));
  }
  static Int DotBytes(Int sum, Int weights, Int values) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, weights, values);
#else
    static_assert(!kVnni, "compile with -mavxvnni");
    (void)weights;
    (void)values;
    return sum;
#endif
  }
  // Products of signed bytes, added up by twos. |weight| <= 128 and |value| <= 127, so the sums fit
  // 16 bits.
  static __m256i SignedPairs(Int weights, Int values) {
    return _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(values, weights));
  }
  // sum + factor * products, the factor in both halves of each lane. Products of pairs are added in
  // 16 bits as long as the sums fit for all values.
  template <int kMax, int kCount>
  static Int AddPairs(Int sum, Int factor, const Int* weights, const int8_t* values) {
    constexpr int kFit = 32767 / (kMax * 2 * 128);
    constexpr int kStep = kFit < kCount ? kFit : kCount;
    static_assert(kStep > 0);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; i += kStep) {
      __m256i pairs = _mm256_maddubs_epi16(weights[i], Broadcast(values + 4 * i));
#pragma GCC unroll 8
      for (int k = i + 1; k < kCount && k < i + kStep; ++k) {
        pairs =
            _mm256_add_epi16(pairs, _mm256_maddubs_epi16(weights[k], Broadcast(values + 4 * k)));
      }
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, factor));
    }
    return sum;
  }
  static __m128i Halves8(const std::byte* const (&quad)[kQuads], size_t stride) {
    const auto half = [&](size_t q, size_t i) {
      uint16_t value;
      std::memcpy(&value, quad[q] + i * stride, sizeof(value));
      return value;
    };
    __m128i v = _mm_cvtsi32_si128(half(0, 0));
    v = _mm_insert_epi16(v, half(0, 1), 1);
    v = _mm_insert_epi16(v, half(0, 2), 2);
    v = _mm_insert_epi16(v, half(0, 3), 3);
    v = _mm_insert_epi16(v, half(1, 0), 4);
    v = _mm_insert_epi16(v, half(1, 1), 5);
    v = _mm_insert_epi16(v, half(1, 2), 6);
    return _mm_insert_epi16(v, half(1, 3), 7);
  }
};

}  // namespace moestro
