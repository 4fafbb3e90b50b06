// SPDX-License-Identifier: MIT
// Drafted texts are the texts that are made without drafts.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/append.h"
#include "model/model_file.h"
#include "model/vocab.h"
#include "native/native_engine.h"
#include "tests/support/fault_reader_testing.h"
#include "text/draft_control.h"
#include "text/drafts.h"
#include "text/sampler.h"
#include "text/text_loop.h"

namespace moestro {
namespace {

constexpr const char* kDemo = MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf";
constexpr int64_t kTokens = 120;

// The tokens to come, each right with some probability.
class KnowingDrafter final : public Drafter {
 public:
  KnowingDrafter(std::vector<Token> text, double right) : text_(std::move(text)), right_(right) {}
  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override {
    Draft draft;
    for (size_t at = text.size(); at < text_.size() && draft.tokens.size() < most; ++at) {
      const bool is_right = std::uniform_real_distribution<double>()(random_) < right_;
      draft.tokens.push_back(is_right ? text_[at] : (text_[at] + 1) % 100);
    }
    return draft;
  }

 private:
  std::vector<Token> text_;
  double right_;
  std::mt19937 random_{1};
};

class Unread final : public TextReader {
 public:
  bool Tell(TextEvent) override { return true; }
};

enum class By { kNobody, kLittle, kNgram, kKnown };

class DraftTest : public testing::Test {
 protected:
  struct Run {
    std::vector<Token> tokens;  // with the prompt
    DraftStats drafts;
    uint64_t counted = 0;  // decode tokens in the statistics
    uint32_t position = 0;
  };

  static EngineOptions Options(double percent) {
    EngineOptions options;
    options.ctx = 256;
    options.threads = 2;
    options.cache = CacheSize{.percent = percent};
    return options;
  }

