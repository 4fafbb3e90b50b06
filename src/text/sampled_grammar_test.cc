// SPDX-License-Identifier: MIT
// Texts that are sampled with a grammar in a process of its own.
#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "grammar/grammar_checker.h"
#include "tests/support/demo_vocab_testing.h"
#include "text/sampler.h"

namespace moestro {
namespace {

class SampledGrammarTest : public testing::Test {
 protected:
  void SetUp() override {
    auto started = GrammarChecker::Start(DemoVocab(), {.n_tokens = DemoVocab().size()});
    ASSERT_TRUE(started) << started.error().message;
    checker_ = std::move(*started);
  }
  std::unique_ptr<TokenFilter> Open(const Grammar& grammar) {
    EXPECT_TRUE(checker_->Check(grammar)) << grammar.text;
    auto opened = checker_->Open(grammar);
    EXPECT_TRUE(opened) << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }
  static std::vector<Token> Write(Sampler& sampler) {
    std::vector<Token> tokens;
    std::vector<float> logits(DemoVocab().size());
    for (size_t i = 0; i < 40; ++i) {
      for (size_t t = 0; t < logits.size(); ++t) {
        logits[t] = static_cast<float>((t * 7919 + i * 104'729) % 613) / 60.0F;
      }
      const Result<Token> token = sampler.Pick(logits);
      if (!token || DemoVocab().is_end(*token)) break;
      tokens.push_back(*token);
    }
    return tokens;
  }

  std::unique_ptr<GrammarChecker> checker_;
};

TEST_F(SampledGrammarTest, SaysWhatTheSameGrammarSaysInThisProcess) {
  for (const Grammar& grammar :
       {Grammar{"root ::= [a-z]+ \" \" [0-9]{3} root", {}}, Grammar{"root ::= \"e\" [a-d]+", {"e"}},
        Grammar{"root ::= [^\"]*", {}}}) {
    const SamplingOptions options{
        .seed = 7, .grammar = grammar.text, .grammar_triggers = grammar.triggers};
    auto here = Sampler::Create(options, DemoVocab(), DemoVocab().size(), 64);
    ASSERT_TRUE(here) << here.error().message;
    auto there = Sampler::CreateWith(Open(grammar), options, DemoVocab(), DemoVocab().size(), 64);
    ASSERT_TRUE(there) << there.error().message;
    for (int text = 0; text < 2; ++text) {
      const std::vector<Token> expected = Write(*here);
      EXPECT_GE(expected.size(), 2U);
      EXPECT_EQ(Write(*there), expected) << grammar.text;
      here->RestartGrammar();
      there->RestartGrammar();
    }
  }
}

TEST_F(SampledGrammarTest, AnOpenedGrammarShapesTheText) {
  auto sampler = Sampler::CreateWith(Open({"root ::= \"once\"", {}}), {.temp = 0.0F}, DemoVocab(),
                                     DemoVocab().size(), 64);
  ASSERT_TRUE(sampler) << sampler.error().message;
  std::string text;
  while (text.size() < 4) {
    text += DemoVocab().Piece(sampler->Pick(std::vector<float>(DemoVocab().size(), 0.0F)).value());
  }
  EXPECT_EQ(text, "once");
}

}  // namespace
}  // namespace moestro
