// SPDX-License-Identifier: MIT
#include "device/kernels/activations.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

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

}  // namespace moestro
