// SPDX-License-Identifier: MIT
#include "text/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/grammar_state.h"
#include "tests/support/demo_vocab_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kContext = 256;

class SamplerTest : public testing::Test {
 protected:
  static Result<Sampler> Make(const SamplingOptions& options) {
    return Sampler::Create(options, DemoVocab(), DemoVocab().size(), kContext);
  }
  // Logits from -5 to 5 without ties: a multiple of 37 modulo a prime above the vocabulary's size.
  // `shift` gives each step another favourite.
  static std::vector<float> Logits(size_t shift) {
    constexpr size_t kPrime = 10'007;
    std::vector<float> logits(DemoVocab().size());
    EXPECT_LT(logits.size(), kPrime);
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = static_cast<float>((i * 37 + shift * 101) % kPrime) / 1000.0F - 5.0F;
    }
    return logits;
  }
  static std::vector<Token> Draw(const SamplingOptions& options, size_t n) {
    auto sampler = Make(options);
    EXPECT_TRUE(sampler) << sampler.error().message;
    std::vector<Token> tokens;
    for (size_t i = 0; sampler && i < n; ++i) tokens.push_back(sampler->Pick(Logits(i)).value());
    return tokens;
  }
  static Token Argmax(std::span<const float> logits) {
    return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
  }
  static Token TokenOf(const std::string& text) {
    Token token = 0;
    while (static_cast<uint32_t>(token) < DemoVocab().size() && DemoVocab().Piece(token) != text)
      ++token;
    EXPECT_LT(static_cast<uint32_t>(token), DemoVocab().size()) << "no token '" << text << "'";
    return token;
  }
  static std::vector<float> OneHot(Token token) {
    std::vector<float> logits(DemoVocab().size(), 0.0F);
    logits[static_cast<size_t>(token)] = 10.0F;
    return logits;
  }
  static void ExpectRefused(const std::string& grammar, const std::string& reason) {
    const auto sampler = Make({.grammar = grammar});
    ASSERT_FALSE(sampler) << grammar.substr(0, 60);
    EXPECT_EQ(sampler.error().code, Errc::kInvalidRequest);
    EXPECT_NE(sampler.error().message.find(reason), std::string::npos) << sampler.error().message;
    EXPECT_EQ(sampler.error().message.find('\n'), std::string::npos);
    EXPECT_LT(sampler.error().message.size(), 300U);
  }
  // The text that a grammar lets through, at most `n` tokens.
  static std::string Write(const std::string& grammar, size_t n) {
    auto sampler = Make({.seed = 3, .grammar = grammar});
    EXPECT_TRUE(sampler) << sampler.error().message;
    std::string text;
    for (size_t i = 0; sampler && i < n; ++i) {
      const auto token = sampler->Pick(Logits(i));
      EXPECT_TRUE(token) << token.error().message;
      if (!token || DemoVocab().is_end(*token)) break;
      text += DemoVocab().Piece(*token);
    }
    return text;
  }
};

TEST_F(SamplerTest, SameSeedSameTokensOtherSeedOthers) {
  const auto first = Draw({.seed = 7}, 50);
  EXPECT_EQ(first, Draw({.seed = 7}, 50));
  EXPECT_NE(first, Draw({.seed = 8}, 50));
}

TEST_F(SamplerTest, TemperatureZeroTakesTheLikeliest) {
  const auto tokens = Draw({.temp = 0.0F, .seed = 1}, 20);
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], Argmax(Logits(i)));
}

TEST_F(SamplerTest, TopKOfOneTakesTheLikeliest) {
  const auto tokens = Draw({.temp = 2.0F, .top_k = 1, .seed = 1}, 20);
  for (size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], Argmax(Logits(i)));
}

TEST_F(SamplerTest, BiasesOfOneTokenAddUpInAnyOrder) {
  const auto tokens = [](std::vector<std::pair<Token, float>> biases) {
    return Draw({.temp = 0.0F, .logit_bias = std::move(biases)}, 1);
  };
  EXPECT_EQ(tokens({{17, 600.0F}, {9, 1000.0F}, {17, 600.0F}}), std::vector<Token>{17});
  EXPECT_EQ(tokens({{17, 600.0F}, {9, 1000.0F}, {17, -600.0F}}), std::vector<Token>{9});
}

