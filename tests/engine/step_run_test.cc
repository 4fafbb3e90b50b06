// SPDX-License-Identifier: MIT
// Texts that get tokens between the pieces of a prompt's step: the same bits for all of them, the
// same counts, and a prompt's tokens are gone when the prompt fails, stops or is dropped.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "native/native_engine.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kRunLayers = 3;
constexpr uint32_t kRunVocab = 512;
constexpr uint32_t kTexts = 3;
constexpr uint32_t kPrompt = 40;
constexpr uint32_t kText = 30;  // of the first text: an indexer chooses among its positions

// Texts that are being written, and a prompt beside them.
class Beside {
 public:
  Beside(const std::string& path, const EngineOptions& options) {
    auto engine = NativeEngine::Open(path, options);
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = *std::move(engine);
    for (uint32_t i = 0; i < kTexts; ++i) {
      texts_.push_back(engine_->NewSequence());
      EXPECT_TRUE(Append(*engine_, texts_.back(), SeededTokens(kText + i, kRunVocab, 100 + i)));
    }
    texts_.push_back(engine_->NewSequence());  // the prompt's
    engine_->stats() = {};
  }

  NativeEngine& engine() { return *engine_; }
  Sequence& prompt() { return texts_.back(); }
  std::vector<uint32_t> positions() const {
    std::vector<uint32_t> all;
    for (const Sequence& s : texts_) all.push_back(s.position());
    return all;
  }
  // A token for each of the first `n` texts.
  Status StepTexts(uint32_t n = kTexts) {
    const std::vector<Token> tokens = SeededTokens(kTexts, kRunVocab, 1000 + steps_);
    Batch batch;
    for (uint32_t i = 0; i < n; ++i) {
      batch.rows.push_back({.sequence = texts_[i].id(),
                            .position = texts_[i].position(),
                            .token = tokens[i],
                            .wants_logits = true});
    }
    TRY_STATUS(engine_->Step(
        batch, [this](size_t, std::span<const float> logits) { of_texts.append_range(logits); }));
    ++steps_;
    return {};
  }
  Result<std::unique_ptr<StepRun>> BeginPrompt() {
    of_prompt.clear();
    return engine_->Begin(
        RowsOf(prompt(), SeededTokens(kPrompt, kRunVocab, 7), RowKind::kPrompt, true),
        [this](size_t, std::span<const float> row) { of_prompt.append_range(row); });
  }
  Status StepPrompt() {
    of_prompt.clear();
    return engine_->Step(
        RowsOf(prompt(), SeededTokens(kPrompt, kRunVocab, 7), RowKind::kPrompt, true),
        [this](size_t, std::span<const float> row) { of_prompt.append_range(row); });
  }
  // A token for each text before every piece.
  Status StepAll() {
    TRY(const std::unique_ptr<StepRun> run, BeginPrompt());
    for (bool has_ended = false; !has_ended;) {
      TRY_STATUS(StepTexts());
      TRY(has_ended, run->Advance());
    }
    return {};
  }
  uint32_t steps() const { return steps_; }

  std::vector<float> of_texts;
  std::vector<float> of_prompt;

 private:
  std::unique_ptr<NativeEngine> engine_;
  std::vector<Sequence> texts_;
  uint32_t steps_ = 0;
};

class StepRunTest : public testing::Test {
 protected:
  std::string Model(const std::string& arch = "qwen3moe", const std::string& type = "Q8_0") const {
    return WriteTinyModel(folder_.path(),
                          {.arch = arch, .type = type, .layers = kRunLayers, .experts = 16});
  }
  static EngineOptions Options(double percent, uint32_t chunk) {
    EngineOptions options;
    options.ctx = 96;
    options.sequences = kTexts + 1;
    options.threads = 2;
    options.cache = CacheSize{.percent = percent};
    options.chunk = chunk;
    return options;
  }
  // As many steps of the texts, then the prompt in one piece.
  static void ExpectAsAlone(const std::string& path, const EngineOptions& options,
                            const Beside& beside, const std::string& what) {
    Beside alone(path, options);
    while (alone.steps() < beside.steps()) ASSERT_TRUE(alone.StepTexts());
    ASSERT_TRUE(alone.StepPrompt());
    EXPECT_EQ(beside.of_texts, alone.of_texts) << what;
    EXPECT_EQ(beside.of_prompt, alone.of_prompt) << what;
  }

