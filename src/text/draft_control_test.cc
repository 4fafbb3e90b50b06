// SPDX-License-Identifier: MIT
// Drafts as long as they pay, and a bounded loss where they do not.
#include "text/draft_control.h"

#include <gtest/gtest.h>

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
