// SPDX-License-Identifier: MIT
// One text in the loop: how it ends, what its reader gets, what drafts change (the time) and what
// they do not (the tokens). Several texts: tests/serve.
#include "text/text_loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/demo_vocab_testing.h"
#include "text/draft_control.h"
#include "text/drafts.h"
#include "text/scripted_engine_testing.h"

namespace moestro {
namespace {

constexpr Token kLoopEnd = 2;
const std::vector<Token>& PromptOfTwo() {
  static const std::vector<Token> prompt = {5, 6};
  return prompt;
}

class KeptEvents final : public TextReader {
 public:
  bool Tell(TextEvent event) override {
    if (const auto* piece = std::get_if<TextPiece>(&event)) {
      if (!piece->text.empty()) emitted.push_back(piece->text);
    }
    if (const auto* end = std::get_if<TextEnd>(&event)) usage = end->usage;
    return emitted.size() < close_after;
  }
  std::string text() const {
    std::string all;
    for (const std::string& part : emitted) all += part;
    return all;
  }

  std::vector<std::string> emitted;
  TextUsage usage;
  size_t close_after = SIZE_MAX;
};

// Drafts the same tokens each time.
class GuessDrafter final : public Drafter {
 public:
  explicit GuessDrafter(std::vector<Token> guess) : guess_(std::move(guess)) {}
  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override {
    if (++calls_ == fails_at) return Fail(Errc::kInterrupted, "injected");
    if (asked.empty()) asked.assign(text.begin(), text.end());
    Draft draft{.tokens = guess_, .foreseen = {{ExpertId{3}}}};
    draft.tokens.resize(std::min<size_t>(most, guess_.size()));
    return draft;
  }

  int fails_at = 0;
  std::vector<Token> asked;  // first

 private:
  std::vector<Token> guess_;
  int calls_ = 0;
};

class TextLoopTest : public testing::Test {
 protected:
  // Text as tokens of the demo model, without its begin.
  static std::vector<Token> Spell(const std::string& text) {
    return *DemoVocab().Tokenize(text, false, false);
  }
  static std::string TextOf(std::span<const Token> tokens) {
    std::string text;
    for (const Token token : tokens) text += DemoVocab().Piece(token);
    return text;
  }
  // A text of picks_, and the end token behind them.
  std::unique_ptr<RunningText> Make(const GenerateOptions& generate) {
    options_.prompt = PromptOfTwo();
    options_.generate = generate;
    options_.end_tokens = {kLoopEnd};
    auto text = std::make_unique<RunningText>(
        reader_, options_, engine_.NewSequence(),
        [this, n = size_t{0}](std::span<const float> logits,
                              std::span<const Token>) mutable -> Result<Token> {
          // The logits are those after the newest token.
          const Token newest = n == 0 ? PromptOfTwo().back() : picks_[n - 1];
          EXPECT_EQ(logits[0], static_cast<float>(newest));
          EXPECT_EQ(logits[1], static_cast<float>(PromptOfTwo().size() + n));
          if (n == fail_pick_at_) return Fail(Errc::kInvalidRequest, "no token fits");
          return n < picks_.size() ? picks_[n++] : kLoopEnd;
        },
        &DemoVocab(), clock_);
    if (drafter_) {
      auto drafter = std::make_unique<GuessDrafter>(*drafter_);
      used_ = drafter.get();
      text->DraftWith(std::move(drafter), control_, engine_);
    }
    return text;
  }
  Result<StopReason> Run(const GenerateOptions& generate = {}, bool is_stopped = true) {
    lone_.emplace(engine_, Make(generate), clock_);
    lone_->Write([&] { return is_stopped; });
    return *lone_->text().ending();
  }
  // From the first token on, drafts that the control tries.
  void DraftAlways(std::vector<Token> guess, uint32_t most = 2) {
    control_ = std::make_shared<DraftControl>(most);
    for (int i = 0; i < 16; ++i) control_->Plain(1.0);
    drafter_.emplace(std::move(guess));
  }
  std::vector<Token> answer() {
    return {lone_->text().answer().begin(), lone_->text().answer().end()};
  }
  std::vector<Token> sequence() {
    const std::span<const Token> tokens = lone_->text().sequence().tokens();
    return {tokens.begin(), tokens.end()};
  }
  static std::vector<Token> AfterPrompt(std::span<const Token> tokens) {
    std::vector<Token> all = PromptOfTwo();
    all.append_range(tokens);
    return all;
  }

