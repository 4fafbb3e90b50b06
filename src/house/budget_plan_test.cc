// SPDX-License-Identifier: MIT
#include "house/budget_plan.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace moestro {
namespace {

using Answer = BudgetPlan::Answer;
using Kind = BudgetPlan::Order::Kind;

// A plan whose processes start and end as ordered.
class PlanTest : public ::testing::Test {
 protected:
  size_t Add(uint64_t smallest, uint64_t best, double keep_alive = BudgetPlan::kForEver) {
    const size_t model = plan_.Add(keep_alive);
    plan_.SetNeeds(model, {.smallest = smallest, .best = best});
    return model;
  }
  // Carries out all orders, and says how many there were.
  int Settle() {
    int n = 0;
    for (auto order = plan_.Next(now_); order; order = plan_.Next(now_), ++n) {
      if (order->kind == Kind::kStart) {
        plan_.Ready(order->model, now_);
      } else {
        plan_.Ended(order->model, now_);
      }
    }
    return n;
  }
  // A request from its beginning to its end.
  Answer Use(size_t model) {
    now_ += 1.0;
    const Answer answer = plan_.Ask(model, now_).answer;
    if (answer != Answer::kReady && answer != Answer::kSoon) return answer;
    Settle();
    plan_.Leave(model, now_);
    return answer;
  }

  BudgetPlan plan_{100};
  double now_ = 1000.0;
};

TEST_F(PlanTest, AModelGetsWhatSuitsItBestOrWhatIsLeft) {
  const size_t a = Add(10, 70);
  const size_t b = Add(10, 50);
  EXPECT_EQ(Use(a), Answer::kSoon);
  EXPECT_EQ(plan_.bytes_of(a), 70U);
  EXPECT_EQ(Use(b), Answer::kSoon);
  EXPECT_EQ(plan_.bytes_of(b), 30U);
  EXPECT_EQ(plan_.bytes_of(a), 70U) << "30 is enough for b's comfort";
  EXPECT_EQ(Use(a), Answer::kReady);
}

TEST_F(PlanTest, TheOneThatRestedLongestShrinksFirst) {
  const size_t a = Add(10, 50);
  const size_t b = Add(10, 50);
  const size_t c = Add(10, 40);
  Use(a);
  Use(b);
  Use(c);
  EXPECT_EQ(plan_.bytes_of(a), 10U);
  EXPECT_EQ(plan_.state(a), HouseState::kReady) << "started again with its smallest";
  EXPECT_EQ(plan_.bytes_of(b), 50U);
  EXPECT_EQ(plan_.bytes_of(c), 40U);
  EXPECT_EQ(plan_.counts().shrinks, 1U);
  EXPECT_EQ(plan_.counts().ends, 0U);
  EXPECT_EQ(plan_.counts().loads, 4U);
}

TEST_F(PlanTest, WhereShrinkingIsNotEnoughTheOneThatRestedLongestEnds) {
  const size_t a = Add(45, 50);
  const size_t b = Add(45, 50);
  const size_t c = Add(45, 50);
  Use(a);
  Use(b);
  Use(a);
  Use(c);
  EXPECT_EQ(plan_.state(b), HouseState::kAbsent);
  EXPECT_EQ(plan_.state(a), HouseState::kReady);
  EXPECT_EQ(plan_.bytes_of(a), 50U);
  EXPECT_EQ(plan_.counts().ends, 1U);
  EXPECT_EQ(plan_.counts().shrinks, 0U);
}

TEST_F(PlanTest, ARunningModelKeepsItsBytes) {
  const size_t a = Add(10, 95);
  const size_t b = Add(10, 10);
  EXPECT_EQ(plan_.Ask(a, now_).answer, Answer::kSoon);
  Settle();
  const auto refused = plan_.Ask(b, now_);
  EXPECT_EQ(refused.answer, Answer::kFull);
  EXPECT_EQ(refused.holders, std::vector<size_t>{a});
  EXPECT_EQ(plan_.running(b), 0U);
  EXPECT_EQ(plan_.counts().refusals, 1U);
  EXPECT_EQ(plan_.bytes_of(a), 95U);
  plan_.Leave(a, now_);
  EXPECT_EQ(Use(b), Answer::kSoon);
  EXPECT_EQ(plan_.bytes_of(a), 10U);
}

TEST_F(PlanTest, ARefusedRequestChangesNothing) {
  const size_t a = Add(60, 60);
  const size_t b = Add(30, 30);
  const size_t c = Add(50, 50);
  Use(b);
  plan_.Ask(a, now_);
  Settle();
  EXPECT_EQ(plan_.Ask(c, now_).answer, Answer::kFull) << "b's 30 and the free 10 are too few";
  EXPECT_EQ(Settle(), 0);
  EXPECT_EQ(plan_.state(b), HouseState::kReady);
}

TEST_F(PlanTest, AModelThatNoBudgetHoldsSaysSo) {
  const size_t a = Add(101, 200);
  EXPECT_EQ(plan_.Ask(a, now_).answer, Answer::kTooLarge);
  EXPECT_EQ(plan_.running(a), 0U);
}

TEST_F(PlanTest, BytesCountUntilTheProcessHasEnded) {
  const size_t a = Add(60, 60);
  const size_t b = Add(60, 60);
  Use(a);
  EXPECT_EQ(plan_.Ask(b, now_).answer, Answer::kSoon);
  const auto order = plan_.Next(now_);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->kind, Kind::kEnd);
  EXPECT_EQ(order->model, a);
  EXPECT_FALSE(plan_.Next(now_)) << "b waits";
  EXPECT_EQ(plan_.held(), 60U);
  plan_.Ended(a, now_);
  const auto start = plan_.Next(now_);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->kind, Kind::kStart);
  EXPECT_EQ(start->bytes, 60U);
}