// Tokens that a grammar leaves are biased like all, although a token's index among the candidates
// is then not its id.
TEST_F(SamplerTest, BiasesHoldBesideAGrammar) {
  for (const std::string letter : {"a", "b", "c"}) {
    const auto token = DemoVocab().Tokenize(letter, false, false);
    ASSERT_TRUE(token);
    SamplingOptions options{.temp = 0.0F, .grammar = "root ::= [abc]"};
    for (Token other = 0; other < 1000; ++other) options.logit_bias.emplace_back(other, 1.0F);
    options.logit_bias.emplace_back(token->back(), 1000.0F);
    auto sampler = Make(options);
    ASSERT_TRUE(sampler) << sampler.error().message;
    EXPECT_EQ(DemoVocab().Piece(sampler->Pick(Logits(0)).value()), letter);
  }
}

TEST_F(SamplerTest, MirostatIsReproducibleToo) {
  for (const int32_t version : {1, 2}) {
    const SamplingOptions options{.mirostat = version, .seed = 5};
    EXPECT_EQ(Draw(options, 30), Draw(options, 30));
  }
}

TEST_F(SamplerTest, PenaltiesKeepObservedTokensAway) {
  const std::vector<float> logits = Logits(0);
  const Token best = Argmax(logits);
  auto sampler = Make({.temp = 0.0F, .presence_penalty = 100.0F});
  ASSERT_TRUE(sampler);
  EXPECT_EQ(sampler->Pick(logits).value(), best);
  EXPECT_NE(sampler->Pick(logits).value(), best);

  auto observing = Make({.temp = 0.0F, .presence_penalty = 100.0F});
  ASSERT_TRUE(observing);
  observing->Observe(std::vector<Token>{best});
  EXPECT_NE(observing->Pick(logits).value(), best);
}

TEST_F(SamplerTest, LogitBiasMovesTheChoice) {
  EXPECT_EQ(Draw({.temp = 0.0F, .logit_bias = {{17, 1000.0F}}}, 1), std::vector<Token>{17});
}

TEST_F(SamplerTest, IgnoreEosNeverPicksAnEnd) {
  Token end = 0;
  while (!DemoVocab().is_end(end)) ++end;
  std::vector<float> logits(DemoVocab().size(), 0.0F);
  logits[static_cast<size_t>(end)] = 50.0F;
  auto ordinary = Make({.temp = 0.0F});
  auto ignoring = Make({.temp = 0.0F, .ignore_eos = true});
  ASSERT_TRUE(ordinary && ignoring);
  EXPECT_EQ(ordinary->Pick(logits).value(), end);
  EXPECT_FALSE(DemoVocab().is_end(ignoring->Pick(logits).value()));
}

TEST_F(SamplerTest, OutputThatIsNotANumberIsAnError) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits = Logits(0);
    logits[100] = bad;
    auto sampler = Make({});
    ASSERT_TRUE(sampler);
    const auto token = sampler->Pick(logits);
    ASSERT_FALSE(token);
    EXPECT_EQ(token.error().code, Errc::kInvalidFile);
    EXPECT_NE(token.error().message.find("token 100"), std::string::npos);
  }
}

TEST_F(SamplerTest, AGrammarShapesTheText) {
  EXPECT_EQ(Write("root ::= \"once\"", 20), "once");
  const std::string digits = Write("root ::= [0-9]{3,5} \".\"", 20);
  EXPECT_GE(digits.size(), 4U);
  EXPECT_TRUE(digits.ends_with('.'));
  EXPECT_EQ(digits.find_first_not_of("0123456789."), std::string::npos) << digits;
}

TEST_F(SamplerTest, ARestartedGrammarBeginsAgain) {
  auto sampler = Make({.grammar = "root ::= \"a\""});
  ASSERT_TRUE(sampler);
  EXPECT_EQ(DemoVocab().Piece(sampler->Pick(Logits(0)).value()), "a");
  EXPECT_TRUE(DemoVocab().is_end(sampler->Pick(Logits(1)).value()));
  sampler->RestartGrammar();
  EXPECT_EQ(DemoVocab().Piece(sampler->Pick(Logits(2)).value()), "a");
}

