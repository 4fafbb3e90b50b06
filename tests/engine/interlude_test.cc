// SPDX-License-Identifier: MIT
// Texts that get tokens between the layers of a prompt's step: the same bits for all of them, the
// same counts, and the prompt is not there when it fails or stops.
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

constexpr uint32_t kInterludeLayers = 3;
constexpr uint32_t kInterludeVocab = 512;
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
      EXPECT_TRUE(
          Append(*engine_, texts_.back(), SeededTokens(kText + i, kInterludeVocab, 100 + i)));
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
  // A token for each text.
  Status StepTexts() {
    const std::vector<Token> tokens = SeededTokens(kTexts, kInterludeVocab, 1000 + steps_);
    Batch batch;
    for (uint32_t i = 0; i < kTexts; ++i) {
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
  Status StepPrompt(const Interlude& interlude = {}) {
    const Batch batch =
        RowsOf(prompt(), SeededTokens(kPrompt, kInterludeVocab, 7), RowKind::kPrompt, true);
    std::vector<float> logits;
    TRY_STATUS(engine_->Step(
        batch, [&](size_t, std::span<const float> row) { logits.append_range(row); }, interlude));
    of_prompt = std::move(logits);
    return {};
  }
  // Before every layer.
  Interlude Always() {
    return {
        .is_due = [] { return true; }, .run = [this] { return StepTexts(); }, .most_rows = kTexts};
  }
  uint32_t steps() const { return steps_; }

  std::vector<float> of_texts;
  std::vector<float> of_prompt;

 private:
  std::unique_ptr<NativeEngine> engine_;
  std::vector<Sequence> texts_;
  uint32_t steps_ = 0;
};

class InterludeTest : public testing::Test {
 protected:
  std::string Model(const std::string& arch = "qwen3moe", const std::string& type = "Q8_0") const {
    return WriteTinyModel(folder_.path(),
                          {.arch = arch, .type = type, .layers = kInterludeLayers, .experts = 16});
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
  // Without interludes: as many steps of the texts, then the prompt.
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

TEST_F(InterludeTest, PromptAndTextsHaveTheBitsOfEachAlone) {
  // Of gemma4 and nemotron_h_moe a layer ends at the beginning of the next one's graph; of glm-dsa
  // a layer attends to the positions that an earlier layer's indexer chose.
  for (const std::string arch : {"qwen3moe", "olmoe", "qwen2moe", "gemma4", "nemotron_h_moe",
                                 "deepseek2", "deepseek32", "glm-dsa"}) {
    const std::string path = Model(arch);
    for (const double percent : {20.0, 50.0, 100.0}) {
      for (const uint32_t chunk : {8U, 512U}) {
        const EngineOptions options = Options(percent, chunk);
        Beside beside(path, options);
        ASSERT_TRUE(beside.StepPrompt(beside.Always()));
        const uint32_t chunks = chunk == 8 ? kPrompt / 8 : 1;
        // Where mixers and experts are layers of their own, there are twice as many.
        const uint32_t layers = arch == "nemotron_h_moe" ? 2 * kInterludeLayers : kInterludeLayers;
        EXPECT_EQ(beside.steps(), layers * chunks);
        ExpectAsAlone(path, options, beside,
                      arch + ", " + std::to_string(percent) + ", " + std::to_string(chunk));
      }
    }
  }
}

TEST_F(InterludeTest, EachPhaseCountsItsOwn) {
  const std::string path = Model();
  EngineOptions options = Options(100.0, 512);
  options.predictor = "none";
  Beside beside(path, options);
  Beside alone(path, options);
  for (Beside* one : {&beside, &alone}) {
    ASSERT_TRUE(one->engine().Preload());
    one->engine().stats() = {};
  }
  ASSERT_TRUE(beside.StepPrompt(beside.Always()));
  for (uint32_t i = 0; i < kInterludeLayers; ++i) ASSERT_TRUE(alone.StepTexts());
  ASSERT_TRUE(alone.StepPrompt());
  const RunStats& did = beside.engine().stats();
  const RunStats& expected = alone.engine().stats();
  EXPECT_EQ(did.decode.tokens, kInterludeLayers * kTexts);
  EXPECT_EQ(did.prefill.tokens, kPrompt);
  for (const auto phase : {&RunStats::decode, &RunStats::prefill}) {
    EXPECT_EQ((did.*phase).requests, (expected.*phase).requests);
    EXPECT_EQ((did.*phase).row_requests, (expected.*phase).row_requests);
    EXPECT_EQ((did.*phase).hits, (expected.*phase).hits);
    EXPECT_EQ((did.*phase).touched_bytes, (expected.*phase).touched_bytes);
  }
}

// It ends the prompt; texts keep the tokens that they got.
TEST_F(InterludeTest, AStopWithinOneIsForThePrompt) {
  const std::string path = Model();
  const EngineOptions options = Options(50.0, 512);
  for (uint32_t nth = 0; nth < kInterludeLayers; ++nth) {
    Beside beside(path, options);
    const std::vector<uint32_t> before = beside.positions();
    Interlude interlude = beside.Always();
    interlude.run = [&] {
      if (beside.steps() == nth) beside.engine().RequestStop();
      return beside.StepTexts();
    };
    const Status stopped = beside.StepPrompt(interlude);
    ASSERT_FALSE(stopped) << nth;
    EXPECT_EQ(stopped.error().code, Errc::kInterrupted);
    EXPECT_EQ(beside.steps(), nth + 1);
    for (uint32_t i = 0; i < kTexts; ++i) EXPECT_EQ(beside.positions()[i], before[i] + nth + 1);
    EXPECT_EQ(beside.prompt().position(), 0U);
    ASSERT_TRUE(beside.StepPrompt());
    ExpectAsAlone(path, options, beside, "stop " + std::to_string(nth));
  }
}

TEST_F(InterludeTest, AFailedReadWithinOneEndsWhatItsCallerSays) {
  const std::string path = Model();
  for (const bool ends_prompt : {true, false}) {
    FaultReader* disk = nullptr;
    EngineOptions options = Options(20.0, 512);
    options.wrap_reader = [&disk](std::unique_ptr<BlockReader> inner) {
      auto faulty = std::make_unique<FaultReader>(std::move(inner));
      disk = faulty.get();
      return faulty;
    };
    Beside beside(path, options);
    int failed = 0;
    Interlude interlude = beside.Always();
    interlude.run = [&]() -> Status {
      const std::vector<uint32_t> before = beside.positions();
      if (beside.steps() == 1 && failed == 0) disk->SetPlan(FaultPlan().ErrorFrom(0, EIO));
      const Status stepped = beside.StepTexts();
      disk->SetPlan({});
      if (stepped) return {};
      ++failed;
      EXPECT_EQ(stepped.error().code, Errc::kIo);
      EXPECT_EQ(beside.positions(), before);
      return ends_prompt ? stepped : Status();
    };
    const Status status = beside.StepPrompt(interlude);
    EXPECT_EQ(failed, 1);
    EXPECT_EQ(status.has_value(), !ends_prompt);
    if (ends_prompt) {
      EXPECT_EQ(beside.prompt().position(), 0U);
      ASSERT_TRUE(beside.StepPrompt());
    }
    ExpectAsAlone(path, options, beside, ends_prompt ? "ends" : "goes on");
  }
}

TEST_F(InterludeTest, MoreRowsThanWereSaidAreRefused) {
  const std::string path = Model();
  Beside beside(path, Options(50.0, 512));
  Interlude interlude = beside.Always();
  interlude.most_rows = kTexts - 1;
  const Status status = beside.StepPrompt(interlude);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kInvalidRequest);
  EXPECT_EQ(beside.prompt().position(), 0U);
}

// Steps that write are short.
TEST_F(InterludeTest, AStepThatWritesHasNone) {
  const std::string path = Model();
  Beside beside(path, Options(50.0, 512));
  Batch batch = RowsOf(beside.prompt(), SeededTokens(1, kInterludeVocab, 7), RowKind::kDecode);
  ASSERT_TRUE(beside.engine().Step(batch, {}, beside.Always()));
  EXPECT_EQ(beside.steps(), 0U);
}

}  // namespace
}  // namespace moestro
