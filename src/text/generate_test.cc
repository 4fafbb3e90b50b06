// SPDX-License-Identifier: MIT
#include "text/generate.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "text/text_tokens.h"

namespace moestro {
namespace {

// Counts the calls; the only logit is the number of tokens that the sequence holds.
class FakeStepper final : public Stepper {
 public:
  explicit FakeStepper(uint32_t n_ctx) : n_ctx_(n_ctx) {}

  Result<std::span<const float>> Append(std::span<const Token> tokens) override {
    ++calls_;
    if (fail_at_call_ == calls_) return std::unexpected(failure_);
    sequence_.insert(sequence_.end(), tokens.begin(), tokens.end());
    logits_ = {static_cast<float>(sequence_.size())};
    return logits_;
  }
  uint32_t position() const override { return static_cast<uint32_t>(sequence_.size()); }
  uint32_t n_ctx() const override { return n_ctx_; }
  Status Rewind(uint32_t position) override {
    sequence_.resize(position);
    return {};
  }

  void FailAt(int call, Errc code) {
    fail_at_call_ = call;
    failure_ = Error{code, "injected"};
  }
  const std::vector<Token>& sequence() const { return sequence_; }
  int calls() const { return calls_; }

 private:
  uint32_t n_ctx_;
  std::vector<Token> sequence_;
  std::vector<float> logits_;
  int calls_ = 0;
  int fail_at_call_ = -1;
  Error failure_{Errc::kIo, ""};
};

constexpr Token kEnd = 99;
constexpr size_t kPrompt = 2;

class GenerateTest : public testing::Test {
 protected:
  // Token i of the script is picked after i + kPrompt tokens; its text is pieces_[i].
  TextParts Parts() {
    return {.pick = [this](std::span<const float> logits) -> Result<Token> {
              const auto index = static_cast<size_t>(logits[0]) - kPrompt;
              if (index == fail_pick_at_) return Fail(Errc::kInvalidRequest, "no token fits");
              return index < pieces_.size() ? static_cast<Token>(index) : kEnd;
            },
            .piece = [this](Token token) { return pieces_.at(static_cast<size_t>(token)); },
            .is_end = [](Token token) { return token == kEnd; },
            .emit =
                [this](std::string_view text) {
                  emitted_.emplace_back(text);
                  return emitted_.size() < close_after_;
                }};
  }
  Result<Generated> Run(const GenerateOptions& options = {}) {
    const std::vector<Token> prompt = {5, 6};
    return Generate(stepper_, Parts(), prompt, options);
  }

  FakeStepper stepper_{100};
  std::vector<std::string> pieces_ = {"one", " two", " three"};
  std::vector<std::string> emitted_;
  size_t close_after_ = SIZE_MAX;
  std::optional<size_t> fail_pick_at_;
};

TEST_F(GenerateTest, StreamsEachTokenAndStopsAtTheEndToken) {
  const auto result = Run();
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->text, "one two three");
  EXPECT_EQ(result->tokens, (std::vector<Token>{0, 1, 2}));
  EXPECT_EQ(result->reason, StopReason::kEndToken);
  EXPECT_EQ(emitted_, pieces_);
  EXPECT_EQ(stepper_.sequence(), (std::vector<Token>{5, 6, 0, 1, 2}));
}

TEST_F(GenerateTest, TheLimitSavesTheStepNobodyWouldRead) {
  const auto result = Run({.max_tokens = 2});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, "one two");
  EXPECT_EQ(result->reason, StopReason::kLimit);
  EXPECT_EQ(stepper_.calls(), 2);
}

TEST_F(GenerateTest, ALimitOfZeroOnlyReadsThePrompt) {
  const auto result = Run({.max_tokens = 0});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->tokens.size(), 0U);
  EXPECT_EQ(result->reason, StopReason::kLimit);
  EXPECT_EQ(stepper_.calls(), 1);
}

TEST_F(GenerateTest, AStopStringAcrossTokensIsNotShown) {
  const auto result = Run({.stops = {"o th"}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, "one tw");
  EXPECT_EQ(result->reason, StopReason::kStopString);
}

TEST_F(GenerateTest, TextHeldBackForAStopAppearsAtTheEnd) {
  const auto result = Run({.stops = {"three!"}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, "one two three");
  EXPECT_EQ(result->reason, StopReason::kEndToken);
}

TEST_F(GenerateTest, CharactersSplitOverTokensArriveWhole) {
  pieces_ = {"\xF0\x9F", "\x98", "\x80!", "\xE2\x82"};
  const auto result = Run();
  ASSERT_TRUE(result);
  EXPECT_EQ(emitted_, (std::vector<std::string>{"\xF0\x9F\x98\x80!", "\xEF\xBF\xBD"}));
}

TEST_F(GenerateTest, AFullContextEndsTheText) {
  stepper_ = FakeStepper(3);
  const auto result = Run();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, "one");  // prompt and answer are never more than the context
  EXPECT_EQ(result->reason, StopReason::kContextFull);
  EXPECT_EQ(stepper_.position(), 2U);
}

TEST_F(GenerateTest, APromptThatFillsTheContextHasNoAnswer) {
  stepper_ = FakeStepper(2);
  const auto result = Run();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, "");
  EXPECT_EQ(result->reason, StopReason::kContextFull);
}

TEST_F(GenerateTest, APromptThatDoesNotFitIsRefusedBeforeAnyWork) {
  stepper_ = FakeStepper(1);
  const auto result = Run();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kInvalidRequest);
  EXPECT_NE(result.error().message.find("prompt of 2 tokens"), std::string::npos);
  EXPECT_EQ(stepper_.calls(), 0);
}

TEST_F(GenerateTest, AnEmptyPromptIsRefused) {
  const auto result = Generate(stepper_, Parts(), {}, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kInvalidRequest);
}

TEST_F(GenerateTest, AnErrorInTheMiddleIsReportedAfterTheTextSoFar) {
  stepper_.FailAt(3, Errc::kIo);
  const auto result = Run({.stops = {" two and"}});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::kIo);
  EXPECT_EQ(result.error().message, "injected");
  EXPECT_EQ(emitted_, (std::vector<std::string>{"one", " two"}));
}

TEST_F(GenerateTest, AnErrorOfThePickerIsReported) {
  fail_pick_at_ = 1;
  const auto result = Run();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().message, "no token fits");
}

TEST_F(GenerateTest, AnInterruptionIsAnOrdinaryEnd) {
  stepper_.FailAt(2, Errc::kInterrupted);
  const auto result = Run();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, "one");
  EXPECT_EQ(result->reason, StopReason::kInterrupted);
}

TEST_F(GenerateTest, AnInterruptionOfThePromptGivesNoText) {
  stepper_.FailAt(1, Errc::kInterrupted);
  const auto result = Run();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->text, "");
  EXPECT_EQ(result->reason, StopReason::kInterrupted);
}

TEST_F(GenerateTest, AClosedOutputEndsTheText) {
  close_after_ = 2;
  const auto result = Run();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->reason, StopReason::kOutputClosed);
  EXPECT_EQ(emitted_.size(), 2U);
  EXPECT_EQ(stepper_.calls(), 2);
}

TEST(CommonPrefix, CountsEqualTokens) {
  const std::vector<Token> a = {1, 2, 3};
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{1, 2, 4, 5}), 2U);
  EXPECT_EQ(CommonPrefix(a, a), 3U);
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{}), 0U);
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{1}), 1U);
}

}  // namespace
}  // namespace moestro
