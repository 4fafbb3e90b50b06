// SPDX-License-Identifier: MIT
// Drafts change the time of a computation, never the result.
#include "text/drafting_stepper.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "text/draft_options.h"
#include "text/drafter.h"

namespace moestro {
namespace {

// Two logits after each token: its value, and how many tokens the sequence holds with it.
class CountingRows final : public RowStepper {
 public:
  Result<std::span<const float>> Append(std::span<const Token> tokens) override {
    TRY(const std::span<const float> all, AppendRows(tokens, {}));
    return all.last(2);
  }
  Result<std::span<const float>> AppendRows(std::span<const Token> tokens,
                                            std::vector<std::vector<ExpertId>> foreseen) override {
    if (++calls_ == fail_at_) return Fail(Errc::kInterrupted, "injected");
    foreseen_ = std::move(foreseen);
    logits_.clear();
    for (const Token token : tokens) {
      sequence_.push_back(token);
      logits_.push_back(static_cast<float>(token));
      logits_.push_back(static_cast<float>(sequence_.size()));
    }
    return logits_;
  }
  std::span<const Token> tokens() const override { return sequence_; }
  uint32_t position() const override { return static_cast<uint32_t>(sequence_.size()); }
  uint32_t n_ctx() const override { return 20; }
  Status Rewind(uint32_t position) override {
    sequence_.resize(position);
    return {};
  }

  void FailAt(int call) { fail_at_ = call; }
  int calls() const { return calls_; }
  const std::vector<std::vector<ExpertId>>& foreseen() const { return foreseen_; }

 private:
  std::vector<Token> sequence_;
  std::vector<float> logits_;
  std::vector<std::vector<ExpertId>> foreseen_;
  int calls_ = 0;
  int fail_at_ = -1;
};

// Drafts the same tokens each time.
class FixedDrafter final : public Drafter {
 public:
  explicit FixedDrafter(std::vector<Token> guess) : guess_(std::move(guess)) {}
  Result<Draft> Propose(std::span<const Token> text, uint32_t most) override {
    if (fails_) return Fail(Errc::kInterrupted, "injected");
    asked_ = {text.begin(), text.end()};
    Draft draft{.tokens = guess_, .foreseen = {{ExpertId{3}}}};
    draft.tokens.resize(std::min<size_t>(most, guess_.size()));
    return draft;
  }
  void FailNow() { fails_ = true; }
  const std::vector<Token>& asked() const { return asked_; }

