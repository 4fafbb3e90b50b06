// SPDX-License-Identifier: MIT
#include "learned/learn_paths.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "trace/trace.h"

namespace moestro {
namespace {

// Two kinds of tokens by turns; in both halves of a layer's experts one is used.
PathCounter Alternating(size_t tokens) {
  Trace trace = *Trace::Create({.model = {.shape = {4, 8, 2}}});
  for (size_t t = 0; t < tokens; ++t) {
    std::vector<ExpertId> experts;
    for (uint16_t l = 0; l < 4; ++l) {
      const auto kind = static_cast<uint16_t>(t % 2);
      experts.push_back({static_cast<uint16_t>((kind + l) % 4)});
      experts.push_back({static_cast<uint16_t>(4 + (kind + 2 * l) % 4)});
    }
    EXPECT_TRUE(trace.Add({.experts = experts}));
  }
  PathCounter counter({.n_layer = 4, .n_expert = 8, .n_used = 2});
  CountTrace(trace, tokens, counter);
  return counter;
}

TEST(LearnPaths, FindsWhatAlwaysFollows) {
  const PathCounter routing = Alternating(50);
  const PathRecall recall = MeasurePaths(routing.Learn(40), routing, {40, 50});
  EXPECT_EQ(recall.paths, 1.0);
  EXPECT_LT(recall.popular, 0.8);
  EXPECT_EQ(recall.repeat, 0.0);
  // Only what was shown is learned.
  EXPECT_EQ(routing.Learn(40), Alternating(40).Learn());
  EXPECT_EQ(routing.Learn(0).keys(), 0U);
}

// Layers 0 and 1 are an encoder's: one layer of each stack follows another.
TEST(LearnPaths, EachStackIsMeasuredWhereTokensGoThrough) {
  PathCounter counter({.n_layer = 4, .n_expert = 8, .n_used = 1, .n_encoder = 2});
  for (uint16_t t = 0; t < 80; ++t) {
    const bool is_source = t % 2 == 0;
    const auto first = static_cast<uint16_t>(t / 2 % 8);
    std::vector<ExpertId> experts(4, ExpertId{60000});
    experts[is_source ? 0 : 2] = {first};
    experts[is_source ? 1 : 3] = {static_cast<uint16_t>((first + (is_source ? 1 : 5)) % 8)};
    counter.Add(experts, is_source);
  }
  const PathRecall recall = MeasurePaths(counter.Learn(), counter, {0, 80});
  EXPECT_EQ(recall.paths, 1.0);
  EXPECT_LT(recall.popular, 0.5);
  EXPECT_EQ(recall.repeat, 0.0);  // the token before is of the other stack
}

TEST(LearnPaths, TakesAsManyTokensAsItIsTold) {
  Trace trace = *Trace::Create({.model = {.shape = {1, 4, 1}}});
  for (uint16_t t = 0; t < 4; ++t) ASSERT_TRUE(trace.Add({.experts = std::vector<ExpertId>{{t}}}));
  PathCounter counter({.n_layer = 1, .n_expert = 4, .n_used = 1});
  CountTrace(trace, 3, counter);
  EXPECT_EQ(counter.tokens(), 3U);
  CountTrace(trace, 100, counter);
  EXPECT_EQ(counter.tokens(), 7U);
  EXPECT_EQ(counter.of(6, 0)[0].value, 3);
}

TEST(LearnPaths, WithoutTokensOrFollowingLayersNothingIsRecalled) {
  const PathCounter routing = Alternating(4);
  EXPECT_EQ(MeasurePaths(routing.Learn(), routing, {2, 2}).paths, 0.0);
  PathCounter flat({.n_layer = 1, .n_expert = 4, .n_used = 1});
  flat.Add(std::vector<ExpertId>{{2}});
  EXPECT_EQ(MeasurePaths(flat.Learn(), flat, {0, 1}).paths, 0.0);
}

}  // namespace
}  // namespace moestro