TEST_F(SamplerTest, HostileGrammarsAreRefusedInOneLine) {
  ExpectRefused("root ::= \"\\x00\"", "allows no token");
  ExpectRefused("root := \"a\"", "expecting ::=");
  ExpectRefused("root ::= \"a", "unexpected end of input");
  ExpectRefused("root ::= missing\n\nmore ::= \"b\"", "missing");
  ExpectRefused("other ::= \"a\"", "root");
  ExpectRefused("root ::= root \"a\" | \"b\"", "left recursion");
  ExpectRefused("root ::= \"a\"{1000000}", "repetitions");
  ExpectRefused(std::string("root ::= \"a\0b\"", 14), "byte 11");
  ExpectRefused("root ::= \"\xff\"", "byte 10");
  ExpectRefused("root ::= " + std::string(250'000, '('), "the grammar cannot be used");
  ExpectRefused("root ::= \"" + std::string(300'000, 'a') + "\"", "too long");
}

TEST_F(SamplerTest, AGrammarMayBeginLate) {
  const auto tokens_of = [](const std::string& text) {
    std::vector<Token> tokens;
    for (const char c : text) tokens.push_back(TokenOf(std::string(1, c)));
    return tokens;
  };
  const SamplingOptions options{
      .temp = 0.0F, .grammar = "root ::= \"<c>\" [0-9] \"!\"", .grammar_triggers = {"(*", "<c>"}};
  auto sampler = Make(options);
  ASSERT_TRUE(sampler) << sampler.error().message;
  for (int round = 0; round < 2; ++round) {
    for (const Token token : tokens_of("ab <c <x <c")) {
      EXPECT_EQ(sampler->Pick(OneHot(token)).value(), token);
    }
    EXPECT_EQ(sampler->Pick(OneHot(TokenOf(">"))).value(), TokenOf(">"));
    EXPECT_NE(sampler->Pick(OneHot(TokenOf("a"))).value(), TokenOf("a"));
    EXPECT_EQ(sampler->Pick(OneHot(TokenOf("!"))).value(), TokenOf("!"));
    EXPECT_TRUE(DemoVocab().is_end(sampler->Pick(OneHot(TokenOf("a"))).value()));
    sampler->RestartGrammar();
  }
}

// The trigger ends or begins within a token: the token's letters behind the trigger must fit the
// grammar, too.
TEST_F(SamplerTest, ATriggerMayLieAnywhereInTokens) {
  const Token one = TokenOf(" the");
  const SamplingOptions fits{
      .temp = 0.0F, .grammar = "root ::= \"the\" \"x\"", .grammar_triggers = {"th"}};
  auto sampler = Make(fits);
  ASSERT_TRUE(sampler) << sampler.error().message;
  EXPECT_EQ(sampler->Pick(OneHot(one)).value(), one);
  EXPECT_EQ(DemoVocab().Piece(sampler->Pick(OneHot(one)).value()), "x");

  const SamplingOptions fits_not{
      .temp = 0.0F, .grammar = "root ::= \"thx\"", .grammar_triggers = {"th"}};
  auto other = Make(fits_not);
  ASSERT_TRUE(other);
  EXPECT_NE(other->Pick(OneHot(one)).value(), one) << "it would begin the grammar with a mistake";
}

TEST_F(SamplerTest, ATriggerThatNeverComesLeavesTheTextFree) {
  auto sampler = Make({.temp = 0.0F, .grammar = "root ::= \"<c>\"", .grammar_triggers = {"<c>"}});
  ASSERT_TRUE(sampler);
  for (size_t i = 0; i < 2'000; ++i) {
    const std::vector<float> logits = Logits(i);
    if (DemoVocab().is_end(Argmax(logits))) continue;
    EXPECT_EQ(sampler->Pick(logits).value(), Argmax(logits));
  }
}

TEST_F(SamplerTest, ValuesThatCannotWorkAreNamed) {
  const auto expect = [](const SamplingOptions& options, const std::string& name) {
    const auto sampler = Make(options);
    ASSERT_FALSE(sampler);
    EXPECT_EQ(sampler.error().code, Errc::kInvalidRequest);
    EXPECT_NE(sampler.error().message.find(name), std::string::npos) << sampler.error().message;
  };
  expect({.repeat_penalty = 0.0F}, "--repeat-penalty");
  expect({.mirostat = 3}, "--mirostat");
  expect({.logit_bias = {{1'000'000, 1.0F}}}, "1000000");
  expect({.ignore_eos = true, .grammar = "root ::= \"a\""}, "--ignore-eos");
}

// The text with each letter that the watch reports as quiet in ().
std::string Watch(const QuietText& marks, std::string_view text) {
  QuietWatch watch(marks);
  std::string said;
  for (const char c : text) {
    const std::string one(1, c);
    said += watch.Push(one) ? one : "(" + one + ")";
  }
  return said;
}

TEST(QuietWatch, APartBeginsAtTheStartOnlyAndEndsOnce) {
  const QuietText marks{.begin = "[", .end = "]>"};
  EXPECT_EQ(Watch(marks, " \n[ab]>c[d]>"), " \n[(a)(b)(])>c[d]>");
  EXPECT_EQ(Watch(marks, "a[b]>"), "a[b]>");
  EXPECT_EQ(Watch(marks, "[a]]]>b"), "[(a)(])(])(])>b");
  EXPECT_EQ(Watch(marks, "[never"), "[(n)(e)(v)(e)(r)");
}

TEST(QuietWatch, APartMayBeOpenAtTheStart) {
  const QuietText marks{.begin = "[", .end = "]", .is_open = true};
  EXPECT_EQ(Watch(marks, "a[b]c[d]"), "(a)([)(b)]c[d]");
}

TEST(QuietWatch, PartsMayBeAnywhere) {
  const QuietText marks{.begin = "<<", .end = ">", .is_anywhere = true};
  EXPECT_EQ(Watch(marks, "a<<b>c<<<d>e"), "a<<(b)>c<<(<)(d)>e");
}

TEST(QuietWatch, OneTokenMayHoldSeveralMarks) {
  QuietWatch watch({.begin = "<<", .end = ">", .is_anywhere = true});
  EXPECT_TRUE(watch.Push("a<<b>c<<"));
  EXPECT_FALSE(watch.Push("b"));
  EXPECT_TRUE(watch.Push(">c<<d"));
  EXPECT_FALSE(watch.Push("d"));
  watch.Restart();
  EXPECT_TRUE(watch.Push("d"));
}

TEST(QuietWatch, WithoutMarksNothingIsQuiet) { EXPECT_EQ(Watch({}, "a[b]"), "a[b]"); }

// True if the filter takes all tokens of the text.
bool TakesAll(TokenFilter& filter, std::string_view text) {
  filter.Restart();
  for (const Token token : *DemoVocab().Tokenize(text, false, false)) {
    if (!*filter.Take(token)) return false;
  }
  return true;
}

TEST(QuietFilter, AGrammarSleepsWhileTheModelThinks) {
  const auto grammar = [] {
    return GrammarState::Make({"root ::= \"big\" \" dog\"", {"big"}}, DemoVocab());
  };
  EXPECT_FALSE(TakesAll(*grammar(), "A big cat. A big dog"));
  QuietFilter filter(grammar(), {.begin = "A", .end = "."}, DemoVocab());
  EXPECT_TRUE(TakesAll(filter, "A big cat. A big dog"));
  EXPECT_FALSE(TakesAll(filter, "A big cat. A big cat"));
  EXPECT_FALSE(TakesAll(filter, "The big cat."));
  // A refused token changes nothing.
  filter.Restart();
  const Token bird = DemoVocab().Tokenize("bird", false, false)->front();
  for (const Token token : *DemoVocab().Tokenize("A big cat. A big", false, false)) {
    ASSERT_TRUE(*filter.Take(token));
  }
  EXPECT_FALSE(*filter.Take(bird));
  EXPECT_FALSE(filter.Allowed(DemoVocab().size())->at(static_cast<size_t>(bird)));
  for (const Token token : *DemoVocab().Tokenize(" dog", false, false)) {
    EXPECT_TRUE(*filter.Take(token));
  }
}

}  // namespace
}  // namespace moestro
