// SPDX-License-Identifier: MIT
// Drafts by the layer of a file that predicts further tokens: texts are those without it, whatever
// the layer says, and its experts, cells and bytes are part of the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <fstream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "model/gguf_file.h"
#include "native/native_engine.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"
#include "text/draft_control.h"
#include "text/drafts.h"
#include "text/text_loop.h"

namespace moestro {
namespace {

constexpr uint32_t kTinyVocab = 512;
constexpr int64_t kWrittenTokens = 70;

EngineOptions PredictOptions(bool predicts, double percent = 40.0) {
  EngineOptions options;
  options.ctx = 160;
  options.threads = 2;
  options.sequences = 4;
  options.cache = CacheSize{.percent = percent};
  options.predicts = predicts;
  return options;
}

class Silent final : public TextReader {
 public:
  bool Tell(TextEvent) override { return true; }
};

struct GreedyText {
  std::vector<Token> tokens;
  DraftStats drafts;
  uint64_t counted = 0;  // decode tokens in the statistics
};

GreedyText WriteGreedily(const std::string& path, const EngineOptions& options) {
  auto engine = NativeEngine::Open(path, options);
  EXPECT_TRUE(engine) << engine.error().message;
  if (!engine) return {};
  const TextOptions asked{.prompt = SeededTokens(20, kTinyVocab, 5),
                          .generate = {.max_tokens = kWrittenTokens}};
  Silent reader;
  // Every step takes as long as any other, so drafts that are right pay.
  const Clock clock = [now = 0.0]() mutable { return now += 1.0; };
  auto text = std::make_unique<RunningText>(
      reader, asked, (*engine)->NewSequence(),
      [](std::span<const float> logits, std::span<const Token>) -> Result<Token> {
        return Greedy(logits);
      },
      nullptr, clock);
  if (options.predicts) {
    text->DraftWith(std::make_unique<PredictingDrafter>(**engine, text->sequence()),
                    std::make_shared<DraftControl>(3), **engine);
  }
  LoneText lone(**engine, std::move(text), clock);
  lone.Write();
  EXPECT_TRUE(lone.text().ending()->has_value());
  const std::span<const Token> answer = lone.text().answer();
  return {.tokens = {answer.begin(), answer.end()},
          .drafts = (*engine)->stats().drafts,
          .counted = (*engine)->stats().decode.tokens};
}

// Overwrites a tensor's values from the `first` on.
void Overwrite(const std::string& path, const std::string& tensor, size_t first,
               std::span<const float> values) {
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file) << file.error().message;
  const TensorInfo* const info = file->Find(tensor);
  ASSERT_NE(info, nullptr) << tensor;
  ASSERT_EQ(info->type, GGML_TYPE_F32);
  std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(static_cast<std::streamoff>(info->extent.offset + first * sizeof(float)));
  out.write(reinterpret_cast<const char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
}

// A tensor's values.
std::vector<float> ValuesOf(const std::string& path, const std::string& tensor) {
  const auto file = GgufFile::Open(path);
  const TensorInfo* const info = file->Find(tensor);
  EXPECT_EQ(info->type, GGML_TYPE_F32);
  std::vector<float> values(info->extent.length / sizeof(float));
  std::ifstream in(path, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(info->extent.offset));
  in.read(reinterpret_cast<char*>(values.data()),
          static_cast<std::streamsize>(info->extent.length));
  return values;
}

class PredictTest : public testing::TestWithParam<const char*> {
 protected:
  std::string WriteModel(TinySpec spec) {
    spec.arch = GetParam();
    spec.layers = 3;
    spec.has_sigmoid = true;
    spec.predicting = 1;
    return WriteTinyModel(folder_.path(), spec);
  }

