// SPDX-License-Identifier: MIT
// A disk that fails while a model runs: retried once, then a clean end of that run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "model/read_spec.h"
#include "native/catalog.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

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
    auto engine = OneSequence::Open(path_, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    engine_ = *std::move(engine);
    ASSERT_TRUE(engine_->Append(SeededTokens(8, 512, 1)).has_value());
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
  std::unique_ptr<OneSequence> engine_;
};

TEST_F(Faults, OneErrorIsRetriedAndChangesNothing) {
  const std::vector<float> expected = Step(5);
  ASSERT_FALSE(expected.empty());
  for (const uint64_t nth : {0U, 1U, 4U}) {
    engine_->Rewind(8);
    Step(9);  // other experts take the slots
    engine_->Rewind(8);
    disk_->SetPlan(FaultScript().ErrorAt(disk_->submitted() + nth, EIO));
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
  disk_->SetPlan(FaultScript().ShortAt(disk_->submitted() + 1, 4096));
  const std::vector<float> again = Step(5);
  ASSERT_EQ(again.size(), expected.size());
  EXPECT_EQ(0, std::memcmp(again.data(), expected.data(), again.size() * sizeof(float)));
}

TEST_F(Faults, ALastingErrorEndsTheStepAndOnlyThat) {
  const std::vector<float> expected = Step(5);
  engine_->Rewind(8);
  Step(9);
  engine_->Rewind(8);
  disk_->SetPlan(FaultScript().ErrorFrom(disk_->submitted() + 2, EIO));
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
  disk_->SetPlan(FaultScript().ErrorFrom(disk_->submitted() + 3, EIO));
  const auto failed = engine_->Append(SeededTokens(40, 512, 2));
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_EQ(engine_->position(), 8U);
  disk_->SetPlan({});
  EXPECT_TRUE(engine_->Append(SeededTokens(40, 512, 2)).has_value());
}

class FaultsWithPrefetch : public Faults {
 protected:
  std::string predictor() const override { return "next-router"; }
};

// Reads ahead of need are under way when the step ends early.
TEST_F(FaultsWithPrefetch, EveryFailingReadEndsTheStepOrNothing) {
  const std::vector<float> expected = Step(5);
  ASSERT_FALSE(expected.empty());
  ASSERT_GT(engine_->stats().decode.prefetches, 0U);
  int failed = 0;
  for (uint64_t nth = 0; nth < 30; ++nth) {
    engine_->Rewind(8);
    Step(9);
    engine_->Rewind(8);
    // From the nth read on all fail: it may have been a prefetch's.
    disk_->SetPlan(FaultScript().ErrorFrom(disk_->submitted() + nth, EIO));
    failed += Step(5).empty();
    disk_->SetPlan({});
    engine_->Rewind(8);
    const std::vector<float> again = Step(5);
    ASSERT_EQ(again.size(), expected.size()) << nth;
    EXPECT_EQ(0, std::memcmp(again.data(), expected.data(), again.size() * sizeof(float))) << nth;
  }
  EXPECT_GT(failed, 5);
}

// A disk of which some places cannot be read.
class BadPlaces final : public BlockReader {
 public:
  // `bad`: offsets in file 0 of single bytes.
  BadPlaces(std::unique_ptr<BlockReader> inner, const std::vector<uint64_t>& bad)
      : inner_(std::move(inner)), bad_(bad) {}
  uint64_t block() const override { return inner_->block(); }
  bool Submit(const BlockRead& read) override {
    const bool is_bad =
        std::ranges::any_of(bad_, [&](uint64_t at) { return at - read.offset < read.to.size(); });
    if (!is_bad) return inner_->Submit(read);
    failed_.push_back(read.tag);
    return true;
  }
  size_t Poll(std::span<BlockDone> out) override {
    return failed_.empty() ? inner_->Poll(out) : Fail(out);
  }
  size_t Wait(std::span<BlockDone> out) override {
    return failed_.empty() ? inner_->Wait(out) : Fail(out);
  }
  std::string description() const override { return inner_->description(); }

 private:
  size_t Fail(std::span<BlockDone> out) {
    out[0] = {.tag = failed_.back(), .error = EIO, .bytes = 0};
    failed_.pop_back();
    return 1;
  }

  std::unique_ptr<BlockReader> inner_;
  const std::vector<uint64_t>& bad_;
  std::vector<uint64_t> failed_;
};

// The middle byte of an expert's gate matrix: reads of its neighbours do not reach so far.
uint64_t MiddleOf(const std::string& path, ExpertKey key) {
  const auto file = GgufFile::Open(path);
  const auto spec = ReadSpec(*file);
  const auto weights = ReadWeights(*file, *spec);
  const Extent extent = MakeCatalog(*weights).copy(key).slices[0];
  EXPECT_GT(extent.length, 4 * 4096U);
  return extent.offset + extent.length / 2;
}

// A chunk of this size reads the next layer's experts ahead, all of them.
TEST(PrefillFaults, WhatOnlyReadAheadWantsMayFail) {
  const TempFolder folder;
  const std::string path =
      WriteTinyModel(folder.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = 3, .ff = 160});
  std::vector<uint64_t> bad;
  EngineOptions options;
  options.threads = 1;
  options.cache = CacheSize{.percent = 100.0};
  options.predictor = "none";
  options.wrap_reader = [&bad](std::unique_ptr<BlockReader> inner) {
    return std::make_unique<BadPlaces>(std::move(inner), bad);
  };
  const std::vector<Token> tokens = SeededTokens(6, 512, 1);
  std::vector<std::set<uint16_t>> needed(3);
  {
    auto engine = OneSequence::Open(path, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    (*engine)->SetRouteObserver(
        [&](const SeenRouting& event) {
          for (const ExpertId e : event.routing.experts) needed[event.layer.value].insert(e.value);
        },
        0);
    ASSERT_TRUE((*engine)->Append(tokens).has_value());
  }
  std::vector<ExpertKey> not_needed;
  for (uint16_t layer = 1; layer < 3; ++layer) {
    for (uint16_t e = 0; e < 8; ++e) {
      if (!needed[layer].contains(e)) not_needed.push_back({.layer = {layer}, .expert = {e}});
    }
  }
  ASSERT_FALSE(not_needed.empty());
  for (const ExpertKey key : not_needed) bad.push_back(MiddleOf(path, key));
  auto engine = OneSequence::Open(path, options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  const auto logits = (*engine)->Append(tokens);
  EXPECT_TRUE(logits.has_value()) << logits.error().message;

  bad.push_back(MiddleOf(path, {.layer = {1}, .expert = {*needed[1].begin()}}));
  engine = OneSequence::Open(path, options);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  EXPECT_FALSE((*engine)->Append(tokens).has_value());  // this one is needed
}

// Wherever loading stops, the engine says why and lets go of its memory only when nothing is under
// way into it.
TEST(LoadFaults, AReadThatFailsEndsTheStart) {
  const TempFolder folder;
  const std::string path =
      WriteTinyModel(folder.path(), {.arch = "qwen3moe", .type = "Q4_0", .layers = 3});
  for (const uint64_t nth : {0U, 3U, 20U}) {
    EngineOptions options;
    options.threads = 2;
    options.wrap_reader = [nth](std::unique_ptr<BlockReader> inner) {
      return std::make_unique<FaultReader>(std::move(inner), FaultScript().ErrorFrom(nth, EIO));
    };
    const auto engine = OneSequence::Open(path, options);
    ASSERT_FALSE(engine.has_value()) << nth;
    EXPECT_EQ(engine.error().code, Errc::kIo);
    EXPECT_NE(engine.error().message.find("(tried twice)"), std::string::npos)
        << engine.error().message;
  }
}

// The file shrinks while it is in use: reads come back short for ever.
TEST_F(Faults, AFileThatShrinksGivesAnErrorNotAHang) {
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) / 4);
  const auto failed = engine_->Append(SeededTokens(40, 512, 3));
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kIo);
}

}  // namespace
}  // namespace moestro
