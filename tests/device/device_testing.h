// SPDX-License-Identifier: MIT
// Tests of engines that compute on whatever device ggml finds beside the CPU; a software Vulkan
// device will do (scripts/setup.sh device).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "decide/devices/lane_planner.h"
#include "engine/engine_options.h"
#include "tests/support/decode_testing.h"
#include "tests/support/device_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {

// As shares of the standard deviation of a row's logits (parity_test.cc derives the first: every
// product of a quantised model rounded otherwise). F16 and F32 weights: activations rounded to 11
// bits instead of 8, or not at all.
inline constexpr double kEightBits = 6e-2;
inline constexpr double kElevenBits = 1e-2;
// The CPU rounds activations to 8 bits of a block's largest value. A squared ReLU doubles what its
// input is off by, where a gate adds two independent parts: sqrt(2). Of 32 squares of normal values
// the largest is 3.7 typical ones, of 32 normal values 2.1: another 1.8.
inline constexpr double kEightBitsSquared = 2.5 * kEightBits;
// A tie between experts that falls the other way changes its row, and through keys and values all
// rows after it.
inline constexpr double kShareOfRows = 0.9;

inline double Deviation(std::span<const float> values) {
  double mean = 0.0;
  for (const float v : values) mean += static_cast<double>(v);
  mean /= static_cast<double>(values.size());
  double sum = 0.0;
  for (const float v : values)
    sum += (static_cast<double>(v) - mean) * (static_cast<double>(v) - mean);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

// Every so many-th answer is true; from several threads.
inline std::function<bool()> EveryNth(int n) {
  auto count = std::make_shared<std::atomic<int>>(0);
  return [count, n] { return count->fetch_add(1) % n == n - 1; };
}

class DeviceTest : public DeviceFixture {
 protected:
  // The same with costs that are measured or found in `folder`.
  EngineOptions Measuring(const TinySpec& spec, PlaceMode place, uint64_t slots,
                          const std::string& folder = "") {
    EngineOptions options = OnDevice(spec, place, slots);
    options.device.latency_model = "";
    options.device.cost_folder = folder;
    return options;
  }

  using Run = Decoded;
  // A prompt for each of `rows` sequences, then `steps` steps of a row of each.
  static Run Decode(const std::string& path, const EngineOptions& options, uint32_t rows,
                    uint32_t steps = 6) {
    return Decode(NativeEngine::Open(path, options), rows, steps);
  }
  static Run Decode(const Result<std::unique_ptr<NativeEngine>>& engine, uint32_t rows,
                    uint32_t steps = 6) {
    GivenTokens given{.prompts = {}, .steps = steps, .prompt_seed = 50, .seed = 9};
    for (uint32_t s = 0; s < rows; ++s) given.prompts.push_back(2 + s % 4);
    return DecodeGiven(engine, given);
  }

  static void ExpectNear(const Run& a, const Run& b, double tolerance, const std::string& what) {
    ASSERT_TRUE(a.status) << what << ": " << a.status.error().message;
    ASSERT_TRUE(b.status) << what << ": " << b.status.error().message;
    ASSERT_EQ(a.logits.size(), b.logits.size()) << what;
    const size_t rows = a.logits.size() / a.n_vocab;
    size_t near = 0;
    double largest = 0.0;
    for (size_t r = 0; r < rows; ++r) {
      const std::span one(a.logits.data() + r * a.n_vocab, a.n_vocab);
      const std::span other(b.logits.data() + r * a.n_vocab, a.n_vocab);
      double difference = 0.0;
      for (size_t i = 0; i < one.size(); ++i) {
        difference = std::max(difference, std::abs(static_cast<double>(one[i]) - other[i]));
      }
      near += difference <= tolerance * Deviation(other);
      largest = std::max(largest, difference / Deviation(other));
    }
    EXPECT_GE(static_cast<double>(near), kShareOfRows * static_cast<double>(rows))
        << what << ": largest difference " << largest;
  }
};

// A product of types and rows in a step. The cover has each of both.
struct TypeAndRows {
  std::string type;
  uint32_t rows = 1;
};
inline void PrintTo(const TypeAndRows& one, std::ostream* out) {
  *out << one.type << " " << one.rows;
}

inline std::vector<TypeAndRows> TypesAndRowsOfPart(uint32_t part) {
  std::vector<TypeAndRows> cells;
  for (const char* type : {"Q4_0", "Q4_K", "Q6_K", "Q8_0", "F16"}) {
    for (const uint32_t rows : {1U, 4U, 12U}) cells.push_back({type, rows});
  }
  return CellsOfPart(part, cells, [](const TypeAndRows& one) {
    return Keys{one.type, Format("{} rows", one.rows)};
  });
}

inline std::string NameOfTypeAndRows(const ::testing::TestParamInfo<TypeAndRows>& one) {
  return Format("{}_{}", one.param.type, one.param.rows);
}

}  // namespace moestro
