// SPDX-License-Identifier: MIT
#include "sim/tune.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moestro {
namespace {

// One layer, one expert a token: easy to reason about.
Trace Routing(const std::vector<uint16_t>& experts, uint32_t n_expert) {
  auto trace = Trace::Create({.model = {.shape = {1, n_expert, 1}}, .expert_bytes = 1});
  EXPECT_TRUE(trace) << trace.error().message;
  for (size_t t = 0; t < experts.size(); ++t) {
    const std::vector<ExpertId> row = {ExpertId{experts[t]}};
    EXPECT_TRUE(trace->Add({.starts_sequence = t == 0, .experts = row}));
  }
  return *std::move(trace);
}

// Every other token is one of three old friends in turn, the others come only once in a while:
// with four slots counting uses keeps the friends, recency loses one of them each time.
Trace FrequencyPays(size_t tokens) {
  std::vector<uint16_t> experts;
  for (size_t t = 0; t < tokens; ++t) {
    experts.push_back(static_cast<uint16_t>(t % 2 == 0 ? t / 2 % 3 : 3 + t / 2 % 29));
  }
  return Routing(experts, 32);
}

// A few experts again and again, then a few others: old counts are in the way.
Trace RecencyPays(size_t tokens) {
  std::vector<uint16_t> experts;
  for (size_t t = 0; t < tokens; ++t) {
    experts.push_back(static_cast<uint16_t>((t / 12 * 4 + t % 4) % 32));
  }
  return Routing(experts, 32);
}

TunedPolicy Tuned(const Trace& trace, const std::string& policy, uint64_t slots) {
  const auto tuned = Tune(trace, {.policy = policy, .slots = slots});
  EXPECT_TRUE(tuned) << tuned.error().message;
  return tuned.value_or(TunedPolicy{});
}

uint64_t LaterMisses(const Trace& trace, const PolicyChoice& policy) {
  const auto result = Replay(trace, {.slots = 4, .policy = policy, .count_from = 200});
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(ReplayResult{}).misses;
}

// A search needs none of these.
TEST(Tune, TakesTracesWithPredictionsAndLittlePasses) {
  auto trace = Trace::Create({.model = {.shape = {2, 8, 2}},
                              .expert_bytes = 1,
                              .depth = 1,
                              .little = 1,
                              .has_weights = true,
                              .has_predicted_weights = true});
  ASSERT_TRUE(trace) << trace.error().message;
  const std::vector<float> weights(4, 0.5F);
  for (uint16_t t = 0; t < 40; ++t) {
    const auto next = static_cast<uint16_t>((t + 1) % 8);
    const ExpertId one{static_cast<uint16_t>(t % 8)};
    const std::vector<ExpertId> rows = {one, {next}, one, {next}};
    const Status added = trace->Add({.starts_sequence = t == 0,
                                     .experts = rows,
                                     .weights = weights,
                                     .predicted = std::span(rows).first(2),
                                     .predicted_weights = std::span(weights).first(2),
                                     .little = {.experts = rows,
                                                .weights = std::span(weights).first(2),
                                                .predicted = std::span(rows).first(1),
                                                .predicted_weights = std::span(weights).first(1)}});
    ASSERT_TRUE(added) << added.error().message;
  }
  const auto tuned = Tune(*trace, {.policy = "lfru", .slots = 4});
  EXPECT_TRUE(tuned) << tuned.error().message;
}

TEST(Tune, FindsWhatWasPlanted) {
  const PolicyChoice lru = {.name = "lru"};
  const PolicyChoice lfu = {.name = "lfu"};
  ASSERT_LT(LaterMisses(RecencyPays(400), lru), LaterMisses(RecencyPays(400), lfu));
  ASSERT_LT(LaterMisses(FrequencyPays(400), lfu), LaterMisses(FrequencyPays(400), lru));
  // As good as the pure rule on tokens that were not seen, and no mixture serves both.
  const TunedPolicy recency = Tuned(RecencyPays(400), "hobbit", 4);
  const TunedPolicy frequency = Tuned(FrequencyPays(400), "hobbit", 4);
  EXPECT_LE(recency.held_out.misses, LaterMisses(RecencyPays(400), lru));
  EXPECT_LE(frequency.held_out.misses, LaterMisses(FrequencyPays(400), lfu));
  EXPECT_LT(recency.held_out.misses, recency.held_out_standard.misses);
  EXPECT_NE(recency.choice.parameters, frequency.choice.parameters);
}

TEST(Tune, FollowsAnAxisOverDecades) {
  // A half-life of a few tokens forgets the last dozen's experts, 16 does not.
  const TunedPolicy tuned = Tuned(RecencyPays(400), "lfru", 4);
  EXPECT_LT(tuned.choice.parameters.at("half_life"), 16.0);
  EXPECT_GT(tuned.held_out.hits, tuned.held_out_standard.hits);
}

TEST(Tune, WhereNothingMattersTheStandardValuesStay) {
  for (const PolicyInfo& info : KnownPolicies()) {
    const TunedPolicy tuned = Tuned(FrequencyPays(100), std::string(info.name), 32);
    for (const PolicyParameter& p : info.parameters) {
      EXPECT_EQ(tuned.choice.parameters.at(std::string(p.name)), p.default_value)
          << info.name << " " << p.name;
    }
    EXPECT_EQ(tuned.choice.parameters.size(), info.parameters.size());
    EXPECT_EQ(tuned.held_out.misses, tuned.held_out_standard.misses);
  }
}

TEST(Tune, TheHeldOutTokensAreNotLookedAt) {
  std::vector<uint16_t> experts;
  for (size_t t = 0; t < 200; ++t)
    experts.push_back(static_cast<uint16_t>(t / 12 * 4 + t % 4) % 32);
  const Trace half = Routing(experts, 32);
  for (size_t t = 0; t < 200; ++t) experts.push_back(static_cast<uint16_t>(t % 2 == 0 ? 0 : t % 7));
  const Trace whole = Routing(experts, 32);
  std::vector<uint16_t> other(experts.begin(), experts.begin() + 200);
  other.resize(400, 5);
  const TunedPolicy a = Tuned(whole, "hobbit", 4);
  const TunedPolicy b = Tuned(Routing(other, 32), "hobbit", 4);
  EXPECT_EQ(a.choice.parameters, b.choice.parameters);
  EXPECT_EQ(a.training.misses, b.training.misses);
  EXPECT_NE(a.held_out.misses, b.held_out.misses);
  EXPECT_EQ(a.held_out.tokens, 200U);
  EXPECT_EQ(TrainingTokens(half, 25.0), 50U);
}

TEST(Tune, SaysHowFarItIs) {
  size_t last = 0;
  const auto tuned =
      Tune(FrequencyPays(60), {.policy = "hobbit", .slots = 4, .progress = [&](size_t tried) {
                                 EXPECT_EQ(tried, last + 1);
                                 last = tried;
                               }});
  ASSERT_TRUE(tuned);
  EXPECT_GT(last, 60U);  // the grid of three weights alone has 66
}

TEST(Tune, RefusesWhatCannotWork) {
  const Trace trace = FrequencyPays(40);
  EXPECT_FALSE(Tune(trace, {.policy = "hobbit", .slots = 0}));
  EXPECT_FALSE(Tune(trace, {.policy = "best", .slots = 4}));
  EXPECT_FALSE(Tune(trace, {.policy = "lru", .slots = 4, .train_percent = 100.0}));
  const auto short_trace = Tune(FrequencyPays(1), {.policy = "lru", .slots = 4});
  ASSERT_FALSE(short_trace);
  EXPECT_NE(short_trace.error().message.find("0 decode tokens"), std::string::npos);
}

}  // namespace
}  // namespace moestro