  TempFolder folder_;
};

TEST_F(StepRunTest, PromptAndTextsHaveTheBitsOfEachAlone) {
  // Of gemma4 and nemotron_h_moe a layer ends at the beginning of the next one's graph, and of
  // glm5-next, qwen4exp and deepseek4 with several streams; of glm-dsa a layer attends to the
  // positions that an earlier layer's indexer chose; of minimax-m3 each group of heads has a choice
  // of its own.
  for (const std::string arch :
       {"qwen3moe", "olmoe", "qwen2moe", "gemma4", "nemotron_h_moe", "deepseek2", "deepseek32",
        "glm-dsa", "glm5-next", "qwen4exp", "minimax-m3", "deepseek4"}) {
    const std::string path = Model(arch);
    for (const double percent : {20.0, 50.0, 100.0}) {
      for (const uint32_t chunk : {8U, 512U}) {
        const EngineOptions options = Options(percent, chunk);
        Beside beside(path, options);
        ASSERT_TRUE(beside.StepAll());
        const uint32_t chunks = chunk == 8 ? kPrompt / 8 : 1;
        // Where mixers and experts are layers of their own, there are twice as many.
        const uint32_t layers = arch == "nemotron_h_moe" ? 2 * kRunLayers : kRunLayers;
        EXPECT_EQ(beside.steps(), layers * chunks);
        ExpectAsAlone(path, options, beside,
                      arch + ", " + std::to_string(percent) + ", " + std::to_string(chunk));
      }
    }
  }
}

TEST_F(StepRunTest, EachPhaseCountsItsOwn) {
  const std::string path = Model();
  EngineOptions options = Options(100.0, 512);
  options.predictor = "none";
  Beside beside(path, options);
  Beside alone(path, options);
  for (Beside* one : {&beside, &alone}) {
    ASSERT_TRUE(one->engine().Preload());
    one->engine().stats() = {};
  }
  ASSERT_TRUE(beside.StepAll());
  for (uint32_t i = 0; i < kRunLayers; ++i) ASSERT_TRUE(alone.StepTexts());
  ASSERT_TRUE(alone.StepPrompt());
  const RunStats& did = beside.engine().stats();
  const RunStats& expected = alone.engine().stats();
  EXPECT_EQ(did.decode.tokens, kRunLayers * kTexts);
  EXPECT_EQ(did.prefill.tokens, kPrompt);
  for (const auto phase : {&RunStats::decode, &RunStats::prefill}) {
    EXPECT_EQ((did.*phase).requests, (expected.*phase).requests);
    EXPECT_EQ((did.*phase).row_requests, (expected.*phase).row_requests);
    EXPECT_EQ((did.*phase).hits, (expected.*phase).hits);
    EXPECT_EQ((did.*phase).touched_bytes, (expected.*phase).touched_bytes);
  }
}

TEST_F(StepRunTest, TextsThatComeOneByOneSpareThePromptsRows) {
  for (const std::string arch : {"qwen3moe", "gemma4", "nemotron_h_moe", "glm-dsa", "glm5-next",
                                 "qwen4exp", "minimax-m3", "deepseek4"}) {
    const std::string path = Model(arch);
    const EngineOptions options = Options(50.0, 512);
    Beside beside(path, options);
    Beside alone(path, options);
    const auto run = beside.BeginPrompt();
    ASSERT_TRUE(run) << run.error().message;
    for (bool has_ended = false; !has_ended;) {
      for (const uint32_t n : {1U, 3U, 2U}) {
        ASSERT_TRUE(beside.StepTexts(n));
        ASSERT_TRUE(alone.StepTexts(n));
      }
      const Result<bool> advanced = (*run)->Advance();
      ASSERT_TRUE(advanced) << advanced.error().message;
      has_ended = *advanced;
    }
    ASSERT_TRUE(alone.StepPrompt());
    EXPECT_EQ(beside.of_texts, alone.of_texts) << arch;
    EXPECT_EQ(beside.of_prompt, alone.of_prompt) << arch;
  }
}