  ScriptedEngine engine_{100};
  const Clock clock_ = [] { return 0.0; };
  TextOptions options_;
  KeptEvents reader_;
  std::vector<Token> picks_ = Spell("one two three");
  std::optional<size_t> fail_pick_at_;
  std::optional<GuessDrafter> drafter_;
  GuessDrafter* used_ = nullptr;
  std::shared_ptr<DraftControl> control_;
  std::optional<LoneText> lone_;
};

TEST_F(TextLoopTest, StreamsEachTokenAndStopsAtTheEndToken) {
  EXPECT_EQ(Run(), StopReason::kEndToken);
  EXPECT_EQ(reader_.text(), TextOf(picks_));
  EXPECT_EQ(reader_.emitted.size(), picks_.size());
  EXPECT_EQ(answer(), picks_);
  EXPECT_EQ(sequence(), AfterPrompt(picks_));
  EXPECT_EQ(reader_.usage.prompt_tokens, 2U);
  EXPECT_EQ(reader_.usage.completion_tokens, picks_.size());
}

TEST_F(TextLoopTest, TheLimitSavesTheStepNobodyWouldRead) {
  EXPECT_EQ(Run({.max_tokens = 2}), StopReason::kLimit);
  EXPECT_EQ(reader_.text(), TextOf(std::span(picks_).first(2)));
  EXPECT_EQ(engine_.steps(), 2);
  EXPECT_EQ(lone_->text().waiting().size(), 1U);
}

TEST_F(TextLoopTest, ALimitOfZeroOnlyReadsThePrompt) {
  EXPECT_EQ(Run({.max_tokens = 0}), StopReason::kLimit);
  EXPECT_TRUE(answer().empty());
  EXPECT_EQ(engine_.steps(), 1);
  EXPECT_EQ(sequence(), PromptOfTwo());
}

TEST_F(TextLoopTest, AStopStringAcrossTokensIsNotShown) {
  EXPECT_EQ(Run({.stops = {"o th"}}), StopReason::kStopString);
  EXPECT_TRUE(reader_.text().ends_with("one tw")) << reader_.text();
}

TEST_F(TextLoopTest, TextHeldBackForAStopAppearsAtTheEnd) {
  EXPECT_EQ(Run({.stops = {"three!"}}), StopReason::kEndToken);
  EXPECT_EQ(reader_.text(), TextOf(picks_));
}

TEST_F(TextLoopTest, CharactersSplitOverTokensArriveWhole) {
  picks_ = Spell("\xF0\x9F\x98\x80!\xE2\x82\xAC");
  ASSERT_GT(picks_.size(), 6U);  // a token for each byte
  picks_.pop_back();
  EXPECT_EQ(Run(), StopReason::kEndToken);
  EXPECT_TRUE(std::ranges::contains(reader_.emitted, "\xF0\x9F\x98\x80"));
  EXPECT_EQ(reader_.emitted.back(), "\xEF\xBF\xBD");
}

TEST_F(TextLoopTest, AFullContextEndsTheText) {
  engine_ = ScriptedEngine(3);
  EXPECT_EQ(Run(), StopReason::kContextFull);
  EXPECT_EQ(answer().size(), 1U);  // prompt and answer are never more than the context
  EXPECT_EQ(sequence(), PromptOfTwo());
}

TEST_F(TextLoopTest, APromptThatFillsTheContextHasNoAnswer) {
  engine_ = ScriptedEngine(2);
  EXPECT_EQ(Run(), StopReason::kContextFull);
  EXPECT_EQ(reader_.text(), "");
}

TEST_F(TextLoopTest, AnErrorInTheMiddleIsReportedAfterTheTextSoFar) {
  engine_.FailAt(3, Errc::kIo);
  const std::string so_far = TextOf(std::span(picks_).first(2));
  const auto ended = Run({.stops = {so_far + "!"}});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, Errc::kIo);
  EXPECT_EQ(ended.error().message, "injected");
  EXPECT_EQ(reader_.text(), so_far);
  EXPECT_EQ(engine_.steps(), 3);  // it is not tried again
}

TEST_F(TextLoopTest, AnErrorOfThePickerIsReported) {
  fail_pick_at_ = 1;
  const auto ended = Run();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().message, "no token fits");
}

TEST_F(TextLoopTest, AnInterruptionIsAnOrdinaryEnd) {
  engine_.FailAt(2, Errc::kInterrupted);
  EXPECT_EQ(Run(), StopReason::kInterrupted);
  EXPECT_EQ(answer().size(), 1U);
  EXPECT_EQ(reader_.text(), TextOf(answer()));
}

