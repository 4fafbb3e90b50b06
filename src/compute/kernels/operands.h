// SPDX-License-Identifier: MIT
// Operands of the kernels beside weights: quantised tokens, and the grids that indices stand for.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>

#include "compute/expert_kernel.h"

namespace moestro {

// Quantised tokens in the layout of our own kernels: ggml's Q8_0 and Q8_K numbers (ggml's own
// from_float makes them, so results agree to rounding), laid out for lanes that each hold one
// matrix row. All rows read one group of four values at a time, so the values stay in their natural
// order, and numbers that do not depend on the row are computed here once.

// 32 values of Q8_0.
struct Activation32 {
  int8_t values[32];
  // -offset * sum of values: kernels multiply weights made unsigned by adding the offset.
  int32_t bias;
  float scale;
};

// 256 values of Q8_K.
struct Activation256 {
  int8_t values[256];
  // Sums of 16 values each. In every four sums the second and third change places: kernels take
  // sums by twos, and bytes 0 and 2 of a register are separated from 1 and 3 more cheaply than 0
  // and 1 from 2 and 3.
  int16_t sums16[16];
  int16_t sums32[8];  // sums of 32 values each
  float scale;
};

// Functions for ExpertKernel::quantise. A block with a NaN or an infinity gets the scale NaN. Only
// the kernels of types with the offset kOffset read -kOffset * sum.
template <int32_t kOffset>
void Quantise32(const ExpertKernel& self, const float* from, std::byte* to, int64_t n);
void Quantise256(const ExpertKernel& self, const float* from, std::byte* to, int64_t n);

extern template void Quantise32<-1>(const ExpertKernel&, const float*, std::byte*, int64_t);
extern template void Quantise32<0>(const ExpertKernel&, const float*, std::byte*, int64_t);
extern template void Quantise32<8>(const ExpertKernel&, const float*, std::byte*, int64_t);
extern template void Quantise32<12>(const ExpertKernel&, const float*, std::byte*, int64_t);
extern template void Quantise32<16>(const ExpertKernel&, const float*, std::byte*, int64_t);
extern template void Quantise32<128>(const ExpertKernel&, const float*, std::byte*, int64_t);

// The tables of types whose weights are stored as indices: an index stands for four or eight
// weights without signs, the nearest points of a grid. ggml does not export these tables, so they
// are read through ggml's to_float, from made-up blocks that hold every index once.

// The table of a type: entry after entry, one byte per weight, in words of four; `is_shifted` adds
// 128 to each byte. nullptr for a type without a grid. Made by the first call for the type; lives
// as long as the program. Any thread may call.
const uint32_t* GridOf(ggml_type type, bool is_shifted);

}  // namespace moestro
