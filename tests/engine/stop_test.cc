// SPDX-License-Identifier: MIT
// A request to stop takes effect exactly once, whenever it comes.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "store/block_reader.h"
#include "tests/support/one_sequence_testing.h"
#include "tests/support/patient_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/slow_reader_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kLayers = 3;

class StopTest : public ::testing::Test {
 protected:
  void SetUp() override { Open("olmoe"); }
  void Open(const std::string& arch) {
    const std::string path =
        WriteTinyModel(folder_.path(), {.arch = arch, .type = "Q8_0", .layers = kLayers});
    EngineOptions options;
    options.ctx = 64;
    options.chunk = 8;
    options.threads = 1;
    auto engine = OneSequence::Open(path, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    engine_ = *std::move(engine);
  }
  // The next Append() or AppendAll() is asked to stop when `layer` has been routed.
  void StopIn(uint16_t layer) {
    engine_->SetRouteObserver([this, layer](const SeenRouting& seen) {
      if (seen.layer.value == layer) engine_->RequestStop();
    });
  }
  void StopNoMore() { engine_->SetRouteObserver({}); }
  std::vector<float> Logits(std::span<const Token> tokens) {
    const auto logits = engine_->Append(tokens);
    EXPECT_TRUE(logits) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }
  // The pending stop ends the next step and leaves the sequence alone; the one after it succeeds.
  void ExpectOneStop() {
    const uint32_t position = engine_->position();
    const Token token = 7;
    const auto stopped = engine_->Append({&token, 1});
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, Errc::kInterrupted) << stopped.error().message;
    EXPECT_EQ(engine_->position(), position);
    EXPECT_TRUE(engine_->Append({&token, 1}));
  }

  TempFolder folder_;
  std::unique_ptr<OneSequence> engine_;
};

TEST_F(StopTest, AStopBetweenTwoCallsEndsTheSecond) {
  Logits(SeededTokens(20, 512, 1));
  engine_->RequestStop();
  ExpectOneStop();
}

// No code looks for a stop after the logits are passed on.
TEST_F(StopTest, AStopAfterTheLastLookEndsTheNextCall) {
  const Token token = 3;
  const BatchRow row{.sequence = engine_->sequence().id(), .token = token, .wants_logits = true};
  const auto stop = [this](size_t, std::span<const float>) { engine_->RequestStop(); };
  EXPECT_TRUE(engine_->engine().Step({.rows = {row}}, stop));
  EXPECT_EQ(engine_->position(), 1U);
  ExpectOneStop();
}

TEST_F(StopTest, AStopInAnyLayerEndsTheCall) {
  const std::vector<Token> prompt = SeededTokens(20, 512, 1);
  const std::vector<float> expected = Logits(prompt);
  for (uint16_t layer = 0; layer < kLayers; ++layer) {
    for (const uint32_t kept : {0U, 16U, 19U}) {
      engine_->Rewind(kept);
      StopIn(layer);
      const auto stopped = engine_->Append(std::span(prompt).subspan(kept));
      ASSERT_FALSE(stopped) << layer;
      EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
      EXPECT_EQ(engine_->position(), kept);
      StopNoMore();
      EXPECT_EQ(Logits(std::span(prompt).subspan(kept)), expected) << layer;
    }
  }
}

// Beyond the 24 positions that an indexer chooses.
TEST_F(StopTest, AStopBeforeAnIndexerChoosesEndsTheCall) {
  const std::vector<Token> prompt = SeededTokens(50, 512, 1);
  for (const std::string arch : {"deepseek32", "glm-dsa"}) {
    Open(arch);
    const std::vector<float> expected = Logits(prompt);
    for (uint16_t layer = 0; layer < kLayers - 1; ++layer) {  // the first one has no experts
      engine_->Rewind(40);
      StopIn(layer);
      const auto stopped = engine_->Append(std::span(prompt).subspan(40));
      ASSERT_FALSE(stopped) << arch << ", layer " << layer;
      EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
      EXPECT_EQ(engine_->position(), 40U);
      StopNoMore();
      EXPECT_EQ(Logits(std::span(prompt).subspan(40)), expected) << arch << ", layer " << layer;
    }
  }
}

TEST_F(StopTest, AStopInAnEarlierLayerOrChunkEndsTheCallItself) {
  const std::vector<Token> prompt = SeededTokens(20, 512, 1);
  StopIn(0);
  for (const std::span<const Token> tokens : {std::span(prompt), std::span(prompt).first(1)}) {
    const auto stopped = engine_->Append(tokens);
    ASSERT_FALSE(stopped);
    EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
    EXPECT_EQ(engine_->position(), 0U);
  }
  StopIn(kLayers - 1);  // of the first chunk of three
  EXPECT_FALSE(engine_->Append(prompt));
  StopNoMore();
  EXPECT_TRUE(engine_->Append(prompt));
}