TEST_F(TextLoopTest, AnInterruptionOfThePromptGivesNoText) {
  engine_.FailAt(1, Errc::kInterrupted);
  EXPECT_EQ(Run(), StopReason::kInterrupted);
  EXPECT_EQ(reader_.text(), "");
  EXPECT_TRUE(sequence().empty());
}

TEST_F(TextLoopTest, AStopThatWasForAnotherTextChangesNothing) {
  for (const int step : {1, 2}) {
    reader_.emitted.clear();
    engine_.FailAt(step, Errc::kInterrupted);
    EXPECT_EQ(Run({}, false), StopReason::kEndToken);
    EXPECT_EQ(reader_.text(), TextOf(picks_));
  }
}

TEST_F(TextLoopTest, AClosedOutputEndsTheText) {
  reader_.close_after = 2;
  EXPECT_EQ(Run(), StopReason::kOutputClosed);
  EXPECT_EQ(reader_.emitted.size(), 2U);
  EXPECT_EQ(answer().size(), 2U);
  EXPECT_EQ(engine_.steps(), 2);
}

TEST_F(TextLoopTest, WhatWasGuessedRightIsThereAlready) {
  picks_ = {7, 8, 9, 10};
  DraftAlways({8, 9});
  EXPECT_EQ(Run({.max_tokens = 4}), StopReason::kLimit);
  EXPECT_EQ(answer(), picks_);
  EXPECT_EQ(engine_.steps(), 2);  // the prompt, and one step for the others
  EXPECT_EQ(used_->asked, AfterPrompt(std::vector<Token>{7}));
  EXPECT_EQ(engine_.foreseen(), 1U);
  EXPECT_EQ(sequence(), AfterPrompt(std::vector<Token>{7, 8, 9}));
  EXPECT_EQ(engine_.stats().drafts.proposed, 2U);
  EXPECT_EQ(engine_.stats().drafts.accepted, 2U);
  EXPECT_EQ(reader_.usage.drafted_tokens, 2U);
  EXPECT_EQ(reader_.usage.accepted_drafts, 2U);
}

TEST_F(TextLoopTest, WhatWasGuessedWrongIsForgotten) {
  picks_ = {7, 8, 1, 3, 4};
  DraftAlways({8, 9});
  EXPECT_EQ(Run(), StopReason::kEndToken);
  EXPECT_EQ(answer(), picks_);
  EXPECT_EQ(sequence(), AfterPrompt(picks_));
  EXPECT_EQ(engine_.stats().drafts.accepted, 1U);
  EXPECT_GE(engine_.stats().drafts.proposed, 2U);
}

TEST_F(TextLoopTest, ATextThatEndsWithinADraftForgetsTheRest) {
  picks_ = {7, 8};
  DraftAlways({8, 9});
  EXPECT_EQ(Run(), StopReason::kEndToken);
  EXPECT_EQ(sequence(), AfterPrompt(picks_));
  EXPECT_TRUE(lone_->text().waiting().empty());
}

TEST_F(TextLoopTest, TheContextHasRoomForEveryDraftedRow) {
  engine_ = ScriptedEngine(20);  // it checks the rows
  picks_.assign(40, 1);
  for (const Token guess : {1, 8}) {
    DraftAlways({guess, guess});
    EXPECT_EQ(Run(), StopReason::kContextFull);
    EXPECT_EQ(answer().size(), 18U);
  }
}

TEST_F(TextLoopTest, AFailedDraftLeavesTheTextAsItWas) {
  picks_ = {7, 8, 9, 10, 11};
  DraftAlways({8, 9});
  engine_.FailAt(2, Errc::kInterrupted);  // the step with the draft
  EXPECT_EQ(Run({}, false), StopReason::kEndToken);
  EXPECT_EQ(sequence(), AfterPrompt(picks_));
  DraftAlways({8, 9});
  drafter_->fails_at = 1;
  EXPECT_EQ(Run({}, false), StopReason::kEndToken);
  EXPECT_EQ(sequence(), AfterPrompt(picks_));
  // A stop while a draft is made ends the text as well.
  DraftAlways({8, 9});
  drafter_->fails_at = 1;
  EXPECT_EQ(Run(), StopReason::kInterrupted);
  EXPECT_EQ(answer(), std::vector<Token>{7});
}

}  // namespace
}  // namespace moestro
