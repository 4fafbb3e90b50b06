// SPDX-License-Identifier: MIT
#include "sim/replay.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "decide/slots/policy.h"
#include "trace/trace.h"

namespace moestro {
namespace {

Trace Empty(const TraceInfo& info) {
  auto trace = Trace::Create(info);
  EXPECT_TRUE(trace) << trace.error().message;
  return *std::move(trace);
}

void Add(Trace& trace, Phase phase, bool starts_sequence, const std::vector<ExpertId>& experts) {
  const Status status =
      trace.Add({.phase = phase, .starts_sequence = starts_sequence, .experts = experts});
  ASSERT_TRUE(status) << status.error().message;
}

// Experts by a skewed random choice that changes slowly.
Trace RandomReplay(uint32_t seed, size_t tokens) {
  constexpr uint32_t kLayers = 4;
  constexpr uint32_t kExperts = 16;
  constexpr uint32_t kUsed = 3;
  Trace trace = Empty(
      {.model = {.name = "random", .shape = {kLayers, kExperts, kUsed}}, .expert_bytes = 1000});
  std::mt19937 random(seed);
  for (size_t t = 0; t < tokens; ++t) {
    std::vector<ExpertId> row;
    for (uint32_t l = 0; l < kLayers; ++l) {
      std::vector<uint16_t> chosen;
      while (chosen.size() < kUsed) {
        const double u = static_cast<double>(random() % 1000) / 1000.0;
        const auto e = static_cast<uint16_t>(
            (static_cast<uint32_t>(u * u * kExperts) + t / 50 + l) % kExperts);
        if (std::ranges::find(chosen, e) == chosen.end()) chosen.push_back(e);
      }
      for (const uint16_t e : chosen) row.push_back({e});
    }
    Add(trace, Phase::kDecode, t == 0, row);
  }
  return trace;
}

ReplayResult PlayWith(const Trace& trace, const std::string& policy, uint64_t slots) {
  const auto result = Replay(trace, {.slots = slots, .policy = {.name = policy}});
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(ReplayResult{});
}

TEST(Replay, NobodyBeatsBelady) {
  const Trace trace = RandomReplay(1, 400);
  for (const uint64_t slots : {4U, 8U, 16U, 32U}) {
    const ReplayResult limit = PlayWith(trace, "belady", slots);
    EXPECT_EQ(limit.requests, 400U * 12);
    EXPECT_EQ(limit.hits + limit.misses, limit.requests);
    for (const PolicyInfo& info : KnownPolicies()) {
      const ReplayResult result = PlayWith(trace, std::string(info.name), slots);
      EXPECT_LE(result.hits, limit.hits) << info.name << " with " << slots;
      EXPECT_EQ(result.evictions, result.misses - std::min(result.misses, slots));
    }
  }
}

TEST(Replay, EverythingResidentMissesEachExpertOnce) {
  const Trace trace = RandomReplay(2, 300);
  for (const PolicyInfo& info : KnownPolicies()) {
    EXPECT_EQ(PlayWith(trace, std::string(info.name), 64).misses, 64U) << info.name;
  }
}

// A textbook LRU over the same requests: present ones first, then absent ones.
TEST(Replay, LruIsLru) {
  const Trace trace = RandomReplay(3, 300);
  constexpr size_t kSlots = 20;
  std::vector<uint32_t> recent;  // oldest first
  uint64_t hits = 0;
  for (size_t t = 0; t < trace.tokens(); ++t) {
    for (uint32_t l = 0; l < 4; ++l) {
      std::vector<uint32_t> present;
      std::vector<uint32_t> absent;
      for (const ExpertId e : trace.experts(t, l)) {
        const uint32_t key = l * 16 + e.value;
        (std::ranges::find(recent, key) != recent.end() ? present : absent).push_back(key);
      }
      hits += present.size();
      for (const uint32_t key : present) std::erase(recent, key);
      recent.insert(recent.end(), present.begin(), present.end());
      recent.insert(recent.end(), absent.begin(), absent.end());
      while (recent.size() > kSlots) recent.erase(recent.begin());
    }
  }
  EXPECT_EQ(PlayWith(trace, "lru", kSlots).hits, hits);
}

TEST(Replay, ClockOverlapsReadsWithCompute) {
  Trace trace = Empty({.model = {.shape = {1, 8, 2}}, .expert_bytes = 1000});
  const std::vector<ExpertId> row = {ExpertId{0}, ExpertId{1}};
  Add(trace, Phase::kDecode, true, row);
  Add(trace, Phase::kDecode, false, row);
  const auto result = Replay(
      trace, {.slots = 2, .costs = {.compute = 1.0, .expert_share = 0.5, .bandwidth = 1000.0}});
  ASSERT_TRUE(result);
  // Cold: 0.5 dense, reads end at 1.5 and 2.5, 0.25 of compute after each. Then all is resident.
  EXPECT_DOUBLE_EQ(result->seconds, 2.75 + 1.0);
  EXPECT_DOUBLE_EQ(result->stall_seconds, 1.0 + 0.75);
  EXPECT_EQ(result->bytes, 2000U);
}

// Every layer that lacks an expert takes longer, and every expert at its first use.
TEST(Replay, ClockKnowsWaitingLayersAndFirstUses) {
  Trace trace = Empty({.model = {.shape = {1, 8, 2}}, .expert_bytes = 1000});
  const std::vector<ExpertId> row = {ExpertId{0}, ExpertId{1}};
  Add(trace, Phase::kDecode, true, row);
  Add(trace, Phase::kDecode, false, row);
  const auto result = Replay(trace, {.slots = 2,
                                     .costs = {.compute = 1.0,
                                               .expert_share = 0.5,
                                               .first_use = 1.0,
                                               .second_use = 2.0,
                                               .bandwidth = 1000.0,
                                               .layer_wait = 0.125}});
  ASSERT_TRUE(result);
  // Cold: 0.5 dense, reads end at 1.5 and 2.5, twice 0.25 of compute after each, and the wait.
  // Then all is resident, three times 0.25 each.
  EXPECT_DOUBLE_EQ(result->seconds, 2.5 + 0.5 + 0.125 + 0.5 + 1.5);
}

// What a prompt has computed with is used for the second time by the decode after it.
TEST(Replay, ClockKnowsThatPromptsUseExperts) {
  Trace trace = Empty({.model = {.shape = {1, 8, 2}}, .expert_bytes = 1000});
  const std::vector<ExpertId> row = {ExpertId{0}, ExpertId{1}};
  Add(trace, Phase::kPrefill, true, row);
  Add(trace, Phase::kDecode, false, row);
  const auto result = Replay(trace, {.slots = 2,
                                     .costs = {.compute = 1.0,
                                               .expert_share = 0.5,
                                               .first_use = 1.0,
                                               .second_use = 2.0,
                                               .bandwidth = 1000.0}});
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->seconds, 0.5 + 1.5);
  EXPECT_EQ(result->bytes, 0U);
}

// Layers of two sizes: what is read and computed goes by bytes.
TEST(Replay, ClockKnowsTheSizesOfPools) {
  Trace trace = Empty({.model = {.shape = {2, 4, 2}},
                       .expert_bytes = 300,
                       .pools = {.pools = {{.matrix_bytes = {60, 60, 80}, .slots = 4},
                                           {.matrix_bytes = {100, 100, 200}, .slots = 4}},
                                 .pool_of = {0, 0, 0, 0, 1, 1, 1, 1}}});
  const std::vector<ExpertId> row = {ExpertId{0}, ExpertId{1}, ExpertId{2}, ExpertId{3}};
  Add(trace, Phase::kDecode, true, row);
  Add(trace, Phase::kDecode, false, row);
  const auto result = Replay(
      trace,
      {.pool_slots = {4, 4}, .costs = {.compute = 1.2, .expert_share = 0.5, .bandwidth = 1000.0}});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->bytes, 2 * 200U + 2 * 400U);
  // Of each layer: 0.3 dense, two reads of 0.2 or 0.4, then the last expert: 0.1 or 0.2.
  EXPECT_NEAR(result->seconds, 2 * 0.3 + 0.4 + 0.1 + 0.8 + 0.2 + 1.2, 1e-9);
  EXPECT_FALSE(Replay(trace, {.pool_slots = {4}}));
  EXPECT_FALSE(Replay(trace, {.pool_slots = {4, 1}}));
}