TEST_F(PlanTest, AModelThatEndsAndIsAskedForComesBack) {
  const size_t a = Add(60, 60);
  const size_t b = Add(60, 60);
  Use(a);
  plan_.Ask(b, now_);
  plan_.Next(now_);  // a ends
  EXPECT_EQ(plan_.Ask(a, now_).answer, Answer::kFull) << "b's request waits";
  plan_.Leave(b, now_);  // its client has left
  EXPECT_EQ(plan_.Ask(a, now_).answer, Answer::kSoon);
  plan_.Ended(a, now_);
  const auto start = plan_.Next(now_);
  ASSERT_TRUE(start);
  EXPECT_EQ(start->model, a);
  EXPECT_EQ(plan_.state(b), HouseState::kAbsent);
}

TEST_F(PlanTest, TwoRequestsLoadAtOnce) {
  const size_t a = Add(30, 50);
  const size_t b = Add(30, 50);
  const size_t c = Add(30, 50);
  for (const size_t model : {a, b}) EXPECT_EQ(plan_.Ask(model, now_).answer, Answer::kSoon);
  EXPECT_EQ(plan_.Ask(a, now_).answer, Answer::kSoon);
  EXPECT_EQ(plan_.running(a), 2U);
  EXPECT_EQ(plan_.Ask(c, now_).answer, Answer::kFull) << "both have requests that wait";
  EXPECT_EQ(Settle(), 2);
}

TEST_F(PlanTest, KeepAliveEndsWhatRests) {
  const size_t a = Add(10, 20, 300.0);
  const size_t b = Add(10, 20);
  Use(a);
  Use(b);
  now_ += 299.0 - 1.0;
  EXPECT_EQ(Settle(), 0);
  now_ += 1.0;
  EXPECT_EQ(Settle(), 1);
  EXPECT_EQ(plan_.state(a), HouseState::kAbsent);
  now_ += 1e9;
  EXPECT_EQ(Settle(), 0);
  EXPECT_EQ(plan_.state(b), HouseState::kReady);
}

TEST_F(PlanTest, ARequestsKeepAliveCountsUntilTheNextRequest) {
  const size_t a = Add(10, 20);
  plan_.Ask(a, now_);
  Settle();
  plan_.Leave(a, now_, 0.0);
  EXPECT_EQ(Settle(), 1) << "ends at once";
  plan_.Ask(a, now_);
  Settle();
  plan_.Leave(a, now_, 60.0);
  EXPECT_EQ(plan_.expires(a), now_ + 60.0);
  Use(a);
  EXPECT_EQ(plan_.expires(a), std::nullopt);
}

