// SPDX-License-Identifier: MIT
// The simulator decides as the hosted engine does: the same requests get the same answers and evict
// the same experts, in the same order.
#include <gtest/gtest.h>

#include <algorithm>
#include <ranges>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "hosted/hosted_engine.h"
#include "tests/engine/agreement_testing.h"
#include "tests/support/llama_zoo_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

// libllama's number of the file type Q4_0, which our kernels multiply; 0: libllama does.
constexpr int kQ4Type = 2;

struct Kind {
  std::string arch;
  int file_type;
};

class HostedAgreement : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    path_ = WriteZooModel(folder_.path(), GetParam().arch,
                          {.experts = 16, .expert_ff = 128, .file_type = GetParam().file_type});
  }
  Recorded Open(const std::string& policy, const std::string& predictor, uint32_t depth) const {
    EngineOptions options = OptionsFor(policy, predictor, 40.0);
    options.prefetch = 2;
    auto file = GgufFile::Open(path_);
    EXPECT_TRUE(file) << file.error().message;
    auto engine = HostedEngine::Open(*std::move(file), options);
    EXPECT_TRUE(engine) << engine.error().message;
    HostedEngine* const hosted = engine->get();
    return {*std::move(engine), [hosted] { hosted->FinishReads(); }, depth};
  }
  TempFolder folder_;
  std::string path_;
};

TEST_P(HostedAgreement, SequencesInOneStepWithPrefetch) {
  for (const char* predictor : {"none", "next-router", "frequency"}) {
    Recorded recorded = Open("next-use", predictor, 2);
    Engine& engine = recorded.any_engine();
    ASSERT_EQ(engine.facts().max_look_ahead, 2U);
    DecodeTogether(engine, 3);
    if (HasFailure()) return;
    ExpectSame(recorded, "next-use", predictor, engine.memory().n_slots);
    if (HasFailure()) return;
    EXPECT_GT(engine.stats().decode.evictions, 100U);
    EXPECT_EQ(engine.stats().decode.prefetches > 0, std::string(predictor) != "none") << predictor;
  }
}

// A group of experts has one helper there, which a row may name for each of them.
TEST(HostedRepeats, ARowMayNameAnExpertTwice) {
  const TempFolder folder;
  auto file = GgufFile::Open(WriteZooModel(folder.path(), "grovemoe", {.experts = 16}));
  ASSERT_TRUE(file) << file.error().message;
  auto engine = HostedEngine::Open(*std::move(file), OptionsFor("lru", "none", 40.0));
  ASSERT_TRUE(engine) << engine.error().message;
  HostedEngine* const hosted = engine->get();
  Recorded recorded(*std::move(engine), [hosted] { hosted->FinishReads(); }, 0);
  DecodeTogether(*hosted, 3);
  if (HasFailure()) return;
  ASSERT_GT(recorded.trace().tokens(), 40U);
  const MoeShape& shape = recorded.trace().info().shape();
  size_t twice = 0;
  for (size_t t = 0; t < recorded.trace().tokens(); ++t) {
    for (size_t l = 0; l < shape.n_layer; ++l) {
      std::vector<ExpertId> row(std::from_range, recorded.trace().experts(t, l));
      std::ranges::sort(row);
      twice += std::ranges::adjacent_find(row) != row.end() ? 1 : 0;
    }
  }
  EXPECT_GT(twice, 0U);
  ExpectSame(recorded, {.pool_slots = SlotsOf(*hosted), .policy = {.name = "lru"}});
}

TEST_P(HostedAgreement, PromptsBetweenDecodeSteps) {
  Recorded recorded = Open("next-use", "next-router", 2);
  Engine& engine = recorded.any_engine();
  const uint32_t n_vocab = engine.facts().n_vocab;
  for (uint32_t s = 0; s < 3; ++s) {
    recorded.BeginSequence();
    Sequence sequence = engine.NewSequence();
    ASSERT_TRUE(Append(engine, sequence, SeededTokens(9, n_vocab, s)));
    for (const Token t : SeededTokens(15, n_vocab, s + 9)) {
      ASSERT_TRUE(Append(engine, sequence, {&t, 1}));
    }
  }
  ExpectSame(recorded, "next-use", "next-router", engine.memory().n_slots);
}

INSTANTIATE_TEST_SUITE_P(Kinds, HostedAgreement,
                         testing::Values(Kind{"qwen3moe", 0}, Kind{"qwen3moe", kQ4Type},
                                         Kind{"qwen3next", kQ4Type}),
                         [](const auto& about) {
                           return about.param.arch + std::to_string(about.param.file_type);
                         });

}  // namespace
}  // namespace moestro