// The last token is done and the text complete: what is measured for the summary neither fails nor
// loses its figure.
TEST_F(StopTest, AStopAfterTheLastTokenLeavesTheMeasurementAlone) {
  Logits(SeededTokens(20, 512, 1));
  engine_->RequestStop();
  const auto seconds = engine_->engine().ProbeComputeSeconds({{&engine_->sequence()}});
  ASSERT_TRUE(seconds) << seconds.error().message;
  EXPECT_TRUE(seconds->has_value());
  const Token token = 3;
  EXPECT_TRUE(engine_->Append({&token, 1})) << "the stop was for the text before";
}

// A prompt that has read ahead a whole layer when it ends early.
class StopWithReads : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = WriteTinyModel(folder_.path(), {.arch = "qwen3moe", .type = "Q8_0", .layers = kLayers});
    expected_ = *Open({}).AppendAll(prompt_);
  }
  OneSequence& Open(const std::function<std::unique_ptr<BlockReader>(std::unique_ptr<BlockReader>)>&
                        wrap_reader) {
    EngineOptions options;
    options.ctx = 64;
    options.threads = 1;
    options.cache = CacheSize{.percent = 100.0};
    options.predictor = "none";
    options.io_depth = 1;
    options.wrap_reader = wrap_reader;
    engine_.reset();
    engine_ = *OneSequence::Open(path_, options);
    return *engine_;
  }
  OneSequence& OpenPatient() {
    return Open([this](std::unique_ptr<BlockReader> inner) {
      return std::make_unique<PatientReader>(std::move(inner), disk_);
    });
  }
  // Late bytes come while the same prompt is computed again.
  void ExpectTheSameText() {
    const auto again = engine_->AppendAll(prompt_);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, expected_);
  }

  TempFolder folder_;
  std::string path_;
  std::vector<Token> prompt_ = SeededTokens(32, 512, 1);
  std::vector<float> expected_;
  PatientDisk disk_;
  std::unique_ptr<OneSequence> engine_;
};

TEST_F(StopWithReads, AStopWaitsForNoRead) {
  OneSequence& engine = OpenPatient();
  uint64_t before = 0;
  engine.SetRouteObserver([&](const SeenRouting& seen) {
    if (seen.layer.value != 1) return;
    EXPECT_GT(disk_.given.size(), 10U) << "the layer's experts are being read ahead";
    before = disk_.waits;
    engine.RequestStop();
  });
  const auto stopped = engine.AppendAll(prompt_);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, Errc::kInterrupted) << stopped.error().message;
  EXPECT_EQ(disk_.waits, before);
  engine.SetRouteObserver({});
  ExpectTheSameText();
}

TEST_F(StopWithReads, AFailedReadEndsThePromptWithoutWaitingForTheOthers) {
  OneSequence& engine = OpenPatient();
  uint64_t before = 0;
  engine.SetRouteObserver([&](const SeenRouting& seen) {
    if (seen.layer.value != 1) return;
    ASSERT_FALSE(disk_.given.empty());
    disk_.fails_at = disk_.given.back().offset;
    before = disk_.waits;
  });
  const auto failed = engine.AppendAll(prompt_);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kIo) << failed.error().message;
  EXPECT_LE(disk_.waits - before, 25U) << "the layer's own reads and a second try, no others";
  disk_.fails_at = UINT64_MAX;
  engine.SetRouteObserver({});
  ExpectTheSameText();
}

