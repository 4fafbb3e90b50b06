// SPDX-License-Identifier: MIT
// Many sequences in one engine: each gets the tokens that it gets alone, whatever shares its steps.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/format.h"
#include "decide/policy.h"
#include "engine/append.h"
#include "engine/engine.h"
#include "tests/support/prompts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moestro {
namespace {

constexpr uint32_t kContext = 96;
constexpr size_t kSteps = 10;
constexpr uint32_t kMost = 16;  // sequences

struct Setting {
  std::string reader = "auto";
  std::string policy = "next-use";
  std::string predictor = "stacked";
  bool repack = false;
  double percent = 25.0;
};

std::unique_ptr<Engine> Open(const std::string& path, const Setting& setting) {
  EngineOptions options;
  options.ctx = kContext;
  options.sequences = kMost + 1;
  options.threads = 2;
  options.reader = setting.reader;
  options.policy = {.name = setting.policy};
  options.predictor = setting.predictor;
  options.repack = setting.repack;
  options.cache = CacheSize{.percent = setting.percent};
  auto engine = Engine::Open(path, options);
  EXPECT_TRUE(engine.has_value()) << engine.error().message;
  return engine ? *std::move(engine) : nullptr;
}

// Prompts differ in length, so that no two sequences are at the same position.
std::vector<Token> PromptOf(uint32_t i, uint32_t n_vocab) {
  return RandomTokens(4 + i, n_vocab, 100 + i);
}

// What one sequence said: greedy tokens and the logits they were chosen from.
struct Said {
  std::vector<Token> tokens;
  std::vector<float> logits;  // [step][n_vocab]
};

void Note(Said& said, std::span<const float> logits) {
  said.tokens.push_back(Greedy(logits));
  said.logits.insert(said.logits.end(), logits.begin(), logits.end());
}

Said Alone(Engine& engine, uint32_t i) {
  Said said;
  Sequence sequence = engine.NewSequence();
  const auto prompt = Append(engine, sequence, PromptOf(i, engine.spec().n_vocab));
  EXPECT_TRUE(prompt.has_value()) << prompt.error().message;
  Note(said, *prompt);
  for (size_t step = 0; step < kSteps; ++step) {
    const Token last = said.tokens.back();
    const auto logits = Append(engine, sequence, {&last, 1});
    EXPECT_TRUE(logits.has_value()) << logits.error().message;
    Note(said, *logits);
  }
  return said;
}

// All sequences a step at a time, one row each.
std::vector<Said> Together(Engine& engine, uint32_t n) {
  std::vector<Said> said(n);
  std::vector<Sequence> sequences;
  for (uint32_t i = 0; i < n; ++i) {
    sequences.push_back(engine.NewSequence());
    const auto prompt = Append(engine, sequences[i], PromptOf(i, engine.spec().n_vocab));
    EXPECT_TRUE(prompt.has_value()) << prompt.error().message;
    Note(said[i], *prompt);
  }
  for (size_t step = 0; step < kSteps; ++step) {
    Batch batch;
    for (uint32_t i = 0; i < n; ++i) {
      batch.rows.push_back({.sequence = sequences[i].id(),
                            .position = sequences[i].position(),
                            .token = said[i].tokens.back(),
                            .wants_logits = true});
    }
    const Status stepped = engine.Step(
        batch, [&](size_t row, std::span<const float> logits) { Note(said[row], logits); });
    EXPECT_TRUE(stepped.has_value()) << stepped.error().message;
  }
  return said;
}

// Largest difference as a share of the largest logit.
double Difference(const Said& a, const Said& b) {
  double size = 0.0;
  double difference = 0.0;
  for (size_t i = 0; i < a.logits.size(); ++i) {
    size = std::max(size, std::abs(static_cast<double>(a.logits[i])));
    difference = std::max(difference, std::abs(static_cast<double>(a.logits[i]) - b.logits[i]));
  }
  return difference / size;
}

class Sequences : public ::testing::TestWithParam<std::string> {};

// Without ggml's repacked layouts and tiled product a row's result is its own: to the bit.
TEST_P(Sequences, StepsTogetherGiveTheBitsOfStepsAlone) {
  const TempFolder folder;
  const std::string path = WriteTinyModel(
      folder.path(), {.arch = GetParam(), .type = "Q8_0", .layers = 3, .experts = 16});
  std::vector<Setting> settings = {{.reader = "uring"}, {.reader = "pread"}};
  for (const PolicyInfo& policy : KnownPolicies()) {
    settings.push_back({.policy = std::string(policy.name)});
  }
  std::vector<Said> alone;
  const auto reference = Open(path, {.percent = 100.0});
  ASSERT_NE(reference, nullptr);
  for (uint32_t i = 0; i < kMost; ++i) alone.push_back(Alone(*reference, i));
  for (const Setting& setting : settings) {
    const auto engine = Open(path, setting);
    ASSERT_NE(engine, nullptr);
    for (const uint32_t n : {1U, 2U, 5U, kMost}) {
      const std::vector<Said> together = Together(*engine, n);
      for (uint32_t i = 0; i < n; ++i) {
        EXPECT_EQ(together[i].tokens, alone[i].tokens);
        EXPECT_EQ(Difference(together[i], alone[i]), 0.0)
            << setting.reader << " " << setting.policy << ": sequence " << i << " of " << n;
      }
    }
    EXPECT_GT(engine->stats().decode.evictions, 0U);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Sequences, ::testing::ValuesIn(kTinyArchs),
                         [](const auto& arch) { return arch.param; });

TEST(Sequences, RepackedWeightsKeepTheTokens) {
  const TempFolder folder;
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K_M", "IQ4_NL", "MXFP4"}) {
    const std::string path =
        WriteTinyModel(folder.path(), {.arch = "qwen3moe", .type = type, .layers = 3, .ff = 256});
    for (const bool repack : {false, true}) {
      const auto engine = Open(path, {.repack = repack});
      ASSERT_NE(engine, nullptr);
      const std::vector<Said> together = Together(*engine, kMost);
      double largest = 0.0;
      for (uint32_t i = 0; i < kMost; ++i) {
        const Said alone = Alone(*engine, i);
        EXPECT_EQ(together[i].tokens, alone.tokens) << type << " sequence " << i;
        largest = std::max(largest, Difference(together[i], alone));
      }
      std::printf("%s repack %d: %g\n", type, repack, largest);
    }
  }
}

}  // namespace
}  // namespace moestro