 private:
  std::vector<Token> guess_;
  std::vector<Token> asked_;
  bool fails_ = false;
};

class DraftingTest : public testing::Test {
 protected:
  DraftingTest() {
    for (int i = 0; i < 16; ++i) control_.Plain(1.0);  // from now on control_ tries drafts
  }
  static std::pair<float, float> Pair(const Result<std::span<const float>>& logits) {
    EXPECT_TRUE(logits && logits->size() == 2);
    return logits ? std::pair((*logits)[0], (*logits)[1]) : std::pair(-1.0F, -1.0F);
  }
  DraftingStepper Stepper(Drafter& drafter) {
    return {rows_, drafter, control_, [] { return 0.0; },
            [this](uint32_t proposed, uint32_t accepted) {
              proposed_ += proposed;
              accepted_ += accepted;
            }};
  }
  CountingRows rows_;
  DraftControl control_{2};
  uint32_t proposed_ = 0;
  uint32_t accepted_ = 0;
};

TEST_F(DraftingTest, WhatWasGuessedRightIsThereAlready) {
  FixedDrafter drafter({8, 9});
  DraftingStepper stepper = Stepper(drafter);
  const std::vector<Token> prompt = {5, 6};
  EXPECT_EQ(Pair(stepper.Append(prompt)), std::pair(6.0F, 2.0F));
  for (const Token t : {7, 8, 9}) {
    EXPECT_EQ(Pair(stepper.Append({&t, 1})),
              std::pair(static_cast<float>(t), static_cast<float>(t - 4)));
    EXPECT_EQ(stepper.position(), static_cast<uint32_t>(t - 4));
  }
  EXPECT_EQ(rows_.calls(), 2);  // the prompt, and one step for all three
  EXPECT_EQ(drafter.asked(), (std::vector<Token>{5, 6, 7}));
  EXPECT_EQ(rows_.foreseen().size(), 1U);
  ASSERT_TRUE(stepper.Finish());
  EXPECT_EQ(rows_.position(), 5U);
  EXPECT_EQ(proposed_, 2U);
  EXPECT_EQ(accepted_, 2U);
}

TEST_F(DraftingTest, WhatWasGuessedWrongIsForgotten) {
  FixedDrafter drafter({8, 9});
  DraftingStepper stepper = Stepper(drafter);
  const std::vector<Token> text = {7, 8, 1, 2};
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(Pair(stepper.Append({&text[i], 1})),
              std::pair(static_cast<float>(text[i]), static_cast<float>(i + 1)));
  }
  ASSERT_TRUE(stepper.Finish());
  EXPECT_EQ(std::vector<Token>(rows_.tokens().begin(), rows_.tokens().end()), text);
  EXPECT_EQ(accepted_, 1U);
  EXPECT_GT(proposed_, 2U);
}

TEST_F(DraftingTest, RewindingForgetsDraftsToo) {
  FixedDrafter drafter({8, 9});
  DraftingStepper stepper = Stepper(drafter);
  const Token seven = 7;
  Pair(stepper.Append({&seven, 1}));
  EXPECT_EQ(rows_.position(), 3U);
  EXPECT_EQ(stepper.position(), 1U);
  ASSERT_TRUE(stepper.Rewind(0));
  EXPECT_EQ(rows_.position(), 0U);
  EXPECT_EQ(stepper.position(), 0U);
}

TEST_F(DraftingTest, TheContextHasRoomForEveryRow) {
  FixedDrafter drafter({8, 9});
  DraftingStepper stepper = Stepper(drafter);
  for (uint32_t i = 0; i < rows_.n_ctx(); ++i) {
    const Token other = 1;
    ASSERT_EQ(Pair(stepper.Append({&other, 1})).second, static_cast<float>(i + 1));
    ASSERT_LE(rows_.position(), rows_.n_ctx());
  }
  EXPECT_EQ(stepper.position(), stepper.n_ctx());
}

TEST_F(DraftingTest, AFailureLeavesTheTextAsItWas) {
  FixedDrafter drafter({8, 9});
  DraftingStepper stepper = Stepper(drafter);
  const Token seven = 7;
  rows_.FailAt(1);
  EXPECT_FALSE(stepper.Append({&seven, 1}));
  EXPECT_EQ(stepper.position(), 0U);
  EXPECT_EQ(Pair(stepper.Append({&seven, 1})), std::pair(7.0F, 1.0F));
  const Token one = 1;
  drafter.FailNow();
  EXPECT_FALSE(stepper.Append({&one, 1}));
  EXPECT_EQ(stepper.position(), 1U);
  EXPECT_EQ(rows_.position(), 1U);
}

TEST(NgramDrafter, RepeatsWhatFollowedTheLatestLongestMatch) {
  NgramDrafter drafter;
  const auto propose = [&](const std::vector<Token>& text, uint32_t most) {
    return drafter.Propose(text, most)->tokens;
  };
  const std::vector<Token> nothing;
  EXPECT_EQ(propose({}, 4), nothing);
  EXPECT_EQ(propose({1}, 4), nothing);
  EXPECT_EQ(propose({1, 2, 3, 4}, 4), nothing);
  EXPECT_EQ(propose({1, 2, 1}, 4), nothing);  // one token is no match
  EXPECT_EQ(propose({1, 2, 3, 4, 1, 2}, 4), (std::vector<Token>{3, 4, 1, 2}));
  EXPECT_EQ(propose({1, 2, 3, 4, 1, 2}, 1), std::vector<Token>{3});
  // The later of two equally long ones, and the longer of two.
  EXPECT_EQ(propose({1, 2, 3, 1, 2, 4, 1, 2}, 1), std::vector<Token>{4});
  EXPECT_EQ(propose({5, 1, 2, 3, 1, 2, 4, 5, 1, 2}, 1), std::vector<Token>{3});
  EXPECT_EQ(propose({7, 7, 7}, 8), std::vector<Token>{7});
}

TEST(DraftOptions, NamesAndNumbers) {
  EXPECT_EQ(ParseDraft("little")->most, 4U);
  EXPECT_EQ(ParseDraft("ngram:12")->most, 12U);
  EXPECT_EQ(ParseDraft("ngram")->kind, DraftKind::kNgram);
  for (const char* wrong :
       {"", "big", "little:", "little:0", "ngram:17", "ngram:x", "little:3:4"}) {
    const auto parsed = ParseDraft(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code, Errc::kUsage);
  }
}

}  // namespace
}  // namespace moestro