TEST_F(StepRunTest, AStopEndsTheStepOrPieceThatMeetsIt) {
  const std::string path = Model();
  const EngineOptions options = Options(50.0, 512);
  for (uint32_t nth = 0; nth < kRunLayers; ++nth) {
    Beside beside(path, options);
    const auto run = beside.BeginPrompt();
    ASSERT_TRUE(run) << run.error().message;
    for (uint32_t i = 0; i < nth; ++i) {
      ASSERT_TRUE(beside.StepTexts());
      ASSERT_EQ((*run)->Advance(), false);
    }
    const std::vector<uint32_t> before = beside.positions();
    beside.engine().RequestStop();
    const Status text = beside.StepTexts();
    ASSERT_FALSE(text);
    EXPECT_EQ(text.error().code, Errc::kInterrupted);
    EXPECT_EQ(beside.positions(), before);
    ASSERT_TRUE(beside.StepTexts());
    beside.engine().RequestStop();
    const Result<bool> stopped = (*run)->Advance();
    ASSERT_FALSE(stopped) << nth;
    EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
    EXPECT_EQ(beside.prompt().position(), 0U);
    ASSERT_TRUE(beside.StepPrompt());
    ExpectAsAlone(path, options, beside, "stop " + std::to_string(nth));
  }
}

TEST_F(StepRunTest, ADroppedRunLeavesNothing) {
  const std::string path = Model();
  const EngineOptions options = Options(20.0, 8);
  for (const uint32_t pieces : {0U, 1U, kRunLayers, kRunLayers + 1}) {
    Beside beside(path, options);
    {
      const auto run = beside.BeginPrompt();
      ASSERT_TRUE(run) << run.error().message;
      for (uint32_t i = 0; i < pieces; ++i) ASSERT_EQ((*run)->Advance(), false);
      ASSERT_TRUE(beside.StepTexts());
    }
    EXPECT_EQ(beside.prompt().position(), 0U);
    EXPECT_EQ(beside.engine().stats().prefill.tokens, 0U);
    ASSERT_TRUE(beside.StepPrompt());
    ExpectAsAlone(path, options, beside, "dropped after " + std::to_string(pieces));
  }
}

TEST_F(StepRunTest, OneRunAtATime) {
  Beside beside(Model(), Options(50.0, 512));
  const auto run = beside.BeginPrompt();
  ASSERT_TRUE(run) << run.error().message;
  const auto second = beside.BeginPrompt();
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::kInvalidRequest);
  ASSERT_TRUE((*run)->Advance());
}

TEST_F(StepRunTest, AFailedReadOfATextLeavesThePrompt) {
  const std::string path = Model();
  for (const bool drops_prompt : {true, false}) {
    FaultReader* disk = nullptr;
    EngineOptions options = Options(20.0, 512);
    options.wrap_reader = [&disk](std::unique_ptr<BlockReader> inner) {
      auto faulty = std::make_unique<FaultReader>(std::move(inner));
      disk = faulty.get();
      return faulty;
    };
    Beside beside(path, options);
    auto run = beside.BeginPrompt();
    ASSERT_TRUE(run) << run.error().message;
    ASSERT_TRUE(beside.StepTexts());
    ASSERT_EQ((*run)->Advance(), false);
    const std::vector<uint32_t> before = beside.positions();
    disk->SetPlan(FaultScript().ErrorFrom(0, EIO));
    const Status failed = beside.StepTexts();
    disk->SetPlan({});
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().code, Errc::kIo);
    EXPECT_EQ(beside.positions(), before);
    if (drops_prompt) {
      run->reset();
      EXPECT_EQ(beside.prompt().position(), 0U);
      ASSERT_TRUE(beside.StepPrompt());
    } else {
      ASSERT_EQ((*run)->Advance(), false);
      ASSERT_EQ((*run)->Advance(), true);
    }
    ExpectAsAlone(path, options, beside, drops_prompt ? "dropped" : "goes on");
  }
}

// Steps that write are short.
TEST_F(StepRunTest, AStepThatWritesIsOnePiece) {
  Beside beside(Model(), Options(50.0, 512));
  const auto run = beside.engine().Begin(
      RowsOf(beside.prompt(), SeededTokens(1, kRunVocab, 7), RowKind::kDecode), {});
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_TRUE(beside.StepTexts());
  EXPECT_EQ((*run)->Advance(), true);
  EXPECT_EQ(beside.prompt().position(), 1U);
}

}  // namespace
}  // namespace moestro