TEST(Replay, CountsOnlyFromWhereItIsTold) {
  const Trace trace = RandomReplay(4, 200);
  for (const size_t from : {0U, 150U}) {
    const auto result = Replay(trace, {.slots = 30, .count_from = from});
    ASSERT_TRUE(result);
    EXPECT_EQ(result->tokens, 200 - from);
    EXPECT_EQ(result->requests, (200 - from) * 12);
  }
}

TEST(Replay, PrefillReadsOnceAndKeepsOutOfTheHistory) {
  Trace trace = Empty({.model = {.shape = {1, 8, 2}}, .expert_bytes = 1});
  const auto add = [&](Phase phase, uint16_t a, uint16_t b) {
    const std::vector<ExpertId> row = {ExpertId{a}, ExpertId{b}};
    Add(trace, phase, false, row);
  };
  add(Phase::kDecode, 0, 1);
  for (int t = 0; t < 10; ++t) add(Phase::kPrefill, 2, 3);
  add(Phase::kDecode, 0, 1);
  std::vector<Use> uses;
  const auto result = Replay(
      trace,
      {.slots = 4, .observer = [&](ExpertKey, Use use, const Placement&) { uses.push_back(use); }});
  ASSERT_TRUE(result);
  EXPECT_EQ(result->hits, 2U);
  EXPECT_EQ(std::ranges::count(uses, Use::kPrefill), 2);
}

