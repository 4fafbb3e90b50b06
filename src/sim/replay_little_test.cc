// SPDX-License-Identifier: MIT
// Tokens with fewer experts first, in the simulator.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sim/replay.h"
#include "trace/trace.h"

namespace moestro {
namespace {

constexpr uint32_t kLittleLayers = 4;
constexpr uint32_t kLittleExperts = 16;
constexpr uint32_t kLittleUsed = 4;
constexpr uint32_t kLittle = 2;
constexpr size_t kTokens = 40;

// Experts move on with every token. The little pass ranks a token's own K as its router does, and
// every other token is sure of what comes next.
Trace Moving(uint32_t little = kLittle) {
  auto trace = Trace::Create({.model = {.shape = {kLittleLayers, kLittleExperts, kLittleUsed}},
                              .expert_bytes = 1000,
                              .little = little,
                              .has_weights = true});
  EXPECT_TRUE(trace) << trace.error().message;
  const std::vector<float> weights(size_t{kLittleLayers} * kLittleUsed, 0.25F);
  const std::vector<float> little_weights(size_t{kLittleLayers} * little, 0.5F);
  for (uint16_t t = 0; t < kTokens; ++t) {
    std::vector<ExpertId> experts;
    for (uint16_t l = 0; l < kLittleLayers; ++l) {
      for (uint16_t k = 0; k < kLittleUsed; ++k) {
        experts.push_back({static_cast<uint16_t>((3 * t + 2 * k + l) % kLittleExperts)});
      }
    }
    TraceToken token{.starts_sequence = t == 0, .experts = experts, .weights = weights};
    if (little > 0) {
      const float some = 0.001F * static_cast<float>(7 * t % kTokens);  // no two are equal
      token.little = {.experts = experts,
                      .weights = little_weights,
                      .confidence = (t % 2 == 0 ? 0.9F : 0.1F) + some};
    }
    EXPECT_TRUE(trace->Add(token));
  }
  return *std::move(trace);
}

ReplayOptions With(double gamma, uint64_t slots = 24) {
  return {.slots = slots, .little = {.n_used = kLittle, .gamma = gamma}};
}

ReplayResult PlayLittle(const ReplayOptions& options) {
  const auto result = Replay(Moving(), options);
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(ReplayResult{});
}

TEST(ReplayLittle, ConfidencesSayWhichTokensGetAllExperts) {
  struct Case {
    double gamma;
    uint64_t again;
  };
  for (const Case& one : {Case{0.0, 0}, Case{0.5, kTokens / 2}, Case{0.95, kTokens}}) {
    const ReplayResult result = PlayLittle(With(one.gamma));
    EXPECT_EQ(result.again, one.again);
    EXPECT_EQ(result.kept, kTokens - one.again);
    EXPECT_EQ(result.tokens, kTokens);
    EXPECT_EQ(result.requests, kLittleLayers * (kLittle * kTokens + kLittleUsed * one.again));
    EXPECT_DOUBLE_EQ(result.fallback_ratio(),
                     static_cast<double>(one.again) / static_cast<double>(kTokens));
    EXPECT_DOUBLE_EQ(result.foreseen.recall(), one.again > 0 ? 1.0 : 0.0);
  }
}

TEST(ReplayLittle, AShareOfTheTokensCanBeAskedFor) {
  ReplayOptions options = With(0.7);
  options.little.fallback_share = 0.25;
  EXPECT_NEAR(PlayLittle(options).fallback_ratio(), 0.25, 0.15);
}

// The first pass would keep nothing and is left out.
TEST(ReplayLittle, AThresholdOfOneIsNoLittlePass) {
  const ReplayResult result = PlayLittle(With(1.0));
  const ReplayResult plain = PlayLittle({.slots = 24});
  EXPECT_EQ(result.kept + result.again, 0U);
  EXPECT_EQ(result.requests, plain.requests);
  EXPECT_EQ(result.misses, plain.misses);
}

TEST(ReplayLittle, ALittlePassTakesItsShareOfTheExpertsTime) {
  ReplayOptions options = With(0.5, size_t{kLittleLayers} * kLittleExperts);
  options.costs.compute = 1.0;
  options.costs.expert_share = 0.6;
  options.count_from = 20;  // all are resident by then
  const ReplayResult result = PlayLittle(options);
  EXPECT_EQ(result.kept, 10U);
  EXPECT_EQ(result.again, 10U);
  EXPECT_NEAR(result.seconds, 20 * (0.4 + 0.3) + 10 * 1.0, 1e-9);
  EXPECT_NEAR(result.bound_seconds, result.seconds, 1e-9);
}

TEST(ReplayLittle, WhatTheFirstPassSaidIsReadAhead) {
  ReplayOptions options = With(0.95);
  options.costs.bandwidth = 4e5;
  options.costs.compute = 0.040;
  const ReplayResult ahead = PlayLittle(options);
  options.fetches = false;
  const ReplayResult on_demand = PlayLittle(options);
  EXPECT_EQ(on_demand.prefetches, 0U);
  EXPECT_GT(ahead.used_prefetches, 50U);
  EXPECT_EQ(ahead.used_prefetches, ahead.prefetches);
  EXPECT_LT(ahead.stall_seconds, on_demand.stall_seconds);
}

TEST(ReplayLittle, AFirstPassThatDropsItsMissesReadsNothing) {
  ReplayOptions options = With(0.0);
  options.little.misses = Misses::kDrop;
  const ReplayResult none = PlayLittle(options);
  EXPECT_EQ(none.misses, 0U);
  EXPECT_EQ(none.losses.dropped, kLittleLayers * kLittle * kTokens);
  options.little.gamma = 0.5;
  const ReplayResult some = PlayLittle(options);
  EXPECT_GT(some.losses.dropped, 0U);
  EXPECT_LT(some.losses.dropped, none.losses.dropped);
  // A second pass lacks nothing.
  EXPECT_GE(some.requests, kLittleLayers * kLittleUsed * some.again);
}

TEST(ReplayLittle, RefusesWhatTheTraceDoesNotSay) {
  const auto message = [](const Trace& trace, const ReplayOptions& options) {
    const auto result = Replay(trace, options);
    EXPECT_FALSE(result);
    if (result) return std::string();
    EXPECT_EQ(result.error().code, Errc::kUsage);
    return result.error().message;
  };
  EXPECT_TRUE(message(Moving(0), With(0.5)).contains("no little pass"));
  EXPECT_TRUE(message(Moving(1), With(0.5)).contains("of 1 experts, not of 2"));
  EXPECT_TRUE(Replay(Moving(), {.slots = 24, .little = {.is_half = true}}));
  ReplayOptions options = With(0.5);
  options.policy.name = "belady";
  EXPECT_TRUE(message(Moving(), options).contains("belady"));
  options = With(0.5);
  options.predictor.name = "oracle";
  EXPECT_TRUE(message(Moving(), options).contains("oracle"));
  options = With(0.5);
  options.lossy.prefer_resident = 0.1;
  EXPECT_TRUE(message(Moving(), options).contains("who else"));
  options = With(0.5);
  options.little.misses = Misses::kLow;
  EXPECT_TRUE(message(Moving(), options).contains("low copies"));
}

}  // namespace
}  // namespace moestro
