// SPDX-License-Identifier: MIT
// Drafts as long as they pay, and a bounded loss where they do not.
#include "text/draft_control.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace moestro {
namespace {

// A machine on which a row more costs `row` plain steps, drafting a token `draft`, and drafts are
// right with probability p. At first a step takes `cold` times as long, and after a draft the next
// ones take `crowded` times as long.
struct Pretended {
  double row = 0.5;
  double draft = 0.0;
  double p = 0.5;
  double cold = 1.0;
  double crowded = 1.0;

  double ColdFactor(uint32_t token) const {
    return 1.0 + (cold - 1.0) * std::exp(-static_cast<double>(token) / 6.0);
  }
};

struct Outcome {
  double seconds = 0.0;
  double plain_seconds = 0.0;  // without drafts
  uint32_t tokens = 0;
  uint32_t drafted = 0;
};

Outcome Play(const Pretended& machine, uint32_t most, uint32_t tokens, uint32_t seed = 1,
             double noise = 0.0) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform;
  DraftControl control(most);
  Outcome outcome;
  int crowded = 0;
  while (outcome.tokens < tokens) {
    double factor = 1.0 + noise * (uniform(random) - 0.5);
    factor *= machine.ColdFactor(outcome.tokens) * (crowded > 0 ? machine.crowded : 1.0);
    --crowded;
    const uint32_t n = control.Next();
    EXPECT_LE(n, most);
    if (n == 0) {
      control.Plain(factor);
      outcome.seconds += factor;
      ++outcome.tokens;
      continue;
    }
    DraftRound round{.draft_seconds = n * machine.draft * factor,
                     .step_seconds = (1.0 + n * machine.row) * factor,
                     .drafted = n};
    while (round.accepted < n && uniform(random) < machine.p) ++round.accepted;
    control.Round(round);
    outcome.seconds += round.draft_seconds + round.step_seconds;
    outcome.tokens += round.accepted + 1;
    outcome.drafted += n;
    crowded = 3;
  }
  for (uint32_t i = 0; i < outcome.tokens; ++i) outcome.plain_seconds += machine.ColdFactor(i);
  return outcome;
}

TEST(DraftControl, UselessDraftsCostThreePercentAtMost) {
  for (const double row : {0.05, 0.3, 0.6, 0.9, 1.0}) {
    for (const double draft : {0.0, 0.1, 0.5}) {
      for (const double noise : {0.0, 0.5}) {
        for (uint32_t seed = 1; seed <= 5; ++seed) {
          const Outcome outcome = Play({.row = row, .draft = draft, .p = 0.0}, 8, 512, seed, noise);
          EXPECT_LE(outcome.seconds, 1.03 * outcome.plain_seconds) << row << " " << draft;
          // Noise may look like a gain for a while.
          if (noise > 0.0) continue;
          EXPECT_LE(outcome.drafted, 24U) << row << " " << draft;
          EXPECT_GT(outcome.drafted, 0U);
        }
      }
    }
  }
}

// An engine's beginning: no expert is in memory yet, and a wrong draft's experts crowd out others.
TEST(DraftControl, AColdStartDoesNotMakeDraftsLookCheap) {
  for (const double p : {0.0, 0.3, 0.6}) {
    const Outcome outcome =
        Play({.row = 0.8, .draft = 0.5, .p = p, .cold = 6.0, .crowded = 1.2}, 4, 512, 2, 0.3);
    EXPECT_LE(outcome.seconds, 1.03 * outcome.plain_seconds) << p;
  }
}

TEST(DraftControl, WhatHardlyPaysCostsNoMoreEither) {
  for (double p = 0.1; p < 1.0; p += 0.1) {
    for (const double row : {0.1, 0.4, 0.8}) {
      const Outcome outcome = Play({.row = row, .draft = 0.2, .p = p}, 8, 512, 3, 0.2);
      EXPECT_LE(outcome.seconds, 1.03 * outcome.plain_seconds) << p << " " << row;
    }
  }
}

TEST(DraftControl, LongDraftsWhereTheyAreCheapAndRight) {
  const Outcome outcome = Play({.row = 0.2, .draft = 0.05, .p = 0.9}, 8, 512);
  // With drafts of eight a round makes 6.1 tokens in the time of 3 steps.
  EXPECT_LT(outcome.seconds, 0.6 * outcome.plain_seconds);
}

TEST(DraftControl, ShortDraftsWhereRowsAreDear) {
  const Outcome outcome = Play({.row = 0.7, .draft = 0.0, .p = 0.85}, 8, 512);
  EXPECT_LT(outcome.seconds, 1.0 * outcome.plain_seconds);
}