TEST_F(PlanTest, AShrunkModelGrowsOnceThereIsRoomAndItRests) {
  const size_t a = Add(10, 90);
  const size_t b = Add(40, 90, 10.0);
  Use(a);
  Use(b);
  EXPECT_EQ(plan_.bytes_of(a), 10U);
  EXPECT_EQ(plan_.bytes_of(b), 90U);
  now_ += 10.0;
  EXPECT_EQ(Settle(), 1) << "b ends";
  EXPECT_EQ(plan_.bytes_of(a), 10U) << "a may be asked for at any moment";
  now_ += BudgetPlan::kGrowAfter;
  EXPECT_EQ(Settle(), 2);
  EXPECT_EQ(plan_.bytes_of(a), 90U);
  EXPECT_EQ(plan_.counts().growths, 1U);
  now_ += 1e6;
  EXPECT_EQ(Settle(), 0);
}

TEST_F(PlanTest, NoModelStartsAgainForLittle) {
  const size_t a = Add(48, 50);
  const size_t b = Add(51, 51);
  Use(a);
  Use(b);
  EXPECT_EQ(plan_.counts().shrinks, 0U);
  EXPECT_EQ(plan_.state(a), HouseState::kAbsent);
}

TEST_F(PlanTest, ARunningModelIsNotUnloaded) {
  const size_t a = Add(10, 20);
  plan_.Ask(a, now_);
  Settle();
  EXPECT_FALSE(plan_.Unload(a));
  plan_.Leave(a, now_);
  EXPECT_TRUE(plan_.Unload(a));
  EXPECT_EQ(Settle(), 1);
  EXPECT_EQ(plan_.state(a), HouseState::kAbsent);
  EXPECT_TRUE(plan_.Unload(a)) << "twice is once";
  EXPECT_EQ(plan_.counts().ends, 1U);
}

TEST_F(PlanTest, AProcessThatDiesIsStartedAgainAndRestsIfItDiesAgain) {
  const size_t a = Add(10, 20);
  Use(a);
  plan_.Ended(a, now_);
  EXPECT_EQ(Settle(), 1) << "at once";
  EXPECT_EQ(plan_.state(a), HouseState::kReady);
  now_ += 1.0;
  plan_.Ended(a, now_);
  EXPECT_EQ(Settle(), 0);
  now_ += 2.0;
  EXPECT_EQ(Settle(), 1);
  now_ += BudgetPlan::kSoundSeconds;
  plan_.Ended(a, now_);
  EXPECT_EQ(Settle(), 1) << "it was sound";
  EXPECT_EQ(plan_.counts().deaths, 3U);
}

TEST_F(PlanTest, NobodyWaitsLongForAProcessThatDiesAgainAndAgain) {
  const size_t a = Add(10, 20);
  Use(a);
  std::vector<Answer> answers;
  for (int i = 0; i < 6; ++i) {
    plan_.Ended(a, now_);
    const auto verdict = plan_.Ask(a, now_);
    answers.push_back(verdict.answer);
    if (verdict.answer == Answer::kSoon) plan_.Leave(a, now_);
    now_ += BudgetPlan::kMostRest;
    Settle();
    EXPECT_EQ(plan_.state(a), HouseState::kReady);
  }
  EXPECT_EQ(answers[0], Answer::kSoon);
  EXPECT_EQ(answers[3], Answer::kSoon) << "after 4 s";
  EXPECT_EQ(answers[4], Answer::kResting) << "after 8 s";
}

TEST_F(PlanTest, AProcessThatDiesAtItsStartIsTriedAgainLaterAndLater) {
  const size_t a = Add(10, 20);
  double last = 0.0;
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(plan_.Ask(a, now_).answer, Answer::kSoon);
    ASSERT_TRUE(plan_.Next(now_));
    plan_.Ended(a, now_);
    plan_.Leave(a, now_);
    EXPECT_EQ(plan_.held(), 0U);
    const auto verdict = plan_.Ask(a, now_);
    EXPECT_EQ(verdict.answer, Answer::kResting);
    EXPECT_GE(verdict.seconds, last);
    EXPECT_LE(verdict.seconds, BudgetPlan::kMostRest);
    last = verdict.seconds;
    now_ += last;
  }
  EXPECT_EQ(last, BudgetPlan::kMostRest);
}

