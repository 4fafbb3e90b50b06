// SPDX-License-Identifier: MIT
// Our kernels in libllama's graph: the same bits in every budget, with each reader and any number
// of threads, and the logits of plain libllama but for rounding.
#include <gtest/gtest.h>
#include <llama.h>

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
#include "tests/support/poisoning_reader_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kContext = 256;
// Of the logits' deviation: what parity_test.cc derives for activations of 8 bits.
constexpr double kProductTolerance = 5 * 1.3e-2;

std::vector<Token> Tokens(size_t n) {
  std::vector<Token> tokens;
  for (size_t i = 0; i < n; ++i) tokens.push_back(static_cast<Token>((i * 37 + 33) % 256));
  return tokens;
}

struct KernelKind {
  std::string arch;
  int file_type;
};

class KernelProductsTest : public testing::TestWithParam<KernelKind> {
 protected:
  void SetUp() override {
    path_ = WriteZooModel(folder_.path(), GetParam().arch,
                          {.expert_ff = 128, .file_type = GetParam().file_type});
  }
  // The prompt in one step and three tokens more.
  std::vector<float> Write(double percent, const std::string& reader, uint32_t threads) const {
    EngineOptions options;
    options.engine = "hosted";
    options.cache = CacheSize{.percent = percent};
    options.threads = threads;
    options.ctx = kContext;
    options.reader = reader;
    options.wrap_reader = PoisoningReader::Wrap;
    const auto engine = OpenEngine(path_, options);
    EXPECT_TRUE(engine) << engine.error().message;
    if (!engine) return {};
    Sequence sequence = (*engine)->NewSequence();
    std::vector<float> all;
    for (const Token token : Tokens(8)) {
      const auto row = Append(**engine, sequence, {&token, 1});
      EXPECT_TRUE(row) << row.error().message;
      if (row) all.append_range(*row);
    }
    return all;
  }

  TempFolder folder_;
  std::string path_;
};

TEST_P(KernelProductsTest, GiveTheSameBitsInEveryBudget) {
  const std::vector<float> expected = Write(100.0, "auto", 1);
  EXPECT_EQ(Write(26.0, "auto", 1), expected);
  EXPECT_EQ(Write(40.0, "pread", 1), expected);
}

TEST_P(KernelProductsTest, AreThoseOfPlainLibllamaButForRounding) {
  const std::vector<float> ours = Write(26.0, "auto", 2);
  PlainLlama plain(path_, kContext, 2);
  std::vector<float> theirs;
  for (const Token token : Tokens(8)) theirs.append_range(plain.Append({&token, 1}));
  ASSERT_EQ(ours.size(), theirs.size());
  double mean = 0.0;
  for (const float value : theirs) mean += value;
  mean /= static_cast<double>(theirs.size());
  double variance = 0.0;
  double worst = 0.0;
  for (size_t i = 0; i < theirs.size(); ++i) {
    variance += (theirs[i] - mean) * (theirs[i] - mean);
    worst = std::max(worst, std::abs(static_cast<double>(ours[i]) - theirs[i]));
  }
  EXPECT_LT(worst, kProductTolerance * std::sqrt(variance / static_cast<double>(theirs.size())));
}

INSTANTIATE_TEST_SUITE_P(Kinds, KernelProductsTest,
                         testing::Values(KernelKind{"qwen3moe", LLAMA_FTYPE_MOSTLY_Q4_0},
                                         KernelKind{"qwen3moe", LLAMA_FTYPE_MOSTLY_Q8_0},
                                         KernelKind{"gpt-oss", LLAMA_FTYPE_MOSTLY_Q8_0},
                                         KernelKind{"deepseek2", LLAMA_FTYPE_MOSTLY_Q4_0},
                                         KernelKind{"grovemoe", LLAMA_FTYPE_MOSTLY_Q4_0},
                                         KernelKind{"qwen3next", LLAMA_FTYPE_MOSTLY_Q4_0},
                                         KernelKind{"nemotron_h_moe", LLAMA_FTYPE_MOSTLY_Q8_0},
                                         KernelKind{"llama4", LLAMA_FTYPE_MOSTLY_Q4_0}),
                         [](const auto& kind) {
                           return ZooCaseName(kind.param.arch, kind.param.file_type);
                         });

}  // namespace
}  // namespace moestro
