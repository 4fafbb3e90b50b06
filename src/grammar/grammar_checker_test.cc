// SPDX-License-Identifier: MIT
#include "grammar/grammar_checker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/demo_vocab_testing.h"
#include "tests/support/sanitized_testing.h"

namespace moestro {
namespace {

using std::chrono_literals::operator""ms;

class GrammarCheckerTest : public testing::Test {
 protected:
  static std::unique_ptr<GrammarChecker> Start(std::chrono::milliseconds trial = 20'000ms) {
    auto checker =
        GrammarChecker::Start(DemoVocab(), {.n_tokens = DemoVocab().size(), .trial = trial});
    EXPECT_TRUE(checker) << checker.error().message;
    return checker ? std::move(*checker) : nullptr;
  }
  static void ExpectRefused(GrammarChecker& checker, const Grammar& grammar,
                            const std::string& reason) {
    const Status status = checker.Check(grammar);
    ASSERT_FALSE(status) << grammar.text.substr(0, 60);
    EXPECT_EQ(status.error().code, Errc::kInvalidRequest);
    EXPECT_NE(status.error().message.find(reason), std::string::npos) << status.error().message;
  }
  // A grammar whose trial takes all the time allowed.
  static constexpr const char* kExpensive = "root ::= (\"a\"?){1,1000}";
  static void KillBoth(const GrammarChecker& checker) {
    kill(checker.spawner_id(), SIGKILL);
    kill(checker.helper_id(), SIGKILL);
  }
  static size_t OpenFiles(int process) {
    const std::filesystem::directory_iterator files("/proc/" + std::to_string(process) + "/fd");
    return static_cast<size_t>(std::distance(begin(files), end(files)));
  }
};

TEST_F(GrammarCheckerTest, PassesGoodGrammarsAndSaysWhatIsWrongWithOthers) {
  const auto checker = Start();
  EXPECT_TRUE(checker->Check({"root ::= \"a\"", {}}));
  EXPECT_TRUE(checker->Check({"root ::= \"<t>a\"", {"<t>", "(*"}}));
  ExpectRefused(*checker, {"root := \"a\"", {}}, "expecting ::=");
  ExpectRefused(*checker, {"root ::= \"\\x00\"", {}}, "allows no token");
  ExpectRefused(*checker, {"root ::= root \"a\" | \"b\"", {}}, "left recursion");
  ExpectRefused(*checker, {std::string("root ::= \"a\0b\"", 14), {}}, "byte 11");
  ExpectRefused(*checker, {"root ::= \"" + std::string(300'000, 'a') + "\"", {}}, "too long");
  ExpectRefused(*checker, {"root ::= \"a\"", {""}}, "trigger");
  ExpectRefused(*checker, {"root ::= \"a\"", {"\xff"}}, "trigger");
}

// Each grammar here costs the trial its life, not the process that runs the trials.
TEST_F(GrammarCheckerTest, SurvivesHostileGrammars) {
  const auto checker = Start();
  // A sanitizer reports the end of the stack before the library does.
  ExpectRefused(*checker, {"root ::= " + std::string(250'000, '('), {}},
                kIsSanitized ? "Sanitizer" : "does not survive");
  ExpectRefused(*checker, {"root ::= \"a\"{1000000}", {}}, "repetitions");
  EXPECT_TRUE(checker->Check({"root ::= \"b\"", {}}));
}

TEST_F(GrammarCheckerTest, EndsWhatTakesTooLong) {
  const auto checker = Start(0ms);
  ExpectRefused(*checker, {"root ::= \"a\"", {}}, "too long");
  ExpectRefused(*checker, {"root ::= \"b\"", {}}, "too long");
}

TEST_F(GrammarCheckerTest, AnswersSeveralThreads) {
  const auto checker = Start();
  std::atomic<int> wrong = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 6; ++i) {
          const std::string good = "root ::= \"" + std::to_string(t * 3 + i) + "\"";
          if (!checker->Check({good, {}})) ++wrong;
          if (checker->Check({good + " missing", {}})) ++wrong;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

// After the death of the process that begins them, each grammar that was not remembered failed.
TEST_F(GrammarCheckerTest, AHelperThatDiesIsReplaced) {
  const auto checker = Start();
  for (int i = 0; i < 3; ++i) {
    const std::string number = std::to_string(i);
    const int helper = checker->helper_id();
    auto running = checker->Open({"root ::= \"once\"", {}});
    ASSERT_TRUE(running);
    EXPECT_TRUE((*running)->Allowed(DemoVocab().size())) << "it has begun";
    kill(helper, SIGKILL);
    EXPECT_TRUE(checker->Check({"root ::= \"a" + number + "\"", {}}));
    ExpectRefused(*checker, {"root := \"" + number + "\"", {}}, "expecting ::=");
    EXPECT_NE(checker->helper_id(), helper);
    EXPECT_TRUE((*running)->Allowed(DemoVocab().size())) << "a text that runs goes on";
  }
  kill(checker->helper_id(), SIGKILL);
  auto opened = checker->Open({"root ::= \"once\"", {}});
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE((*opened)->Allowed(DemoVocab().size()));
}

TEST_F(GrammarCheckerTest, WithoutTheSpawnerTheHelperGoesOn) {
  const auto checker = Start();
  kill(checker->spawner_id(), SIGKILL);
  EXPECT_TRUE(checker->Check({"root ::= \"a\"", {}}));
}

// A grammar's long trial holds up no other grammar.
TEST_F(GrammarCheckerTest, AGrammarDoesNotWaitForAnExpensiveOne) {
  const auto checker = Start();
  std::atomic<bool> has_ended = false;
  std::jthread slow([&] {
    [[maybe_unused]] const Status status = checker->Check({kExpensive, {}});
    has_ended = true;
  });
  int quick = 0;
  while (!has_ended) {
    EXPECT_TRUE(checker->Check({"root ::= \"" + std::to_string(quick) + "\"", {}}));
    ++quick;
  }
  EXPECT_GT(quick, 2) << "one before, one behind its short trial, others beside the long one";
}

TEST_F(GrammarCheckerTest, ATrialEndsWhenItIsNotWantedAnyMore) {
  const auto checker = Start();
  const Status status = checker->Check({kExpensive, {}}, [] { return true; });
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kInterrupted);
  EXPECT_TRUE(checker->Check({"root ::= \"a\"", {}}));
}

TEST_F(GrammarCheckerTest, WithoutBothOnlyWhatIsRememberedIsAnswered) {
  const auto checker = Start();
  EXPECT_TRUE(checker->Check({"root ::= \"a\"", {}}));
  KillBoth(*checker);
  for (int i = 0; i < 2; ++i) {
    const Status status = checker->Check({"root ::= \"b\"", {}});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Errc::kIo);
  }
  EXPECT_TRUE(checker->Check({"root ::= \"a\"", {}}));
  EXPECT_FALSE(checker->Check({"root ::= \"a\"", {"a"}})) << "another trigger, another grammar";
}

TEST_F(GrammarCheckerTest, TheLatestGrammarsAreRemembered) {
  const auto checker = Start();
  const auto grammar = [](int i) { return Grammar{"root ::= \"" + std::to_string(i) + "\"", {}}; };
  EXPECT_TRUE(checker->Check(grammar(0)));
  EXPECT_TRUE(checker->Check(grammar(1)));
  for (int i = 2; i < 65; ++i) {
    EXPECT_TRUE(checker->Check(grammar(i)));
    EXPECT_TRUE(checker->Check(grammar(0)));
  }
  KillBoth(*checker);
  EXPECT_TRUE(checker->Check(grammar(0)));
  EXPECT_TRUE(checker->Check(grammar(64)));
  EXPECT_FALSE(checker->Check(grammar(1)));
}

TEST_F(GrammarCheckerTest, TheChildrenKeepNothingOpenAndEndWithTheirOwner) {
  const int file = open("/dev/null", O_RDONLY);
  std::vector<int> children;
  {
    const auto checker = Start();
    children = {checker->spawner_id(), checker->helper_id()};
    EXPECT_TRUE(checker->Check({"root ::= \"a\"", {}}));
    for (const int child : children) {
      EXPECT_EQ(OpenFiles(child), 4U) << "its standard files and its socket";
    }
  }
  close(file);
  for (const int child : children) EXPECT_NE(kill(child, 0), 0) << "it still runs";
}

}  // namespace
}  // namespace moestro