// Layers 0 and 1 are an encoder's. Texts of 700 tokens as a source, then a target.
Trace SourcesAndTargets(size_t texts) {
  Trace trace =
      Empty({.model = {.name = "pair",
                       .shape = {.n_layer = 5, .n_expert = 16, .n_used = 1, .n_encoder = 2}},
             .expert_bytes = 1000});
  std::mt19937 random(3);
  const auto add = [&](Phase phase, bool starts, bool is_source) {
    std::vector<ExpertId> row;
    for (size_t l = 0; l < 5; ++l) {
      const auto u = static_cast<uint32_t>(random() % 256);
      row.push_back({static_cast<uint16_t>(u * u / 4096)});
    }
    for (size_t l = is_source ? 2 : 0; l < (is_source ? 5 : 2); ++l) row[l] = {40000};
    const Status added = trace.Add(
        {.phase = phase, .starts_sequence = starts, .is_source = is_source, .experts = row});
    EXPECT_TRUE(added) << added.error().message;
  };
  for (size_t text = 0; text < texts; ++text) {
    for (size_t t = 0; t < 700; ++t) add(Phase::kPrefill, t == 0, true);
    add(Phase::kPrefill, false, false);
    for (size_t t = 0; t < 60; ++t) add(Phase::kDecode, false, false);
  }
  return trace;
}

TEST(Replay, ASourceIsOneStepThroughTheEncoder) {
  const Trace trace = SourcesAndTargets(2);
  EXPECT_EQ(TokensOfStep(trace, 0, {}), 700U);
  EXPECT_EQ(TokensOfStep(trace, 700, {}), 1U);
  EXPECT_EQ(TokensOfStep(trace, 761, {}), 700U);
  std::vector<std::pair<uint16_t, Use>> asked;
  const auto result =
      Replay(trace, {.slots = 24, .observer = [&](ExpertKey key, Use use, const Placement&) {
                       asked.emplace_back(key.layer.value, use);
                     }});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->tokens, 120U);
  EXPECT_EQ(result->hits + result->misses, 360U);
  for (const auto& [layer, use] : asked) {
    if (layer < 2) {
      EXPECT_EQ(use, Use::kPrefill);
    }
  }
  EXPECT_EQ(std::ranges::count(asked, Use::kDecode, &std::pair<uint16_t, Use>::second), 360);
}

// Whatever a trace says: rows of a source and of a target have no layer in common.
TEST(Replay, ASourceAndATargetAreNeverOneStep) {
  Trace trace =
      Empty({.model = {.shape = {.n_layer = 2, .n_expert = 4, .n_used = 1, .n_encoder = 1}},
             .expert_bytes = 1});
  for (uint16_t t = 0; t < 6; ++t) {
    const bool is_source = t % 2 == 0;
    std::vector<ExpertId> row = {{60000}, {60000}};
    row[is_source ? 0 : 1] = {static_cast<uint16_t>(t % 4)};
    const Status added = trace.Add({.phase = is_source ? Phase::kPrefill : Phase::kDecode,
                                    .joins_step = t > 0,
                                    .is_source = is_source,
                                    .experts = row});
    ASSERT_TRUE(added) << added.error().message;
  }
  EXPECT_EQ(TokensOfStep(trace, 0, {}), 1U);
  const auto result = Replay(trace, {.slots = 2});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->hits + result->misses, 3U);
}

TEST(Replay, PoliciesAndPredictorsKnowWhereATargetBegins) {
  const Trace trace = SourcesAndTargets(3);
  const auto belady = PlayWith(trace, "belady", 20);
  for (const PolicyInfo& policy : KnownPolicies()) {
    const auto result = PlayWith(trace, std::string(policy.name), 20);
    EXPECT_EQ(result.hits + result.misses, 540U) << policy.name;
    EXPECT_LE(result.hits, belady.hits) << policy.name;
  }
  const auto oracle = Replay(trace, {.slots = 20, .predictor = {.name = "oracle"}});
  ASSERT_TRUE(oracle) << oracle.error().message;
  ASSERT_FALSE(oracle->predictions.empty());
  EXPECT_DOUBLE_EQ(oracle->predictions[0].recall(), 1.0);
  EXPECT_EQ(oracle->predictions[0].asked, 2U * 180);  // all but a step's first layer
}

