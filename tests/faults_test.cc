// SPDX-License-Identifier: MIT
// A disk that fails while a model runs: retried once, then a clean end of that run.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "store/fault_reader.h"
#include "tests/support/prompts.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_model.h"

namespace moestro {
namespace {

// An engine whose slots hold one token's experts, so that every step reads.
class Faults : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .type = "Q4_0", .layers = 3});
    EngineOptions options;
    options.ctx = 128;
    options.threads = 2;
    options.cache = CacheSize{.percent = predictor() == "none" ? 10.0 : 25.0};
    options.predictor = predictor();
    options.prefetch = 2;
    options.wrap_reader = [this](std::unique_ptr<BlockReader> inner) {
      auto faulty = std::make_unique<FaultReader>(std::move(inner));
      disk_ = faulty.get();
      return faulty;
    };
    auto engine = Engine::Open(path_, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    engine_ = *std::move(engine);
    ASSERT_TRUE(engine_->Append(RandomTokens(8, 512, 1)).has_value());
  }

  virtual std::string predictor() const { return "none"; }
  std::vector<float> Step(Token token) {
    const auto logits = engine_->Append({&token, 1});
    if (!logits) return {};
    return {logits->begin(), logits->end()};
  }

  TempFolder folder_;
  std::string path_;
  FaultReader* disk_ = nullptr;  // owned by the engine
  std::unique_ptr<Engine> engine_;
};

TEST_F(Faults, OneErrorIsRetriedAndChangesNothing) {
  const std::vector<float> expected = Step(5);
  ASSERT_FALSE(expected.empty());
  for (const uint64_t nth : {0U, 1U, 4U}) {
    engine_->Rewind(8);
    Step(9);  // other experts take the slots
    engine_->Rewind(8);
    disk_->SetPlan(FaultPlan().ErrorAt(disk_->submitted() + nth, EIO));
    const std::vector<float> again = Step(5);
    ASSERT_EQ(again.size(), expected.size());
    EXPECT_EQ(0, std::memcmp(again.data(), expected.data(), again.size() * sizeof(float)));
  }
}

TEST_F(Faults, AShortReadIsFinishedAndChangesNothing) {
  const std::vector<float> expected = Step(5);
  engine_->Rewind(8);
  Step(9);
  engine_->Rewind(8);
  disk_->SetPlan(FaultPlan().ShortAt(disk_->submitted() + 1, 4096));
  const std::vector<float> again = Step(5);
  ASSERT_EQ(again.size(), expected.size());
  EXPECT_EQ(0, std::memcmp(again.data(), expected.data(), again.size() * sizeof(float)));
}

TEST_F(Faults, ALastingErrorEndsTheStepAndOnlyThat) {
  const std::vector<float> expected = Step(5);
  engine_->Rewind(8);
  Step(9);
  engine_->Rewind(8);
  disk_->SetPlan(FaultPlan().ErrorFrom(disk_->submitted() + 2, EIO));
  const Token token = 5;
  const auto failed = engine_->Append({&token, 1});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_NE(failed.error().message.find(std::filesystem::path(path_).filename().string()),
            std::string::npos)
      << failed.error().message;
  EXPECT_EQ(engine_->position(), 8U);

  disk_->SetPlan({});  // the disk is well again
  const std::vector<float> again = Step(5);
  ASSERT_EQ(again.size(), expected.size());
  EXPECT_EQ(0, std::memcmp(again.data(), expected.data(), again.size() * sizeof(float)));
}

TEST_F(Faults, ALastingErrorInAPrefillLeavesTheSequenceAsItWas) {
  disk_->SetPlan(FaultPlan().ErrorFrom(disk_->submitted() + 3, EIO));
  const auto failed = engine_->Append(RandomTokens(40, 512, 2));
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_EQ(engine_->position(), 8U);
  disk_->SetPlan({});
  EXPECT_TRUE(engine_->Append(RandomTokens(40, 512, 2)).has_value());
}

class FaultsWithPrefetch : public Faults {
 protected:
  std::string predictor() const override { return "stacked"; }
};

// Reads for guesses are under way when the step ends early.
TEST_F(FaultsWithPrefetch, EveryFailingReadEndsTheStepOrNothing) {
  const std::vector<float> expected = Step(5);
  ASSERT_FALSE(expected.empty());
  ASSERT_GT(engine_->stats().decode.guesses, 0U);
  int failed = 0;
  for (uint64_t nth = 0; nth < 30; ++nth) {
    engine_->Rewind(8);
    Step(9);
    engine_->Rewind(8);
    // From the nth read on all fail: it may have been a guess's.
    disk_->SetPlan(FaultPlan().ErrorFrom(disk_->submitted() + nth, EIO));
    failed += Step(5).empty();
    disk_->SetPlan({});
    engine_->Rewind(8);
    const std::vector<float> again = Step(5);
    ASSERT_EQ(again.size(), expected.size()) << nth;
    EXPECT_EQ(0, std::memcmp(again.data(), expected.data(), again.size() * sizeof(float))) << nth;
  }
  EXPECT_GT(failed, 5);
}

// The file shrinks while it is in use: reads come back short for ever.
TEST_F(Faults, AFileThatShrinksGivesAnErrorNotAHang) {
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 4);
  const auto failed = engine_->Append(RandomTokens(40, 512, 3));
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kIo);
}

}  // namespace
}  // namespace moestro
