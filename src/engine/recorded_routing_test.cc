// SPDX-License-Identifier: MIT
#include "engine/recorded_routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace moestro {
namespace {

// Tokens 0 to 3 are of a source, 4 and 5 are not; layer 0 is an encoder's.
Trace SourceAndTarget() {
  Trace trace = *Trace::Create(
      {.model = {.name = "m",
                 .shape = {.n_layer = 2, .n_expert = 16, .n_used = 1, .n_encoder = 1}}});
  for (uint16_t t = 0; t < 6; ++t) {
    const std::vector<ExpertId> experts = {{t}, {static_cast<uint16_t>(t + 8)}};
    EXPECT_TRUE(trace.Add({.phase = t < 5 ? Phase::kPrefill : Phase::kDecode,
                           .is_source = t < 4,
                           .experts = experts}));
  }
  return trace;
}

TEST(TraceRoutingOfEncoders, RowsOfSourcesAreTheTracesSources) {
  const Trace trace = SourceAndTarget();
  auto routing = TraceRouting::Create(trace, trace.info().model);
  ASSERT_TRUE(routing) << routing.error().message;
  const auto apply = [&](uint16_t layer, uint32_t rows) {
    Routing chosen{.n_tokens = rows,
                   .n_used = 1,
                   .experts = std::vector<ExpertId>(rows),
                   .weights = std::vector<float>(rows)};
    RoutedAhead ahead;
    routing->Apply({layer}, chosen, ahead);
    std::vector<uint16_t> experts;
    for (const ExpertId e : chosen.experts) experts.push_back(e.value);
    return experts;
  };
  using Ids = std::vector<uint16_t>;
  EXPECT_EQ(apply(0, 3), (Ids{0, 1, 2}));
  EXPECT_EQ(apply(1, 1), (Ids{12}));
  EXPECT_EQ(apply(1, 1), (Ids{13}));
  EXPECT_EQ(apply(1, 1), (Ids{12}));  // from the beginning again
  EXPECT_EQ(apply(0, 2), (Ids{3, 0}));
}

TEST(TraceRoutingOfEncoders, NeedsTokensOfBoth) {
  const TraceInfo info = SourceAndTarget().info();
  const std::vector<ExpertId> experts = {{1}, {2}};
  for (const bool is_source : {true, false}) {
    Trace half = *Trace::Create(info);
    ASSERT_TRUE(half.Add({.phase = Phase::kPrefill, .is_source = is_source, .experts = experts}));
    const auto routing = TraceRouting::Create(half, info.model);
    ASSERT_FALSE(routing);
    const std::string lacks = is_source ? "target" : "source";
    EXPECT_NE(routing.error().message.find(lacks), std::string::npos) << routing.error().message;
  }
}

constexpr uint32_t kUsed = 4;
constexpr uint32_t kLittle = 2;
const ModelId kModel{.name = "m", .fingerprint = 1, .shape = {2, 16, kUsed}};

// Token t has experts t, t + 1, ... in layer 0 and one more in layer 1; its little pass has them
// the other way round. What layer 0 predicts is the same.
Trace Counting(uint32_t little, bool has_weights) {
  Trace trace =
      *Trace::Create({.model = kModel, .depth = 1, .little = little, .has_weights = has_weights});
  const std::vector<float> weights = {0.4F, 0.3F, 0.2F, 0.1F, 0.4F, 0.3F, 0.2F, 0.1F};
  for (uint16_t t = 0; t < 6; ++t) {
    std::vector<ExpertId> experts;
    for (uint16_t l = 0; l < 2; ++l) {
      for (uint16_t k = 0; k < kUsed; ++k) experts.push_back({static_cast<uint16_t>(t + l + k)});
    }
    std::vector<ExpertId> widened = experts;
    std::ranges::reverse(widened.begin(), widened.begin() + kUsed);
    std::ranges::reverse(widened.begin() + kUsed, widened.end());
    TraceToken token{.experts = experts, .predicted = std::span(experts).last(kUsed)};
    if (has_weights) token.weights = weights;
    if (little > 0) {
      token.little = {.experts = widened, .predicted = std::span(widened).subspan(kUsed, little)};
      if (has_weights) token.little.weights = std::span(weights).first(size_t{2} * little);
    }
    EXPECT_TRUE(trace.Add(token));
  }
  return trace;
}

// What the trace puts in place of a layer's routing of one row, and what it predicts from it.
struct Applied {
  std::vector<uint16_t> experts;
  std::vector<float> weights;
  std::vector<uint16_t> widened;
  std::vector<uint16_t> ahead;
};

Applied Apply(TraceRouting& trace, uint16_t layer, uint32_t used) {
  const bool is_little = used < kUsed;
  Routing routing{.n_tokens = 1,
                  .n_used = used,
                  .experts = std::vector<ExpertId>(used),
                  .weights = std::vector<float>(used)};
  if (is_little) {
    routing.candidates = {.per_row = kUsed,
                          .experts = std::vector<ExpertId>(kUsed),
                          .scores = std::vector<float>(kUsed),
                          .raw = std::vector<float>(kUsed),
                          .ranges = {1.0F}};
  }
  RoutedAhead ahead{.experts = std::vector<ExpertId>(layer == 0 ? used : 0)};
  trace.Apply(ExpertLayerId{layer}, routing, ahead);
  const auto values = [](const std::vector<ExpertId>& ids) {
    std::vector<uint16_t> all;
    for (const ExpertId id : ids) all.push_back(id.value);
    return all;
  };
  return {values(routing.experts), routing.weights, values(routing.candidates.experts),
          values(ahead.experts)};
}

using Ids = std::vector<uint16_t>;

TEST(TraceRouting, StepsTakeOneTokenAfterTheOther) {
  auto trace = TraceRouting::Create(Counting(0, false), kModel);
  ASSERT_TRUE(trace) << trace.error().message;
  for (uint16_t t = 0; t < 7; ++t) {  // the last begins again
    const auto at = static_cast<uint16_t>(t % 6);
    for (uint16_t l = 0; l < 2; ++l) {
      EXPECT_EQ(Apply(*trace, l, kUsed).experts.front(), at + l);
    }
  }
  EXPECT_EQ(Apply(*trace, 0, kUsed).weights, std::vector<float>(kUsed, 0.25F));
}

TEST(TraceRouting, ALittleStepGetsTheLittlePass) {
  auto trace = TraceRouting::Create(Counting(kLittle, true), kModel);
  ASSERT_TRUE(trace) << trace.error().message;
  EXPECT_TRUE(trace->CheckLittle(kLittle));
  const Applied first = Apply(*trace, 0, kLittle);
  EXPECT_EQ(first.experts, (Ids{3, 2}));
  EXPECT_EQ(first.weights, (std::vector<float>{0.4F, 0.3F}));
  EXPECT_EQ(first.widened, (Ids{3, 2, 1, 0}));
  EXPECT_EQ(first.ahead, (Ids{4, 3}));
  EXPECT_EQ(Apply(*trace, 1, kLittle).weights, (std::vector<float>{0.2F, 0.1F}));
  auto without = TraceRouting::Create(Counting(kLittle, false), kModel);
  EXPECT_EQ(Apply(*without, 0, kLittle).weights, (std::vector<float>{0.5F, 0.5F}));
}

TEST(TraceRouting, AFullStepAfterALittleOneIsOfTheSameToken) {
  auto trace = TraceRouting::Create(Counting(kLittle, true), kModel);
  ASSERT_TRUE(trace) << trace.error().message;
  const auto step = [&](uint32_t used) {
    const Ids experts = Apply(*trace, 0, used).experts;
    Apply(*trace, 1, used);
    return *std::ranges::min_element(experts);
  };
  EXPECT_EQ(step(kLittle), 0 + 2);  // kept
  EXPECT_EQ(step(kLittle), 1 + 2);
  EXPECT_EQ(step(kUsed), 1);
  EXPECT_EQ(step(kLittle), 2 + 2);
  EXPECT_EQ(step(kUsed), 2);
  EXPECT_EQ(step(kUsed), 3);
}

TEST(TraceRouting, RefusesAnotherModelAndAnotherLittlePass) {
  EXPECT_FALSE(TraceRouting::Create(Counting(0, false), {.shape = {2, 16, 3}}));
  const auto none = TraceRouting::Create(Counting(0, false), kModel);
  const auto two = TraceRouting::Create(Counting(2, false), kModel);
  ASSERT_TRUE(none && two);
  for (const Status& refused : {none->CheckLittle(2), two->CheckLittle(3)}) {
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
    EXPECT_TRUE(refused.error().message.contains("moestro trace --little"));
  }
}

}  // namespace
}  // namespace moestro
