// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "grammar/grammar_checker.h"
#include "tests/support/demo_vocab_testing.h"

namespace moestro {
namespace {

using std::chrono_literals::operator""ms;

class GrammarProcessTest : public testing::Test {
 protected:
  static constexpr uint32_t kMostTexts = 3;
  void SetUp() override {
    auto started = GrammarChecker::Start(
        DemoVocab(), {.n_tokens = DemoVocab().size(), .most_texts = kMostTexts});
    ASSERT_TRUE(started) << started.error().message;
    checker_ = std::move(*started);
  }
  std::unique_ptr<TokenFilter> Open(const Grammar& grammar) {
    EXPECT_TRUE(checker_->Check(grammar)) << grammar.text;
    auto opened = checker_->Open(grammar);
    EXPECT_TRUE(opened) << opened.error().message;
    return opened ? std::move(*opened) : nullptr;
  }
  // The processes of texts, and those that have ended since the last request.
  std::vector<int> Children() const {
    const std::string id = std::to_string(checker_->helper_id());
    std::ifstream file("/proc/" + id + "/task/" + id + "/children");
    std::vector<int> children;
    for (int child = 0; file >> child;) children.push_back(child);
    return children;
  }
  static Token TokenOf(char letter) {
    for (Token token = 0; std::cmp_less(token, DemoVocab().size()); ++token) {
      if (DemoVocab().Spelling(token) == std::string(1, letter)) return token;
    }
    ADD_FAILURE() << "no token '" << letter << "'";
    return 0;
  }
  // Takes the letters' tokens and asks what may follow; returns the first error's message, ""
  // without an error.
  static std::string Spell(TokenFilter& grammar, const std::string& letters) {
    std::map<char, Token> tokens;
    for (const char letter : letters) {
      if (!tokens.contains(letter)) tokens[letter] = TokenOf(letter);
      const Result<bool> taken = grammar.Take(tokens[letter]);
      if (!taken) return taken.error().message;
      EXPECT_TRUE(*taken) << letter;
    }
    const auto allowed = grammar.Allowed(DemoVocab().size());
    return allowed ? "" : allowed.error().message;
  }

  std::unique_ptr<GrammarChecker> checker_;
};

// Each of these grammars would take seconds to years.
TEST_F(GrammarProcessTest, AGrammarThatTakesTooLongEndsItsText) {
  const std::string many(600, 'a');
  const std::vector<std::pair<std::string, std::string>> hostile{
      {"root ::= \"a\" root \"b\"? | \"c\"", many + "cbbb"},
      {"root ::= \"qz\" (\"a\"?){1,1000}", "qz"},
      {"root ::= \"a\" root t | \"a\" root u | \"a\" root v | \"b\"\nt ::= \"c\"\nu ::= \"c\"\n"
       "v ::= \"c\"",
       many},
      {"root ::= \"a\" root root? | \"b\"", std::string(400, 'a') + "bb"}};
  const auto good = Open({"root ::= \"a\"+", {}});
  for (const auto& [text, letters] : hostile) {
    const auto grammar = Open({text, {}});
    ASSERT_NE(grammar, nullptr) << text;
    EXPECT_NE(Spell(*grammar, letters).find("less ambiguous"), std::string::npos) << text;
    EXPECT_FALSE(grammar->Take(TokenOf('a'))) << "it is over";
    EXPECT_EQ(Spell(*good, "a"), "") << "others go on";
  }
}

// A caller that opens a grammar without a trial gets the error at the first token.
TEST_F(GrammarProcessTest, AGrammarThatCannotBeginSaysSoWhenItIsAsked) {
  for (const char* text : {"root ::= (\"a\"?){1,1000}", "root"}) {
    const auto opened = checker_->Open({text, {}});
    ASSERT_TRUE(opened) << opened.error().message;
    const auto taken = (*opened)->Take(TokenOf('a'));
    ASSERT_FALSE(taken) << text;
    EXPECT_EQ(taken.error().code, Errc::kInvalidRequest);
    EXPECT_FALSE((*opened)->Allowed(10)) << "it is over";
  }
}

TEST_F(GrammarProcessTest, AProcessEndsWithItsText) {
  auto first = Open({"root ::= \"a\"", {}});
  auto second = Open({"root ::= \"b\"", {}});
  EXPECT_EQ(Spell(*first, "a") + Spell(*second, "b"), "");
  first.reset();
  second.reset();
  for (int i = 0; i < 3000 && !Children().empty(); ++i) std::this_thread::sleep_for(10ms);
  EXPECT_TRUE(Children().empty());
}

TEST_F(GrammarProcessTest, OneThatIsTooManyBeginsWhenAnotherHasEnded) {
  const Grammar grammar{"root ::= \"a\"+", {}};
  std::vector<std::unique_ptr<TokenFilter>> texts;
  // Two more than texts: the trials' places are free.
  for (uint32_t i = 0; i < kMostTexts + 2; ++i) texts.push_back(Open(grammar));
  for (const auto& text : texts) EXPECT_EQ(Spell(*text, "a"), "");
  const auto waiting = Open(grammar);
  EXPECT_LE(Children().size(), kMostTexts + 2);
  texts.pop_back();
  EXPECT_EQ(Spell(*waiting, "a"), "");
  EXPECT_LE(Children().size(), kMostTexts + 2);
}

TEST_F(GrammarProcessTest, ATextDoesNotWaitForATrial) {
  // The trial takes two seconds of processor time.
  const std::jthread trial(
      [this] { EXPECT_FALSE(checker_->Check({"root ::= (\"a\"?){1,1000}", {}})); });
  for (int i = 0; i < 3000 && Children().empty(); ++i) std::this_thread::sleep_for(1ms);
  const std::vector<int> trying = Children();
  ASSERT_EQ(trying.size(), 1U);
  kill(trying.front(), SIGSTOP);
  const auto opened = checker_->Open({"root ::= \"a\"+", {}});
  ASSERT_TRUE(opened);
  EXPECT_EQ(Spell(**opened, "aa"), "");
  kill(trying.front(), SIGCONT);
}

TEST_F(GrammarProcessTest, AKilledProcessEndsItsTextAlone) {
  const auto first = Open({"root ::= \"a\"+", {}});
  EXPECT_EQ(Spell(*first, "a"), "");
  const int killed = Children().back();
  const auto second = Open({"root ::= \"a\"+", {}});
  kill(killed, SIGKILL);
  EXPECT_NE(Spell(*first, "a"), "");
  first->Restart();
  EXPECT_NE(Spell(*first, "a"), "");
  EXPECT_EQ(Spell(*second, "a"), "");
}

TEST_F(GrammarProcessTest, WithoutHelperAndSpawnerThereAreNoNewOnes) {
  const Grammar grammar{"root ::= \"a\"+", {}};
  const auto first = Open(grammar);
  EXPECT_EQ(Spell(*first, "a"), "");
  kill(checker_->spawner_id(), SIGKILL);
  siginfo_t end{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(checker_->spawner_id()), &end, WEXITED | WNOWAIT), 0);
  kill(checker_->helper_id(), SIGKILL);
  // A helper that gets a text before it is dead never begins the text.
  const auto second = checker_->Open(grammar);
  EXPECT_TRUE(!second || !(*second)->Take(TokenOf('a')));
  EXPECT_FALSE(checker_->Open(grammar));
  EXPECT_EQ(Spell(*first, "aaa"), "");
}

}  // namespace
}  // namespace moestro
