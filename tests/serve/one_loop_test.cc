// SPDX-License-Identifier: MIT
// A session (`moestro run`) and a server write the same tokens: alone, beside others, with and
// without drafts.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/serve/scheduler_testing.h"
#include "text/session.h"

namespace moestro {
namespace {

class OneLoopTest : public testing::TestWithParam<DraftOptions> {
 protected:
  static std::unique_ptr<Session> MakeSession(const Wish& wish, const DraftOptions& draft) {
    EngineOptions options;
    options.threads = 2;
    options.ctx = 200;
    options.cache = CacheSize{.percent = 25.0};
    auto session = Session::Load(kDemo, options, {.temp = wish.temp, .seed = wish.seed});
    EXPECT_TRUE(session) << session.error().message;
    EXPECT_TRUE((*session)->DraftWith(draft));
    EXPECT_TRUE((*session)->Start());
    return *std::move(session);
  }
  static Result<Generated> Continue(Session& session, const std::vector<Token>& tokens,
                                    const Wish& wish) {
    return session.Continue(tokens, {.max_tokens = wish.tokens, .stops = wish.stops},
                            [](std::string_view) { return true; });
  }
  static std::vector<Token> TokensOf(const Said& said) {
    std::vector<Token> tokens;
    for (const TokenLogprob& one : said.logprobs) tokens.push_back(one.chosen.token);
    return tokens;
  }
};

const std::vector<Wish>& StoryWishes() {
  static const std::vector<Wish> wishes = {
      {.prompt = "Once upon a time there was a dog. The dog ran. The dog ran. The dog",
       .tokens = 80},
      {.prompt = "Tom said yes. Lily said yes. Tom said yes. Lily",
       .seed = 4,
       .temp = 0.7F,
       .tokens = 60},
      {.prompt = "One day a cat saw a bird. One day a",
       .seed = 5,
       .temp = 1.0F,
       .tokens = 50,
       .stops = {". The"}}};
  return wishes;
}

TEST_P(OneLoopTest, ASessionAndAServerWriteTheSame) {
  const auto engine = Open();
  Scheduler three(*engine, DemoVocab(), {.parallel = 3, .draft = GetParam()});
  const std::vector<Said> beside = ServeAll(three, StoryWishes());
  uint64_t proposed = 0;
  for (size_t i = 0; i < StoryWishes().size(); ++i) {
    const Wish& wish = StoryWishes()[i];
    const auto session = MakeSession(wish, GetParam());
    const auto made = Continue(*session, *DemoVocab().Tokenize(wish.prompt, true, false), wish);
    ASSERT_TRUE(made) << made.error().message;
    const Said alone = ServeOne(*engine, wish, {.draft = GetParam()});
    ASSERT_TRUE(alone.end && beside[i].end);
    EXPECT_EQ(made->tokens, TokensOf(alone)) << i;
    EXPECT_EQ(made->tokens, TokensOf(beside[i])) << i;
    EXPECT_EQ(made->text, alone.text) << i;
    EXPECT_EQ(made->reason, alone.end->reason) << i;
    proposed += session->engine().stats().drafts.proposed;
  }
  EXPECT_EQ(proposed > 0, GetParam().is_on());
}

// Turns of a chat: the sampler lives on and observes no token twice, nor does a text begin anew.
TEST_P(OneLoopTest, ASessionGoesOnWithWhatItHas) {
  Wish wish = StoryWishes()[1];
  wish.tokens = 20;
  const auto plain = MakeSession(wish, {});
  const auto drafting = MakeSession(wish, GetParam());
  std::vector<Token> tokens = *DemoVocab().Tokenize(wish.prompt, true, false);
  for (int turn = 0; turn < 3; ++turn) {
    const auto a = Continue(*plain, tokens, wish);
    const auto b = Continue(*drafting, tokens, wish);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(a->tokens, b->tokens) << turn;
    // All but the newest token has been computed.
    EXPECT_EQ(plain->sequence().position(), tokens.size() + a->tokens.size() - 1);
    EXPECT_EQ(drafting->sequence().position(), plain->sequence().position());
    tokens.append_range(a->tokens);
    tokens.append_range(*DemoVocab().Tokenize(" Then Tom", false, false));
  }
  EXPECT_GT(plain->prompts().cached, 40U);
  EXPECT_EQ(plain->prompts().cached, drafting->prompts().cached);
}

TEST(OneLoop, APromptThatDoesNotFitIsRefusedBeforeAnyWork) {
  EngineOptions options;
  options.threads = 2;
  options.ctx = 32;
  auto session = Session::Load(kDemo, options, {.temp = 0.0F});
  ASSERT_TRUE(session && (*session)->Start());
  const auto emit = [](std::string_view) { return true; };
  const auto empty = (*session)->Continue({}, {}, emit);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, Errc::kInvalidRequest);
  const auto long_one = (*session)->Continue(std::vector<Token>(33, 5), {}, emit);
  ASSERT_FALSE(long_one);
  EXPECT_EQ(long_one.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(long_one.error().message.contains("prompt of 33 tokens"));
  EXPECT_EQ((*session)->sequence().position(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Drafts, OneLoopTest,
                         testing::Values(DraftOptions{},
                                         DraftOptions{.kind = DraftKind::kNgram, .most = 8},
                                         DraftOptions{.kind = DraftKind::kLittle, .most = 4}),
                         [](const auto& kind) {
                           switch (kind.param.kind) {
                             case DraftKind::kNgram:
                               return "Ngram";
                             case DraftKind::kLittle:
                               return "Little";
                             case DraftKind::kPredicting:
                               return "Predicting";
                             case DraftKind::kNone:
                               break;
                           }
                           return "None";
                         });

}  // namespace
}  // namespace moestro
