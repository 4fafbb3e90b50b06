// SPDX-License-Identifier: MIT
// Rows of several sequences in one step: of each as many as it has, which libllama cuts into
// several graphs where layers have a state; and of each as many as of the others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/append.h"
#include "load/open_engine.h"
#include "tests/hosted/plain_llama_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

std::vector<Token> RowTokens(size_t n, uint32_t seed) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<Token>((i * 37 + seed * 11) % 256));
  return tokens;
}

class UnevenRows : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { path_ = WriteZooModel(folder_.path(), GetParam()); }
  std::unique_ptr<Engine> Open(uint32_t threads = 1) const {
    EngineOptions options;
    options.engine = "hosted";
    options.cache = CacheSize{.percent = 100.0};
    options.threads = threads;
    options.ctx = 256;
    options.sequences = 4;
    auto engine = OpenEngine(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  TempFolder folder_;
  std::string path_;
};

// A decode row of one text beside a prompt's rows of another.
TEST_P(UnevenRows, ADecodeRowGoesBesideAPrompt) {
  const auto engine = Open();
  Sequence a = engine->NewSequence();
  Sequence b = engine->NewSequence();
  ASSERT_TRUE(AppendAll(*engine, a, RowTokens(6, 1)));
  Batch batch;
  batch.rows.push_back({.sequence = a.id(), .position = 6, .token = 9, .wants_logits = true});
  const std::vector<Token> prompt = RowTokens(5, 2);
  for (uint32_t i = 0; i < prompt.size(); ++i) {
    batch.rows.push_back({.sequence = b.id(),
                          .position = i,
                          .token = prompt[i],
                          .kind = RowKind::kPrompt,
                          .wants_logits = i + 1 == prompt.size()});
  }
  std::vector<std::vector<float>> got(batch.size());
  const Status done = engine->Step(batch, [&](size_t row, std::span<const float> logits) {
    got[row].assign(logits.begin(), logits.end());
  });
  ASSERT_TRUE(done) << done.error().message;
  const auto alone = Open();
  Sequence c = alone->NewSequence();
  Sequence d = alone->NewSequence();
  ASSERT_TRUE(AppendAll(*alone, c, RowTokens(6, 1)));
  const std::vector<Token> one = {9};
  const auto first = Append(*alone, c, one);
  ASSERT_TRUE(first);
  const std::vector<float> expected_a(first->begin(), first->end());
  const auto second = AppendAll(*alone, d, prompt);
  ASSERT_TRUE(second);
  const size_t n = expected_a.size();
  const auto difference = [](std::span<const float> x, std::span<const float> y) {
    float most = 0;
    for (size_t i = 0; i < x.size(); ++i) most = std::max(most, std::abs(x[i] - y[i]));
    return most;
  };
  ASSERT_EQ(got[0].size(), n);
  ASSERT_EQ(got.back().size(), n);
  EXPECT_LT(difference(got[0], expected_a), 1e-3F);
  EXPECT_LT(difference(got.back(), std::span(*second).last(n)), 1e-3F);
}

INSTANTIATE_TEST_SUITE_P(Kinds, UnevenRows,
                         testing::Values("qwen3moe", "qwen3next", "lfm2moe", "nemotron_h_moe",
                                         "kimi-linear", "deepseek2", "mimo2", "llama4"),
                         [](const auto& arch) {
                           std::string name = arch.param;
                           for (char& c : name) c = c == '-' || c == '_' ? 'X' : c;
                           return name;
                         });

// An architecture and libllama's number of a file type (0: F32; 2: Q4_0, whose products are our
// kernels').
struct Beside {
  std::string arch;
  int file_type = 0;
};

// Two texts, alone or in the same steps.
class RowsOfTwoTexts : public testing::TestWithParam<Beside> {
 protected:
  static constexpr uint32_t kTexts = 2;
  static constexpr size_t kSteps = 12;
  // Logits of each row of each text.
  using Texts = std::vector<std::vector<float>>;

  void SetUp() override {
    path_ = WriteZooModel(folder_.path(), GetParam().arch,
                          {.expert_ff = 128, .file_type = GetParam().file_type});
  }
  // The token of a text at a position.
  static Token TokenAt(uint32_t text, size_t position) {
    return static_cast<Token>((position * 41 + text * 97 + 3) % 256);
  }
  // The texts' prompts in one step; then a row of each in a step. `some`: the texts' numbers.
  Texts Ours(std::span<const uint32_t> some, uint32_t prompt, bool repack) const {
    EngineOptions options;
    options.engine = "hosted";
    options.cache = CacheSize{.percent = 100.0};
    options.threads = 1;
    options.ctx = 256;
    options.sequences = kTexts;
    options.repack = repack;
    const auto engine = OpenEngine(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    if (!engine) return {};
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < some.size(); ++i) sequences.push_back((*engine)->NewSequence());
    Texts logits(some.size());
    uint32_t position = 0;
    for (size_t step = 0; step <= kSteps; ++step) {
      const uint32_t end = step == 0 ? prompt : position + 1;
      Batch batch;
      for (size_t i = 0; i < some.size(); ++i) {
        for (uint32_t p = position; p < end; ++p) {
          batch.rows.push_back({.sequence = sequences[i].id(),
                                .position = p,
                                .token = TokenAt(some[i], p),
                                .kind = step == 0 ? RowKind::kPrompt : RowKind::kDecode,
                                .wants_logits = true});
        }
      }
      const Status done = (*engine)->Step(batch, [&](size_t row, std::span<const float> its) {
        logits[row / (end - position)].append_range(its);
      });
      EXPECT_TRUE(done) << done.error().message;
      position = end;
    }
    return logits;
  }
  // The same steps by plain libllama.
  Texts Plain(std::span<const uint32_t> some, uint32_t prompt) const {
    PlainLlama plain(path_, 256, 1);
    Texts logits(some.size());
    uint32_t position = 0;
    for (size_t step = 0; step <= kSteps; ++step) {
      const uint32_t end = step == 0 ? prompt : position + 1;
      std::vector<Token> tokens;
      std::vector<int32_t> sequences;
      for (size_t i = 0; i < some.size(); ++i) {
        for (uint32_t p = position; p < end; ++p) {
          tokens.push_back(TokenAt(some[i], p));
          sequences.push_back(static_cast<int32_t>(i));
        }
      }
      const std::vector<float> rows = plain.Append(tokens, sequences);
      const size_t each = rows.size() / some.size();
      for (size_t i = 0; i < some.size(); ++i) {
        logits[i].append_range(std::span(rows).subspan(i * each, each));
      }
      position = end;
    }
    return logits;
  }

  const std::vector<uint32_t> both_ = {0, 1};
  TempFolder folder_;
  std::string path_;
};

// Up to 63 rows in a graph libllama's attention computes each row by itself.
TEST_P(RowsOfTwoTexts, AreThoseOfEachAlone) {
  for (const uint32_t prompt : {1U, 20U, 31U}) {
    const Texts together = Ours(both_, prompt, true);
    ASSERT_EQ(together.size(), kTexts);
    for (uint32_t text = 0; text < kTexts; ++text) {
      EXPECT_EQ(together[text], Ours({{text}}, prompt, true).front())
          << "text " << text << ", a prompt of " << prompt;
    }
  }
}

// From 64 rows on it takes the keys of all texts in blocks, so that another text beside this one
// changes how sums are rounded: exactly as in plain libllama.
TEST_P(RowsOfTwoTexts, AreThoseOfPlainLibllamaHoweverMany) {
  for (const uint32_t prompt : {31U, 32U, 50U}) {
    EXPECT_EQ(Ours(both_, prompt, false), Plain(both_, prompt)) << "prompts of " << prompt;
    for (uint32_t text = 0; text < kTexts; ++text) {
      EXPECT_EQ(Ours({{text}}, prompt, false), Plain({{text}}, prompt)) << prompt;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RowsOfTwoTexts,
                         testing::Values(Beside{"step35"}, Beside{"step35", 2}, Beside{"mimo2", 2},
                                         Beside{"hy_v4", 2}, Beside{"deepseek4", 2},
                                         Beside{"kimi-k3", 2}, Beside{"glm5-next", 2}),
                         [](const auto& one) {
                           return ZooCaseName(one.param.arch, one.param.file_type);
                         });

}  // namespace
}  // namespace moestro
