// SPDX-License-Identifier: MIT
#include "device/made_up_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace moestro {
namespace {

// Products of weights that are no numbers, or all zeros, would compare equal or differ for nothing.
TEST(MadeUpWeights, AreSensibleNumbersInEveryType) {
  constexpr int64_t kWidth = 512;
  constexpr int64_t kRows = 3;
  std::vector<float> values(kWidth * kRows);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  for (int t = 0; t < GGML_TYPE_COUNT; ++t) {
    const auto type = static_cast<ggml_type>(t);
    const ggml_type_traits* const traits = ggml_get_type_traits(type);
    if (!ggml_is_quantized(type) || traits->type_size == 0 || traits->to_float == nullptr) continue;
    if (type == GGML_TYPE_Q8_1 || type == GGML_TYPE_Q8_K) continue;  // of activations
    const size_t row_bytes = ggml_row_size(type, kWidth);
    std::vector<std::byte> rows(kRows * row_bytes + 1, std::byte{0x5a});
    MakeUpWeights(type, values, kWidth, std::span(rows).first(rows.size() - 1));
    EXPECT_EQ(rows.back(), std::byte{0x5a}) << "written behind the rows";
    for (int64_t row = 0; row < kRows; ++row) {
      std::vector<float> read(kWidth);
      traits->to_float(&rows[static_cast<size_t>(row) * row_bytes], read.data(), kWidth);
      EXPECT_TRUE(std::ranges::all_of(read, [](float v) { return std::abs(v) < 10.0F; }))
          << traits->type_name;
      EXPECT_GT(std::ranges::count_if(read, [](float v) { return v != 0.0F; }), kWidth / 4)
          << traits->type_name;
    }
  }
}

}  // namespace
}  // namespace moestro