  static Run Write(By by, const SamplingOptions& sampling, const EngineOptions& options,
                   const std::vector<Token>& known = {}, double right = 1.0) {
    auto model = ModelFile::Open(kDemo);
    EXPECT_TRUE(model);
    auto vocab = Vocab::Load(model->gguf);
    EXPECT_TRUE(vocab);
    const uint32_t n_vocab = model->spec.n_vocab;
    auto sampler = Sampler::Create(sampling, *vocab, n_vocab, 256);
    EXPECT_TRUE(sampler) << sampler.error().message;
    auto engine = NativeEngine::Open(*std::move(model), options);
    EXPECT_TRUE(engine) << engine.error().message;
    Sequence sequence = (*engine)->NewSequence();
    const std::vector<Token> prompt =
        *vocab->Tokenize("Once upon a time, Lily and Ben", true, false);
    sampler->Observe(prompt);
    const TextOptions asked{.prompt = prompt, .generate = {.max_tokens = kTokens}};
    Unread reader;
    // Every step takes as long as any other, so drafts that are right pay.
    const Clock clock = [now = 0.0]() mutable { return now += 1.0; };
    auto text = std::make_unique<RunningText>(
        reader, asked, std::move(sequence),
        [&](std::span<const float> logits, std::span<const Token> not_yet) {
          return sampler->Pick(logits, not_yet);
        },
        nullptr, clock);  // no token ends the text
    std::unique_ptr<Drafter> drafter;
    if (by == By::kLittle) {
      drafter = std::make_unique<LittleDrafter>(**engine, text->sequence());
    }
    if (by == By::kNgram) drafter = std::make_unique<NgramDrafter>();
    if (by == By::kKnown) drafter = std::make_unique<KnowingDrafter>(known, right);
    if (drafter) {
      text->DraftWith(std::move(drafter), std::make_shared<DraftControl>(5), **engine);
    }
    LoneText lone(**engine, std::move(text), clock);
    lone.Write();
    EXPECT_EQ(*lone.text().ending(), StopReason::kLimit);
    Run run{.tokens = prompt,
            .drafts = (*engine)->stats().drafts,
            .counted = (*engine)->stats().decode.tokens,
            .position = lone.text().sequence().position()};
    run.tokens.append_range(lone.text().answer());
    return run;
  }
};

TEST_F(DraftTest, TheSameTokensGreedyAndSampled) {
  for (const float temp : {0.0F, 0.9F}) {
    const SamplingOptions sampling{.temp = temp, .seed = 7};
    const Run plain = Write(By::kNobody, sampling, Options(30.0));
    EXPECT_EQ(plain.drafts.proposed, 0U);
    for (const By by : {By::kLittle, By::kNgram, By::kKnown}) {
      const Run run = Write(by, sampling, Options(30.0), plain.tokens, 0.7);
      // Ties to rounding could part the texts; with these weights there is none.
      EXPECT_EQ(run.tokens, plain.tokens) << temp;
      EXPECT_EQ(run.position, plain.position);
      EXPECT_EQ(run.counted, plain.counted);
      EXPECT_GT(run.drafts.proposed, 1U);
      EXPECT_LT(run.drafts.accepted, run.drafts.proposed + 1);
    }
  }
}

TEST_F(DraftTest, WhatIsRightSavesSteps) {
  const Run plain = Write(By::kNobody, {.temp = 0.0F}, Options(100.0));
  const Run run = Write(By::kKnown, {.temp = 0.0F}, Options(100.0), plain.tokens, 1.0);
  EXPECT_EQ(run.tokens, plain.tokens);
  EXPECT_GE(run.drafts.accepted + 5, run.drafts.proposed);  // the text ends within the last draft
  EXPECT_GT(run.drafts.accepted, kTokens / 2U);
}

// Penalties look at the tokens so far: a sampler that had seen drafts would pick others.
TEST_F(DraftTest, SamplersWithAMemorySeeTheTextAlone) {
  const SamplingOptions sampling{.temp = 0.8F, .repeat_penalty = 1.3F, .seed = 3};
  const Run plain = Write(By::kNobody, sampling, Options(30.0));
  const Run run = Write(By::kKnown, sampling, Options(30.0), plain.tokens, 0.5);
  EXPECT_EQ(run.tokens, plain.tokens);
  EXPECT_GT(run.drafts.proposed, run.drafts.accepted);
}

TEST_F(DraftTest, ALittleDraftReadsNothing) {
  auto engine = NativeEngine::Open(kDemo, Options(30.0));
  ASSERT_TRUE(engine);
  Sequence sequence = (*engine)->NewSequence();
  const std::vector<Token> prompt = {5, 9, 11, 40, 7};
  for (const Token t : prompt) ASSERT_TRUE(Append(**engine, sequence, {&t, 1}));
  (*engine)->FinishReads();
  const uint64_t before = (*engine)->stats().decode.bytes_read;
  const uint64_t tokens = (*engine)->stats().decode.tokens;
  LittleDrafter drafter(**engine, sequence);
  const std::vector<Token> text = {5, 9, 11, 40, 7, 3};
  const auto draft = drafter.Propose(text, 3);
  ASSERT_TRUE(draft) << draft.error().message;
  EXPECT_EQ(draft->tokens.size(), 3U);
  EXPECT_EQ(draft->foreseen.size(), (*engine)->spec().n_expert_layers());
  EXPECT_EQ(draft->foreseen.front().size(), 3U * (*engine)->spec().router.n_used);
  EXPECT_EQ(sequence.position(), 5U);
  (*engine)->FinishReads();
  EXPECT_EQ((*engine)->stats().decode.bytes_read, before);
  EXPECT_EQ((*engine)->stats().decode.tokens, tokens);  // a draft is no text
}

TEST_F(DraftTest, AFailedReadOfACheckingStepLeavesTheTextAsItWas) {
  EngineOptions options = Options(25.0);
  FaultReader* faults = nullptr;
  options.wrap_reader = [&](std::unique_ptr<BlockReader> inner) {
    auto reader = std::make_unique<FaultReader>(std::move(inner));
    faults = reader.get();
    return reader;
  };
  auto engine = NativeEngine::Open(kDemo, options);
  ASSERT_TRUE(engine);
  Sequence sequence = (*engine)->NewSequence();
  ASSERT_TRUE(Append(**engine, sequence, std::vector<Token>{5, 9, 11, 40, 7}));
  std::vector<float> logits;
  const auto check = [&](const std::vector<Token>& rows) {
    logits.clear();
    return (*engine)->Step(RowsOf(sequence, rows, RowKind::kDecode, true),
                           [&](size_t, std::span<const float> of_row) {
                             logits.insert(logits.end(), of_row.begin(), of_row.end());
                           });
  };
  const std::vector<Token> rows = {3, 60, 200, 31};
  ASSERT_TRUE(check(rows));
  const std::vector<float> wanted = logits;
  sequence.CutBack(5);
  ASSERT_TRUE(check({401, 77, 90, 12}));  // others in the slots
  sequence.CutBack(5);
  faults->SetPlan(FaultScript().ErrorFrom(faults->submitted() + 3, EIO));
  const Status broken = check(rows);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().code, Errc::kIo);
  EXPECT_EQ(sequence.position(), 5U);
  faults->SetPlan({});
  const Status again = check(rows);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(logits, wanted);
}

}  // namespace
}  // namespace moestro
