// SPDX-License-Identifier: MIT
// A table of n-grams that stays on the disk: what is read of it, when it fails, and that the text
// is the same whatever memory holds.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "model/model_file.h"
#include "native/native_engine.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kTableVocab = 512;
constexpr uint32_t kNamed = 4;  // rows that a token names

class NgramTable : public testing::Test {
 protected:
  NgramTable()
      : path_(WriteTinyModel(
            folder_.path(),
            {.arch = "qwen4exp", .type = "Q8_0", .layers = 4, .vocab = kTableVocab})) {}

  std::unique_ptr<NativeEngine> Open(EngineOptions options = {}) {
    return OpenFile(path_, std::move(options));
  }
  std::unique_ptr<NativeEngine> OpenFile(const std::string& path, EngineOptions options) {
    options.ctx = 256;
    options.threads = 2;
    // The table's reader is wrapped last.
    options.wrap_reader = [this](std::unique_ptr<BlockReader> inner) {
      auto faulty = std::make_unique<FaultReader>(std::move(inner));
      disk_ = faulty.get();
      return faulty;
    };
    auto engine = NativeEngine::Open(path, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? *std::move(engine) : nullptr;
  }
  static std::vector<float> Logits(NativeEngine& engine, Sequence& sequence,
                                   std::span<const Token> tokens) {
    const auto logits = Append(engine, sequence, tokens);
    EXPECT_TRUE(logits) << logits.error().message;
    return logits ? std::vector<float>(logits->begin(), logits->end()) : std::vector<float>();
  }

  TempFolder folder_;
  std::string path_;
  FaultReader* disk_ = nullptr;  // owned by the engine
  const std::vector<Token> text_ = SeededTokens(120, kTableVocab, 3);
};

TEST_F(NgramTable, ItsBytesAreNoneOfMemorysAndAreCountedApart) {
  const auto model = ModelFile::Open(path_);
  ASSERT_TRUE(model) << model.error().message;
  const TensorInfo* table = model->weights.ngram_table;
  ASSERT_NE(table, nullptr);
  for (const TensorInfo* dense : model->weights.dense_tensors()) EXPECT_NE(dense, table);
  const auto engine = Open();
  EXPECT_LT(engine->facts().memory.dense, model->weights.dense_bytes() + 4096);
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, text_);
  const PhaseStats prompt = engine->stats().prefill;
  EXPECT_EQ(prompt.table.rows, text_.size() * kNamed);
  EXPECT_GT(prompt.table.reads, 0U);
  EXPECT_EQ(prompt.table.bytes_read % 4096, 0U);
  EXPECT_LE(prompt.table.bytes_read, table->extent.length + prompt.table.reads * 4096);
  // The same n-grams are in memory by now.
  Sequence again = engine->NewSequence();
  Logits(*engine, again, text_);
  const TableCounts& counts = engine->stats().prefill.table;
  EXPECT_EQ(counts.rows, 2 * text_.size() * kNamed);
  EXPECT_EQ(counts.reads, prompt.table.reads);
}

TEST_F(NgramTable, AnErrorOfTheDiskEndsTheStepAndOnlyThat) {
  const std::vector<float> expected = [&] {
    const auto engine = Open();
    Sequence sequence = engine->NewSequence();
    return Logits(*engine, sequence, text_);
  }();
  const auto engine = Open();
  Sequence sequence = engine->NewSequence();
  Logits(*engine, sequence, std::span(text_).first(50));
  disk_->SetPlan(FaultScript().ErrorFrom(disk_->submitted(), EIO));
  const auto failed = Append(*engine, sequence, std::span(text_).subspan(50));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_EQ(sequence.position(), 50U);
  disk_->SetPlan({});  // the disk is well again
  EXPECT_EQ(Logits(*engine, sequence, std::span(text_).subspan(50)), expected);
}

TEST_F(NgramTable, APromptsErrorIsNoneOfATextBetweenItsLayers) {
  const std::string path = WriteTinyModel(
      folder_.path(),
      {.arch = "qwen4exp", .type = "Q8_0", .layers = 4, .vocab = kTableVocab, .ngram_layer = 2});
  const auto engine = OpenFile(path, {.sequences = 3});
  std::vector<Token> written(text_.begin(), text_.begin() + 30);
  Sequence other = engine->NewSequence();
  Logits(*engine, other, written);
  written.push_back(7);
  Sequence same = engine->NewSequence();
  const std::vector<float> expected = Logits(*engine, same, written);  // its rows are in memory now
  Sequence sequence = engine->NewSequence();
  disk_->SetPlan(FaultScript().ErrorFrom(disk_->submitted(), EIO));
  auto run = engine->Begin(RowsOf(sequence, text_, RowKind::kPrompt), {});
  ASSERT_TRUE(run) << run.error().message;
  ASSERT_TRUE((*run)->Advance()) << "the first layer needs no row of the table";
  EXPECT_EQ(Logits(*engine, other, {&written.back(), 1}), expected);
  disk_->SetPlan({});
  const auto ended = (*run)->Advance();
  ASSERT_FALSE(ended) << "the prompt's rows were read again";
  EXPECT_EQ(ended.error().code, Errc::kIo);
}

// A decode step between two layers of a prompt takes the places of the prompt's rows.
TEST_F(NgramTable, StepsBetweenAPromptsLayersLeaveItsRows) {
  const auto engine = Open({.sequences = 3});
  Sequence other = engine->NewSequence();
  Logits(*engine, other, std::span(text_).first(30));
  Sequence sequence = engine->NewSequence();
  std::vector<float> logits;
  Batch batch = RowsOf(sequence, text_, RowKind::kPrompt);
  batch.rows.back().wants_logits = true;
  auto run = engine->Begin(std::move(batch), [&](size_t, std::span<const float> row) {
    logits.assign(row.begin(), row.end());
  });
  ASSERT_TRUE(run) << run.error().message;
  for (Token next = 7;; ++next) {
    const auto is_done = (*run)->Advance();
    ASSERT_TRUE(is_done) << is_done.error().message;
    if (*is_done) break;
    Logits(*engine, other, {&next, 1});
  }
  const auto alone = Open();
  Sequence expected = alone->NewSequence();
  EXPECT_EQ(logits, Logits(*alone, expected, text_));
}

}  // namespace
}  // namespace moestro
