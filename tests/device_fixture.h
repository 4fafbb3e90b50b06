// SPDX-License-Identifier: MIT
// Tests of engines that compute on whatever device ggml finds beside the CPU; a software Vulkan
// device will do (scripts/setup.sh device).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "core/device_info.h"
#include "engine/device_list.h"
#include "engine/engine.h"
#include "learned/latency_file.h"
#include "tests/support/decode.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moestro {

// As shares of the standard deviation of a row's logits (parity_test.cc derives the first: every
// product of a quantised model rounded otherwise). F16 and F32 weights: activations rounded to 11
// bits instead of 8, or not at all.
inline constexpr double kEightBits = 6e-2;
inline constexpr double kElevenBits = 1e-2;
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

class DeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const DeviceInfo& info : ListDevices()) {
      if (info.kind == DeviceKind::kCpu || info.kind == DeviceKind::kRemote) continue;
      info_ = info;
      name_ = info.name;
    }
    if (!name_.empty()) return;
    // Where there must be one, its absence is a failure.
    if (std::getenv("MOESTRO_TEST_DEVICE") != nullptr) {
      FAIL() << "ggml finds no device; see 'scripts/setup.sh device'";
    }
    GTEST_SKIP() << "ggml finds no device; 'scripts/setup.sh device' installs a software one";
  }

  static TinySpec Spec(const std::string& arch, const std::string& type) {
    return {.arch = arch, .type = type, .layers = 3, .experts = 12, .used = 3, .ff = 256};
  }

  // A model of costs by which copying is dear and the CPU is slow: something is on every lane.
  std::string CostsFile(const LatencyModel& model) {
    const std::string path = folder_.path() / "costs.json";
    const Status written = WriteLatency(path, {.machine = "test", .device = name_, .model = model});
    EXPECT_TRUE(written) << written.error().message;
    return path;
  }
  static LatencyModel MixedCosts() {
    return {.host = {.base = 20e-6, .per_byte = 1e-10, .per_row = 0.5e-10},
            .device = {.base = 5e-6, .per_byte = 0.2e-10, .per_row = 0.1e-10},
            .copy = {.base = 10e-6, .per_byte = 0.5e-10},
            .disk = {.base = 50e-6, .per_byte = 5e-10},
            .launch = 10e-6};
  }

  EngineOptions OnCpu() const {
    EngineOptions options;
    options.ctx = 128;
    options.threads = 2;
    options.sequences = 12;
    options.cache = CacheSize{.percent = 60.0};
    options.device.name = "cpu";
    return options;
  }
  // Experts alone; `slots`: about so many experts of 12 * 3 fit.
  EngineOptions OnDevice(const TinySpec& spec, PlaceMode place, uint64_t slots = 100) {
    EngineOptions options = OnCpu();
    options.device.name = name_;
    options.device.place = place;
    options.device.dense_on_cpu = true;
    options.device.latency_model = CostsFile(MixedCosts());
    const DeviceExperts::Shape shape{.n_embd = spec.embd, .n_ff = spec.ff};
    const auto type = static_cast<uint64_t>(spec.type == "F16" ? 2 : 1);
    options.device.vram_bytes =
        DeviceExperts::WorkBytes(shape) + slots * 3 * type * spec.embd * spec.ff;
    return options;
  }

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
    GivenTokens given{.prompts = {}, .steps = steps, .prompt_seed = 50, .seed = 9};
    for (uint32_t s = 0; s < rows; ++s) given.prompts.push_back(2 + s % 4);
    return DecodeGiven(path, options, given);
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

  TempFolder folder_;
  DeviceInfo info_;
  std::string name_;  // its
};

}  // namespace moestro
