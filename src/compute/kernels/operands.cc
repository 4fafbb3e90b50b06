// SPDX-License-Identifier: MIT
#include "compute/kernels/operands.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "base/result.h"

namespace moestro {
namespace {

// ggml's blocks, byte for byte.
struct BlockQ8_0 {
  ggml_fp16_t scale;
  int8_t values[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

struct BlockQ8_K {
  float scale;
  int8_t values[256];
  int16_t sums[16];
};
static_assert(sizeof(BlockQ8_K) == 292);

// NaN if a value is NaN or infinite, which ggml's functions ignore; else `scale`.
float ScaleOf(float scale, const float* from, int n) {
  uint32_t is_odd = 0;
  for (int i = 0; i < n; ++i) {
    const auto bits = std::bit_cast<uint32_t>(from[i]);
    is_odd |= (bits & 0x7fffffffU) >= 0x7f800000U ? 1U : 0U;  // infinity or NaN
  }
  return is_odd == 0 ? scale : std::numeric_limits<float>::quiet_NaN();
}

}  // namespace

template <int32_t kOffset>
void Quantise32(const ExpertKernel& self, const float* from, std::byte* to, int64_t n) {
  constexpr int64_t kBatch = 16;  // blocks per call of ggml's function: a little stack, few calls
  BlockQ8_0 blocks[kBatch];
  auto* out = reinterpret_cast<Activation32*>(to);
  const int64_t n_blocks = n / 32;
  for (int64_t first = 0; first < n_blocks; first += kBatch) {
    const int64_t count = std::min(kBatch, n_blocks - first);
    self.from_float(from + first * 32, blocks, count * 32);
    for (int64_t b = 0; b < count; ++b, ++out) {
      std::memcpy(out->values, blocks[b].values, sizeof(out->values));
      out->bias = -kOffset * std::accumulate(out->values, out->values + 32, int32_t{0});
      out->scale = ScaleOf(ggml_fp16_to_fp32(blocks[b].scale), from + (first + b) * 32, 32);
    }
  }
}

template void Quantise32<-1>(const ExpertKernel&, const float*, std::byte*, int64_t);
template void Quantise32<0>(const ExpertKernel&, const float*, std::byte*, int64_t);
template void Quantise32<8>(const ExpertKernel&, const float*, std::byte*, int64_t);
template void Quantise32<12>(const ExpertKernel&, const float*, std::byte*, int64_t);
template void Quantise32<16>(const ExpertKernel&, const float*, std::byte*, int64_t);
template void Quantise32<128>(const ExpertKernel&, const float*, std::byte*, int64_t);

void Quantise256(const ExpertKernel& self, const float* from, std::byte* to, int64_t n) {
  auto* out = reinterpret_cast<Activation256*>(to);
  for (int64_t b = 0; b < n / 256; ++b, ++out) {
    BlockQ8_K block;
    self.from_float(from + b * 256, &block, 256);
    std::memcpy(out->values, block.values, sizeof(out->values));
    std::memcpy(out->sums16, block.sums, sizeof(out->sums16));
    for (int i = 0; i < 16; i += 4) std::swap(out->sums16[i + 1], out->sums16[i + 2]);
    for (int i = 0; i < 8; ++i) {
      out->sums32[i] = static_cast<int16_t>(block.sums[2 * i] + block.sums[2 * i + 1]);
    }
    out->scale = ScaleOf(block.scale, from + b * 256, 256);
  }
}

namespace {

constexpr size_t kBlockWeights = 256;

// Sets an index in a block of 256 weights. Bytes of zero mean signs plus and scales zero.
using SetIndex = void (*)(std::byte* block, size_t place, size_t index);

struct GridLayout {
  size_t n_entries;
  size_t entry_bytes;  // weights per index
  size_t block_bytes;
  float scale;  // a half at the block's start, with which to_float gives the grid's integers
  SetIndex set_index;
};

void SetByte(std::byte* block, size_t place, size_t index) {
  block[2 + place] = static_cast<std::byte>(index);
}

// Four indices, then a word of signs.
void SetByteOfEveryOtherWord(std::byte* block, size_t place, size_t index) {
  block[2 + place / 4 * 8 + place % 4] = static_cast<std::byte>(index);
}

// The high bits of indices, 8 / kPerByte of each, lie behind the first 66 bytes.
template <size_t kPerByte>
void SetByteAndHighBits(std::byte* block, size_t place, size_t index) {
  constexpr size_t kBits = 8 / kPerByte;
  SetByte(block, place, index & 0xff);
  block[66 + place / kPerByte] |= static_cast<std::byte>(index >> 8 << place % kPerByte * kBits);
}

void SetHalfword(std::byte* block, size_t place, size_t index) {
  const auto halfword = static_cast<uint16_t>(index);
  std::memcpy(block + 2 + 2 * place, &halfword, sizeof(halfword));
}

struct Grid {
  std::vector<uint32_t> plain;
  std::vector<uint32_t> shifted;
};

Grid ReadGrid(ggml_type type, const GridLayout& layout) {
  CHECK(ggml_type_size(type) == layout.block_bytes);
  std::vector<uint32_t> grid(layout.n_entries * layout.entry_bytes / sizeof(uint32_t));
  auto* to = reinterpret_cast<uint8_t*>(grid.data());
  const size_t per_block = kBlockWeights / layout.entry_bytes;
  const ggml_fp16_t scale = ggml_fp32_to_fp16(layout.scale);
  for (size_t first = 0; first < layout.n_entries; first += per_block) {
    std::vector<std::byte> block(layout.block_bytes);
    std::memcpy(block.data(), &scale, sizeof(scale));
    for (size_t i = 0; i < per_block; ++i) layout.set_index(block.data(), i, first + i);
    float weights[kBlockWeights];
    ggml_get_type_traits(type)->to_float(block.data(), weights, kBlockWeights);
    for (const float weight : weights) *to++ = static_cast<uint8_t>(std::lround(weight));
  }
  Grid both = {grid, grid};
  for (uint32_t& four : both.shifted) four ^= 0x80808080U;
  return both;
}

const Grid* FindGrid(ggml_type type) {
  switch (type) {
    case GGML_TYPE_IQ3_XXS: {
      static const Grid grid = ReadGrid(type, {256, 4, 98, 4.0F, SetByte});
      return &grid;
    }
    case GGML_TYPE_IQ2_XXS: {
      static const Grid grid = ReadGrid(type, {256, 8, 66, 8.0F, SetByteOfEveryOtherWord});
      return &grid;
    }
    case GGML_TYPE_IQ3_S: {
      static const Grid grid = ReadGrid(type, {512, 4, 110, 1.0F, SetByteAndHighBits<8>});
      return &grid;
    }
    case GGML_TYPE_IQ2_XS: {
      static const Grid grid = ReadGrid(type, {512, 8, 74, 8.0F, SetHalfword});
      return &grid;
    }
    case GGML_TYPE_IQ2_S: {
      static const Grid grid = ReadGrid(type, {1024, 8, 82, 8.0F, SetByteAndHighBits<4>});
      return &grid;
    }
    default:
      return nullptr;
  }
}

}  // namespace

const uint32_t* GridOf(ggml_type type, bool is_shifted) {
  const Grid* grid = FindGrid(type);
  if (grid == nullptr) return nullptr;
  return is_shifted ? grid->shifted.data() : grid->plain.data();
}

}  // namespace moestro