// A layer is computed by several graphs then.
TEST(LongPrompt, HasTheSameLogitsInOneChunkAndInMany) {
  const TempFolder folder;
  const std::string path =
      WriteTinyModel(folder.path(), {.arch = "qwen2moe", .type = "Q8_0", .layers = 2});
  const std::vector<Token> prompt = SeededTokens(500, 512, 1);
  std::vector<std::vector<float>> logits;
  for (const uint32_t chunk : {500U, 64U}) {
    EngineOptions options;
    options.ctx = 512;
    options.chunk = chunk;
    options.threads = 1;
    const auto engine = OneSequence::Open(path, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    const auto last = (*engine)->AppendAll(prompt);
    ASSERT_TRUE(last.has_value()) << last.error().message;
    logits.push_back(*last);
  }
  EXPECT_EQ(logits[0], logits[1]);
}

// A disk that has read what it is given at once.
class PromptReader final : public BlockReader {
 public:
  explicit PromptReader(std::unique_ptr<BlockReader> inner) : inner_(std::move(inner)) {}
  uint64_t block() const override { return inner_->block(); }
  bool Submit(const BlockRead& read) override { return inner_->Submit(read); }
  size_t Poll(std::span<BlockDone> out) override { return inner_->Wait(out); }
  size_t Wait(std::span<BlockDone> out) override { return inner_->Wait(out); }
  std::string description() const override { return inner_->description() + ", prompt"; }

 private:
  std::unique_ptr<BlockReader> inner_;
};

// Stops at the nth look of a call, in any code.
class EveryLook : public ::testing::Test {
 protected:
  struct Setting {
    uint32_t threads = 1;
    double percent = 100.0;  // of the experts have slots
    std::function<std::unique_ptr<BlockReader>(std::unique_ptr<BlockReader>)> wrap_reader = {};
  };
  void Open(const Setting& setting) {
    const std::string path =
        WriteTinyModel(folder_.path(), {.arch = "qwen2moe", .type = "Q8_0", .layers = kLayers});
    EngineOptions options;
    options.ctx = 64;
    options.chunk = 8;
    options.threads = setting.threads;
    options.cache = CacheSize{.percent = setting.percent};
    options.wrap_reader = setting.wrap_reader;
    options.at_look = [this] { return ++looks_ == stop_at_; };
    auto engine = OneSequence::Open(path, options);
    ASSERT_TRUE(engine.has_value()) << engine.error().message;
    engine_ = *std::move(engine);
    expected_prompt_ = Next(prompt_, 0);
    expected_token_ = Next({&token_, 1}, 0);
  }
  // Empty: it was stopped.
  std::vector<float> Next(std::span<const Token> tokens, uint64_t stop_at) {
    const uint32_t before = engine_->position();
    looks_ = 0;
    stop_at_ = stop_at;
    const auto logits = engine_->Append(tokens);
    stop_at_ = 0;
    if (logits) return {logits->begin(), logits->end()};
    EXPECT_EQ(logits.error().code, Errc::kInterrupted) << logits.error().message;
    EXPECT_EQ(engine_->position(), before);
    return {};
  }
  // Stops the call at the nth look. False: it had fewer.
  bool StopAt(uint32_t position, std::span<const Token> tokens, uint64_t nth) {
    engine_->Rewind(position);
    const bool was_stopped = Next(tokens, nth).empty();
    engine_->Rewind(position);
    EXPECT_EQ(Next(tokens, 0), position == 0 ? expected_prompt_ : expected_token_) << nth;
    if (position == 0) {
      EXPECT_EQ(Next({&token_, 1}, 0), expected_token_) << nth;
    }
    return was_stopped;
  }
  // `next`: of n, which look comes after it.
  void StopEverywhere(const std::function<uint64_t(uint64_t)>& next) {
    uint64_t stops = 0;
    for (uint64_t n = 1; StopAt(0, prompt_, n) && !HasFailure(); n = next(n)) ++stops;
    EXPECT_GT(stops, 10U);
    stops = 0;
    const auto prompt = static_cast<uint32_t>(prompt_.size());
    for (uint64_t n = 1; StopAt(prompt, {&token_, 1}, n) && !HasFailure(); n = next(n)) ++stops;
    EXPECT_GT(stops, 10U);
  }

  TempFolder folder_;
  std::vector<Token> prompt_ = SeededTokens(11, 512, 1);
  Token token_ = 5;
  std::atomic<uint64_t> looks_{0};
  std::atomic<uint64_t> stop_at_{0};
  std::vector<float> expected_prompt_;
  std::vector<float> expected_token_;
  std::unique_ptr<OneSequence> engine_;
};

// One thread and a disk that never keeps it waiting look at the same places each time.
TEST_F(EveryLook, LeavesTheTextAsItWas) {
  Open({.percent = 25.0, .wrap_reader = [](std::unique_ptr<BlockReader> inner) {
          return std::make_unique<PromptReader>(std::move(inner));
        }});
  StopEverywhere([](uint64_t n) { return n + 1; });
}

// Reads are under way when the call ends and land in the next ones.
TEST_F(EveryLook, LeavesTheTextAsItWasWithASlowDisk) {
  for (const uint32_t threads : {1U, 2U}) {
    for (const double percent : {25.0, 100.0}) {
      Open({.threads = threads,
            .percent = percent,
            .wrap_reader = [](std::unique_ptr<BlockReader> inner) {
              return std::make_unique<SlowReader>(std::move(inner), 3);
            }});
      StopEverywhere([](uint64_t n) { return n + 1 + n / 8; });
    }
  }
}

}  // namespace
}  // namespace moestro
