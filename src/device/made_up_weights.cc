// SPDX-License-Identifier: MIT
#include "device/made_up_weights.h"

#include <cstring>
#include <random>
#include <vector>

namespace moestro {
namespace {

// Any bytes are weights of such a type as long as the scale is a sensible number: a half at the
// start of a block, or in IQ1_M the top nibbles of the last four words.
void FillWithRandomBlocks(ggml_type type, std::span<std::byte> rows) {
  std::mt19937 random(23);
  for (std::byte& byte : rows) byte = static_cast<std::byte>(random());
  const size_t block = ggml_type_size(type);
  for (size_t at = 0; at + block <= rows.size(); at += block) {
    if (type == GGML_TYPE_IQ1_M) {
      std::byte& top = rows[at + block - 1];
      top = (top & std::byte{0x0f}) | std::byte{0x20};
    } else {
      const ggml_fp16_t scale = ggml_fp32_to_fp16(0.01F);
      std::memcpy(&rows[at], &scale, sizeof(scale));
    }
  }
}

}  // namespace

bool IsSlowToQuantise(ggml_type type) {
  return type == GGML_TYPE_IQ1_S || type == GGML_TYPE_IQ1_M || type == GGML_TYPE_IQ2_XXS ||
         type == GGML_TYPE_IQ2_XS || type == GGML_TYPE_IQ2_S;
}

void MakeUpWeights(ggml_type type, std::span<const float> values, int64_t n_in,
                   std::span<std::byte> rows) {
  if (IsSlowToQuantise(type)) return FillWithRandomBlocks(type, rows);
  const std::vector<float> equal(static_cast<size_t>(n_in), 1.0F);
  ggml_quantize_chunk(type, values.data(), rows.data(), 0,
                      static_cast<int64_t>(values.size()) / n_in, n_in, equal.data());
}

}  // namespace moestro