  TempFolder folder_;
};

TEST_P(PredictTest, TheSameText) {
  const std::string path = WriteModel({});
  const GreedyText plain = WriteGreedily(path, PredictOptions(false));
  ASSERT_EQ(plain.tokens.size(), static_cast<size_t>(kWrittenTokens));
  const GreedyText drafted = WriteGreedily(path, PredictOptions(true));
  EXPECT_EQ(drafted.tokens, plain.tokens);
  EXPECT_EQ(drafted.counted, plain.counted);
  EXPECT_GT(drafted.drafts.proposed, 1U);
}

// A layer that gives back what it takes in of the embedding, before a head whose rows are the
// embeddings, guesses that a token comes again.
TEST_P(PredictTest, GuessesThatAreRightAreTakenAndCounted) {
  const std::string path = WriteModel({.type = "F32"});
  constexpr uint32_t kEmbd = 256;
  Overwrite(path, "output.weight", 0, ValuesOf(path, "token_embd.weight"));
  std::vector<float> joins(size_t{2} * kEmbd * kEmbd, 0.0F);
  for (uint32_t i = 0; i < kEmbd; ++i) joins[size_t{i} * 2 * kEmbd + i] = 100.0F;
  Overwrite(path, "blk.3.nextn.eh_proj.weight", 0, joins);
  auto engine = NativeEngine::Open(path, PredictOptions(true));
  ASSERT_TRUE(engine) << engine.error().message;
  Sequence sequence = (*engine)->NewSequence();
  ASSERT_TRUE(Append(**engine, sequence, std::vector<Token>{7, 8, 9}));
  const auto drafted = (*engine)->Predict(sequence, 77, 1);
  ASSERT_TRUE(drafted) << drafted.error().message;
  EXPECT_EQ(*drafted, std::vector<Token>{77});

  // A text that repeats one token takes such guesses.
  const TextOptions asked{.prompt = {7, 8, 9}, .generate = {.max_tokens = kWrittenTokens}};
  Silent reader;
  const Clock clock = [now = 0.0]() mutable { return now += 1.0; };
  auto text = std::make_unique<RunningText>(
      reader, asked, (*engine)->NewSequence(),
      [](std::span<const float>, std::span<const Token>) -> Result<Token> { return Token{77}; },
      nullptr, clock);
  text->DraftWith(std::make_unique<PredictingDrafter>(**engine, text->sequence()),
                  std::make_shared<DraftControl>(3), **engine);
  LoneText lone(**engine, std::move(text), clock);
  lone.Write();
  const DraftStats& drafts = (*engine)->stats().drafts;
  EXPECT_GT(drafts.proposed, 15U);
  EXPECT_EQ(drafts.accepted, drafts.proposed);
  EXPECT_EQ(lone.text().answer().size(), static_cast<size_t>(kWrittenTokens));
}

TEST_P(PredictTest, TheOtherLayersComputeTheSameBits) {
  const std::string path = WriteModel({});
  const std::vector<Token> prompt = SeededTokens(30, kTinyVocab, 1);
  const std::vector<Token> more = SeededTokens(12, kTinyVocab, 2);
  std::vector<float> bits[2];
  for (const bool predicts : {false, true}) {
    auto engine = NativeEngine::Open(path, PredictOptions(predicts));
    ASSERT_TRUE(engine) << engine.error().message;
    Sequence sequence = (*engine)->NewSequence();
    auto logits = AppendAll(**engine, sequence, prompt);
    ASSERT_TRUE(logits);
    bits[predicts ? 1 : 0] = *logits;
    for (uint32_t i = 0; i < more.size(); ++i) {
      if (predicts) {
        const auto drafted = (*engine)->Predict(sequence, more[i], 1 + i % 3);
        ASSERT_TRUE(drafted) << drafted.error().message;
        EXPECT_EQ(drafted->size(), 1U + i % 3);
        EXPECT_EQ(sequence.position(), prompt.size() + i);
      }
      const auto after = Append(**engine, sequence, {&more[i], 1});
      ASSERT_TRUE(after);
      bits[predicts ? 1 : 0].append_range(*after);
    }
  }
  EXPECT_EQ(bits[0], bits[1]);
}

TEST_P(PredictTest, ThePlanHasTheLayer) {
  const std::string path = WriteModel({});
  const auto plain = NativeEngine::Plan(path, PredictOptions(false));
  const auto predicting = NativeEngine::Plan(path, PredictOptions(true));
  ASSERT_TRUE(plain);
  ASSERT_TRUE(predicting) << predicting.error().message;
  EXPECT_EQ(predicting->n_experts, plain->n_experts + 8);
  EXPECT_GT(predicting->all_experts, plain->all_experts);
  EXPECT_GT(predicting->dense, plain->dense);
  EXPECT_GT(predicting->kv, plain->kv);
  // The process itself takes more or less from one look to the next.
  EXPECT_GT(predicting->smallest - predicting->usual_process,
            plain->smallest - plain->usual_process);
  auto engine = NativeEngine::Open(path, PredictOptions(true));
  ASSERT_TRUE(engine);
  // The model is the same one, for all files beside it.
  EXPECT_EQ((*engine)->id().shape, ModelFile::Open(path)->id.shape);
  EXPECT_TRUE((*engine)->facts().predicts());
}

TEST_P(PredictTest, AFailedReadLeavesTheTextAsItWas) {
  const std::string path = WriteModel({});
  EngineOptions options = PredictOptions(true, 25.0);
  FaultReader* faults = nullptr;
  options.wrap_reader = [&](std::unique_ptr<BlockReader> inner) {
    auto reader = std::make_unique<FaultReader>(std::move(inner));
    faults = reader.get();
    return reader;
  };
  auto engine = NativeEngine::Open(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  Sequence sequence = (*engine)->NewSequence();
  ASSERT_TRUE(Append(**engine, sequence, SeededTokens(12, kTinyVocab, 1)));
  (*engine)->FinishReads();
  faults->SetPlan(FaultScript().ErrorFrom(faults->submitted(), EIO));
  const auto broken = (*engine)->Predict(sequence, 3, 3);
  ASSERT_FALSE(broken);  // no expert of that layer has been read yet
  EXPECT_EQ(broken.error().code, Errc::kIo);
  EXPECT_EQ(sequence.position(), 12U);
  faults->SetPlan({});
  const auto drafted = (*engine)->Predict(sequence, 3, 3);
  ASSERT_TRUE(drafted) << drafted.error().message;
  EXPECT_EQ(drafted->size(), 3U);
  ASSERT_TRUE(Append(**engine, sequence, std::vector<Token>{3}));
}

TEST_P(PredictTest, ForksAndFullContextsDraftWhatTheyCan) {
  const std::string path = WriteModel({});
  EngineOptions options = PredictOptions(true);
  options.ctx = 32;
  auto engine = NativeEngine::Open(path, options);
  ASSERT_TRUE(engine) << engine.error().message;
  Sequence sequence = (*engine)->NewSequence();
  ASSERT_TRUE(Append(**engine, sequence, SeededTokens(30, kTinyVocab, 1)));
  Sequence fork = sequence.Fork();
  EXPECT_EQ((*engine)->Predict(fork, 3, 3)->size(), 2U);  // positions 30 and 31
  EXPECT_EQ((*engine)->Predict(sequence, 3, 3)->size(), 2U);
  Sequence empty = (*engine)->NewSequence();
  EXPECT_EQ((*engine)->Predict(empty, 3, 2)->size(), 2U);
  EXPECT_EQ((*engine)->Predict(empty, 3, 0)->size(), 0U);
  const auto outside = (*engine)->Predict(empty, Token{kTinyVocab}, 1);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, Errc::kInvalidRequest);
}

TEST_P(PredictTest, SavedTextsGoOnWithTheLayerOrSayWhyNot) {
  const std::string path = WriteModel({});
  const std::string saved = folder_.File("text.moe");
  std::vector<float> wanted;
  {
    auto engine = NativeEngine::Open(path, PredictOptions(true));
    ASSERT_TRUE(engine);
    Sequence sequence = (*engine)->NewSequence();
    ASSERT_TRUE(Append(**engine, sequence, SeededTokens(20, kTinyVocab, 1)));
    const Status written = (*engine)->SaveSequence(sequence, "", OutputPath(saved));
    ASSERT_TRUE(written) << written.error().message;
    const auto next = Append(**engine, sequence, std::vector<Token>{5});
    ASSERT_TRUE(next);
    wanted.assign(next->begin(), next->end());
  }
  auto engine = NativeEngine::Open(path, PredictOptions(true));
  ASSERT_TRUE(engine);
  auto restored = (*engine)->RestoreSequence(saved);
  ASSERT_TRUE(restored) << restored.error().message;
  EXPECT_EQ((*engine)->Predict(restored->sequence, 5, 3)->size(), 3U);
  const auto next = Append(**engine, restored->sequence, std::vector<Token>{5});
  ASSERT_TRUE(next);
  EXPECT_TRUE(std::ranges::equal(*next, wanted));

  auto without = NativeEngine::Open(path, PredictOptions(false));
  ASSERT_TRUE(without);
  const auto refused = (*without)->RestoreSequence(saved);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest) << refused.error().message;
}

TEST_P(PredictTest, DamagedWeightsAreASentence) {
  const std::string path = WriteModel({.type = "F32"});
  const float nan[] = {std::numeric_limits<float>::quiet_NaN()};
  Overwrite(path, "blk.3.nextn.hnorm.weight", 3, nan);
  const auto engine = NativeEngine::Open(path, PredictOptions(true));
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, Errc::kInvalidFile);
  EXPECT_TRUE(engine.error().message.contains("nextn.hnorm")) << engine.error().message;
  // Without drafts nobody looks at that layer.
  EXPECT_TRUE(NativeEngine::Open(path, PredictOptions(false)));
}

INSTANTIATE_TEST_SUITE_P(Families, PredictTest,
                         testing::Values("glm4moe", "qwen35moe", "qwen3next", "deepseek2",
                                         "bailingmoe2"),
                         [](const auto& made) { return CaseName(made.param); });

TEST(PredictTest, WhatCannotPredictSaysWhy) {
  const TempFolder folder;
  const auto refusal = [&](const TinySpec& spec,
                           const EngineOptions& options = PredictOptions(true)) {
    const auto engine = NativeEngine::Open(WriteTinyModel(folder.path(), spec), options);
    return engine ? std::string("opened") : engine.error().message;
  };
  EXPECT_TRUE(
      refusal({.arch = "glm4moe"}).contains("no layer of the file predicts further tokens"));
  EXPECT_TRUE(refusal({.arch = "olmoe"}).contains("no layer of the file predicts further tokens"));
  EngineOptions lossy = PredictOptions(true);
  lossy.lossy.drop_below = 0.1;
  EXPECT_TRUE(refusal({.arch = "glm4moe", .layers = 3, .predicting = 1}, lossy)
                  .contains("every expert is computed as it is"));
}

}  // namespace
}  // namespace moestro