TEST(Replay, TooFewSlotsAndUnknownPoliciesAreRefused) {
  const Trace trace = RandomReplay(5, 10);
  EXPECT_FALSE(Replay(trace, {.slots = 2}));
  EXPECT_FALSE(Replay(trace, {.slots = 8, .policy = {.name = "best"}}));
}

// A trace whose routers, asked one or two layers ahead, are right about two of three experts.
Trace PredictedTrace(size_t tokens) {
  const Trace plain = RandomReplay(5, tokens);
  TraceInfo info = plain.info();
  info.depth = 2;
  Trace trace = Empty(info);
  for (size_t t = 0; t < tokens; ++t) {
    std::vector<ExpertId> experts;
    std::vector<ExpertId> predicted;
    for (size_t l = 0; l < info.shape().n_layer; ++l) {
      experts.append_range(plain.experts(t, l));
      for (size_t d = 1; d <= info.depth && l + d < info.shape().n_layer; ++d) {
        std::vector<ExpertId> row(plain.experts(t, l + d).begin(), plain.experts(t, l + d).end());
        ExpertId& wrong = row[(t + l) % row.size()];
        while (std::ranges::contains(plain.experts(t, l + d), wrong)) {
          wrong.value = static_cast<uint16_t>((wrong.value + 1) % info.shape().n_expert);
        }
        predicted.append_range(row);
      }
    }
    EXPECT_TRUE(trace.Add({.phase = Phase::kDecode,
                           .starts_sequence = t == 0,
                           .experts = experts,
                           .predicted = predicted}));
  }
  return trace;
}

ReplayResult Predict(const Trace& trace, const std::string& predictor, double bandwidth) {
  const auto result = Replay(
      trace,
      {.slots = 30, .costs = {.compute = 0.040, .bandwidth = bandwidth}, .predictor = {predictor}});
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(ReplayResult{});
}

TEST(Replay, PredictionsShortenTheWaitAndTheOracleMost) {
  const Trace trace = PredictedTrace(300);
  constexpr double kBandwidth = 1e6;  // an expert in 1 ms, a layer in 10 ms
  const ReplayResult none = Predict(trace, "none", kBandwidth);
  const ReplayResult next_router = Predict(trace, "next-router", kBandwidth);
  const ReplayResult oracle = Predict(trace, "oracle", kBandwidth);
  EXPECT_EQ(none.prefetches, 0U);
  EXPECT_LT(next_router.seconds, none.seconds);
  EXPECT_LT(oracle.seconds, next_router.seconds);
  EXPECT_GE(oracle.seconds, oracle.bound_seconds);
  EXPECT_EQ(oracle.prefetches, oracle.used_prefetches);
  EXPECT_GT(next_router.prefetches, next_router.used_prefetches);
  // Two of three, at both distances.
  ASSERT_EQ(next_router.predictions.size(), 2U);
  for (const PredictionScore& score : next_router.predictions) {
    EXPECT_NEAR(score.recall(), 2.0 / 3.0, 1e-9);
  }
  // Same work: what was asked for was the same, wrong predictions cost bytes.
  EXPECT_EQ(next_router.requests, none.requests);
  EXPECT_EQ(next_router.hits + next_router.misses, next_router.requests);
  EXPECT_GT(next_router.bytes, none.bytes);
}

// On a disk that is never idle prefetches can only do harm, so hardly any are made.
TEST(Replay, PrefetchHoldsBackWhereTheDiskIsTheLimit) {
  const Trace trace = PredictedTrace(300);
  constexpr double kBandwidth = 2e4;  // 50 ms an expert
  const ReplayResult none = Predict(trace, "none", kBandwidth);
  const ReplayResult next_router = Predict(trace, "next-router", kBandwidth);
  EXPECT_LT(next_router.seconds, 1.01 * none.seconds);
  EXPECT_LT(next_router.prefetches, next_router.requests / 20);
}

TEST(Replay, RefusesToPredictWhatTheTraceDoesNotHold) {
  const auto without = Replay(RandomReplay(5, 20), {.slots = 30, .predictor = {"next-router"}});
  ASSERT_FALSE(without);
  EXPECT_EQ(without.error().code, Errc::kUsage);
  EXPECT_NE(without.error().message.find("--prefetch"), std::string::npos);
  EXPECT_FALSE(Replay(PredictedTrace(20), {.slots = 30, .predictor = {"next-router"}, .depth = 3}));
  EXPECT_FALSE(Replay(PredictedTrace(20), {.slots = 30, .predictor = {"crystal"}}));
  EXPECT_TRUE(Replay(PredictedTrace(20), {.slots = 30, .predictor = {"frequency"}, .depth = 3}));
}

}  // namespace
}  // namespace moestro