// A machine whose steps wait for the disk for a share of their time, which falls by `warms` with
// each token; a draft's rows read what they are expected to read.
struct Streaming {
  double waits = 0.0;
  double warms = 0.0;
  double p = 0.7;

  StepCosts At(uint32_t token) const {
    const double share = std::max(0.0, waits - warms * token);
    return {.seconds = 1.0, .wait_seconds = share, .touched_bytes = 2000, .expert_bytes = 1000};
  }
};

Outcome PlayPriced(const Streaming& machine, uint32_t tokens, DraftControl& control,
                   uint32_t seed = 4) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform;
  Outcome outcome;
  while (outcome.tokens < tokens) {
    const DraftPrices prices = PriceDrafts(machine.At(outcome.tokens), 200, 48);
    const uint32_t n = control.Next();
    if (n == 0) {
      control.Plain(1.0);
      control.Expect(prices);
      outcome.seconds += 1.0;
      ++outcome.tokens;
      continue;
    }
    DraftRound round{
        .draft_seconds = n * prices.draft, .step_seconds = 1.0 + n * prices.row, .drafted = n};
    while (round.accepted < n && uniform(random) < machine.p) ++round.accepted;
    control.Round(round);
    outcome.seconds += round.draft_seconds + round.step_seconds;
    outcome.tokens += round.accepted + 1;
    outcome.drafted += n;
  }
  outcome.plain_seconds = outcome.tokens;
  return outcome;
}

// The mean of many texts' times, as a share of their times without drafts.
double MeanShare(const Streaming& machine, uint32_t tokens) {
  constexpr uint32_t kTexts = 20;
  double sum = 0.0;
  for (uint32_t seed = 1; seed <= kTexts; ++seed) {
    DraftControl control(3, DraftStart::kPriced);
    const Outcome outcome = PlayPriced(machine, tokens, control, seed);
    sum += outcome.seconds / outcome.plain_seconds;
  }
  return sum / kTexts;
}

TEST(DraftControl, PricedDraftsBeginWhereTheyArePromisedToPay) {
  EXPECT_LT(MeanShare({.waits = 0.0}, 512), 0.93);
  EXPECT_LT(MeanShare({.waits = 0.0, .p = 0.9}, 512), 0.8);
  DraftControl in_memory(3, DraftStart::kPriced);
  (void)PlayPriced({.waits = 0.0, .p = 1.0}, 512, in_memory);
  EXPECT_TRUE(in_memory.figures().is_measured);
  EXPECT_LT(in_memory.figures().drafted_seconds, in_memory.figures().plain_seconds);
  DraftControl streaming(3, DraftStart::kPriced);
  EXPECT_EQ(PlayPriced({.waits = 0.8}, 512, streaming).drafted, 0U);
  EXPECT_FALSE(streaming.figures().is_measured);
  EXPECT_GT(streaming.figures().drafted_seconds, streaming.figures().plain_seconds);
}

TEST(DraftControl, PricedDraftsLoseLittleHoweverOftenTheyAreWrong) {
  for (const double waits : {0.0, 0.1, 0.3, 0.5, 0.8}) {
    for (const double p : {0.0, 0.3, 0.5, 0.7, 0.9}) {
      for (uint32_t seed = 1; seed <= 10; ++seed) {
        DraftControl control(3, DraftStart::kPriced);
        const Outcome outcome = PlayPriced({.waits = waits, .p = p}, 1024, control, seed);
        EXPECT_LE(outcome.seconds, 1.03 * outcome.plain_seconds) << waits << " " << p;
      }
    }
  }
}

TEST(DraftControl, PricedDraftsBeginOnceExpertsAreInMemory) {
  EXPECT_LT(MeanShare({.waits = 0.9, .warms = 0.005}, 1024), 0.95);
}

TEST(DraftControl, NothingIsDraftedBeforeAPriceIsKnown) {
  DraftControl control(3, DraftStart::kPriced);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(control.Next(), 0U);
    control.Plain(1.0);
  }
}

TEST(DraftControl, TriesAgainAfterAWhile) {
  DraftControl control(4);
  std::vector<int> tries;  // numbers of tokens before each try
  for (int token = 0; token < 2000; ++token) {
    const uint32_t n = control.Next();
    if (n == 0) {
      control.Plain(1.0);
      continue;
    }
    control.Round({.step_seconds = 1.0 + 0.6 * n, .drafted = n});
    tries.push_back(token);
  }
  ASSERT_GT(tries.size(), 4U);
  EXPECT_LT(tries.size(), 30U);
  EXPECT_GT(tries.back(), 1500);
}

}  // namespace
}  // namespace moestro
