// SPDX-License-Identifier: MIT
// Texts with grammars: each has its own open while it runs, and not before or after.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "serve/scheduler.h"
#include "tests/serve/scheduler_testing.h"

namespace moestro {
namespace {

struct Count {
  int open = 0;
  int most = 0;
  int ever = 0;
};

// Lets everything through and is counted.
class CountedFilter final : public TokenFilter {
 public:
  explicit CountedFilter(Count& count) : count_(count) {
    count_.most = std::max(count_.most, ++count_.open);
    ++count_.ever;
  }
  CountedFilter(const CountedFilter&) = delete;
  CountedFilter& operator=(const CountedFilter&) = delete;
  ~CountedFilter() override { --count_.open; }
  Result<bool> Take(Token) override { return true; }
  Result<std::vector<bool>> Allowed(uint32_t n) override { return std::vector<bool>(n, true); }
  void Restart() override {}

 private:
  Count& count_;
};

OpenGrammar Counting(Count& count) {
  return [&count](const Grammar&) -> Result<std::unique_ptr<TokenFilter>> {
    return std::make_unique<CountedFilter>(count);
  };
}

std::vector<Wish> WithGrammars(std::vector<Wish> wishes) {
  for (Wish& wish : wishes) wish.grammar = "root ::= [a-z]*";
  return wishes;
}

TEST(SchedulerGrammarTest, AsManyAreOpenAsTextsRun) {
  const auto engine = Open();
  Count count;
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 2, .open_grammar = Counting(count)});
  std::vector<std::shared_ptr<Job>> jobs;
  for (const Wish& wish : WithGrammars(kWishes)) {
    jobs.push_back(Make(wish));
    ASSERT_TRUE(scheduler.Submit(jobs.back()));
  }
  EXPECT_EQ(count.ever, 0) << "none runs yet";
  scheduler.Drain();
  EXPECT_TRUE(scheduler.Run());
  EXPECT_EQ(count.most, 2);
  EXPECT_TRUE(std::cmp_equal(count.ever, jobs.size())) << count.ever;
  EXPECT_EQ(count.open, 0) << "while the clients still read";
  for (const auto& job : jobs) EXPECT_TRUE(Listen(*job).end);
}

// A text that gives up its positions keeps its grammar's state, and no other text begins meanwhile.
TEST(SchedulerGrammarTest, TextsThatGaveUpTheirPositionsCount) {
  const auto engine = Open({.ctx = 200, .positions = 224});
  Count count;
  Scheduler scheduler(*engine, DemoVocab(), {.parallel = 3, .open_grammar = Counting(count)});
  std::vector<Wish> wishes = WithGrammars(kWishes);
  for (Wish& wish : wishes) wish.tokens = 90;
  for (const Said& said : ServeAll(scheduler, wishes)) EXPECT_TRUE(said.end);
  EXPECT_LE(count.most, 3);
  EXPECT_TRUE(std::cmp_equal(count.ever, wishes.size())) << "each is opened once";
}

TEST(SchedulerGrammarTest, OneThatCannotBeOpenedFailsItsJobAlone) {
  const auto engine = Open();
  const OpenGrammar fails = [](const Grammar&) -> Result<std::unique_ptr<TokenFilter>> {
    return Fail(Errc::kIo, "no process");
  };
  Scheduler scheduler(*engine, DemoVocab(), {.open_grammar = fails});
  std::vector<Wish> wishes = {kWishes[0], kWishes[1]};
  wishes[0].grammar = "root ::= \"a\"";
  const std::vector<Said> said = ServeAll(scheduler, wishes);
  ASSERT_TRUE(said[0].error);
  EXPECT_EQ(said[0].error->message, "no process");
  EXPECT_TRUE(said[1].end);
  EXPECT_EQ(scheduler.status().totals.failed, 1U);
}

}  // namespace
}  // namespace moestro
