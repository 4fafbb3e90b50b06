// SPDX-License-Identifier: MIT
// A small model with low copies, decoded with cheaper misses.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "decide/layer/lossy_options.h"
#include "engine/engine.h"
#include "tests/support/decode_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {

class LossyTest : public testing::Test {
 protected:
  static TinySpec Spec(const std::string& type) {
    return {.arch = "qwen3moe", .type = type, .layers = 4, .experts = 16, .used = 4};
  }

  LossyTest() {
    model_ = WriteTinyModel(folder_.path(), Spec("Q8_0"));
    low_ = WriteTinyModel(folder_.path(), Spec("Q2_K"));
  }

  EngineOptions Options(const LossyOptions& lossy = {}, bool has_low = true) const {
    EngineOptions options;
    options.ctx = 128;
    options.threads = 2;
    options.cache = CacheSize{.percent = 40.0};
    options.low = has_low ? low_ : "";
    options.low_share = 0.3;
    options.lossy = lossy;
    return options;
  }
  static LossyOptions Everything() {
    return {.t1 = 0.4, .t2 = 0.8, .drop_below = 0.05, .prefer_resident = 0.05, .upgrades = true};
  }

  struct Run {
    std::vector<float> logits;  // [token][n_vocab]
    LossCounts losses;
    uint64_t hits = 0;
  };
  // A prompt, then tokens one by one.
  static Run Decode(const std::string& path, const EngineOptions& options, uint32_t prompt = 9) {
    Decoded run = DecodeGiven(path, options, {.prompts = {prompt}});
    EXPECT_TRUE(run.status) << run.status.error().message;
    EXPECT_EQ(run.stats.decode.tokens, 40U);
    return {std::move(run.logits), run.stats.decode.losses, run.stats.decode.hits};
  }

  TempFolder folder_;
  std::string model_;
  std::string low_;
};

}  // namespace moestro