TEST_F(PlanTest, AChangedFileIsReadAgain) {
  const size_t a = Add(10, 20);
  plan_.Ask(a, now_);
  EXPECT_FALSE(plan_.Renew(a)) << "not ready";
  Settle();
  EXPECT_FALSE(plan_.Renew(a)) << "a text runs";
  plan_.Leave(a, now_);
  plan_.SetNeeds(a, {.smallest = 15, .best = 90});
  EXPECT_TRUE(plan_.Renew(a));
  EXPECT_EQ(plan_.Ask(a, now_).answer, Answer::kSoon);
  EXPECT_EQ(Settle(), 2);
  EXPECT_EQ(plan_.bytes_of(a), 20U);
  plan_.Leave(a, now_);
  plan_.SetNeeds(a, {.smallest = 50, .best = 90});
  EXPECT_TRUE(plan_.Renew(a));
  EXPECT_EQ(Use(a), Answer::kSoon);
  EXPECT_EQ(plan_.bytes_of(a), 90U);
}

// Whatever is asked for, in whatever order processes start, end and die.
TEST(PlanRandom, TheBudgetHoldsAndRunningModelsStay) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](uint64_t n) { return static_cast<size_t>(random() % n); };
    BudgetPlan plan(100);
    const size_t n = 2 + below(5);
    for (size_t m = 0; m < n; ++m) {
      plan.Add(below(3) == 0 ? 5.0 : BudgetPlan::kForEver);
      const uint64_t smallest = 1 + below(60);
      plan.SetNeeds(m, {.smallest = smallest, .best = smallest + below(80)});
    }
    std::vector<bool> is_ending(n);
    double now = 0.0;
    for (int step = 0; step < 400; ++step) {
      now += 0.25 * static_cast<double>(below(8));
      const size_t m = below(n);
      const bool was_running = plan.running(m) > 0;
      const HouseState before = plan.state(m);
      switch (below(6)) {
        case 0:
        case 1:
          plan.Ask(m, now);
          break;
        case 2:
          if (was_running) plan.Leave(m, now);
          break;
        case 3:
          plan.Unload(m);
          if (was_running) {
            EXPECT_EQ(plan.state(m), before);
          }
          break;
        case 4:
          if (before == HouseState::kStarting) plan.Ready(m, now);
          if (is_ending[m]) plan.Ended(m, now);
          is_ending[m] = false;
          break;
        default:
          if (below(10) == 0 && before == HouseState::kReady) plan.Ended(m, now);
      }
      for (auto order = plan.Next(now); order; order = plan.Next(now)) {
        if (order->kind == Kind::kEnd) {
          is_ending[order->model] = true;
          EXPECT_EQ(plan.running(order->model), 0U) << "seed " << seed;
        } else {
          EXPECT_FALSE(is_ending[order->model]) << "seed " << seed;
        }
      }
      ASSERT_LE(plan.held(), 100U) << "seed " << seed << " step " << step;
    }
    // Nobody waits for ever.
    for (int round = 0; round < 50; ++round) {
      now += 31.0;
      for (size_t m = 0; m < n; ++m) {
        if (is_ending[m]) plan.Ended(m, now);
        is_ending[m] = false;
        if (plan.state(m) == HouseState::kStarting) plan.Ready(m, now);
      }
      for (auto order = plan.Next(now); order; order = plan.Next(now)) {
        if (order->kind == Kind::kEnd) is_ending[order->model] = true;
      }
    }
    for (size_t m = 0; m < n; ++m) {
      const bool rests =
          plan.state(m) == HouseState::kReady || plan.state(m) == HouseState::kAbsent;
      EXPECT_TRUE(rests) << "seed " << seed << " model " << m;
      if (plan.running(m) > 0) {
        EXPECT_EQ(plan.state(m), HouseState::kReady) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace moestro
