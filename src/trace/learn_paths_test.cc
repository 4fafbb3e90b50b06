// SPDX-License-Identifier: MIT
#include "trace/learn_paths.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "trace/trace.h"

namespace moestro {
namespace {

// Two kinds of tokens by turns; in both halves of a layer's experts one is used.
Trace Alternating(size_t tokens) {
  Trace trace = *Trace::Create({.n_layer = 4, .n_expert = 8, .n_used = 2});
  for (size_t t = 0; t < tokens; ++t) {
    std::vector<ExpertId> experts;
    for (uint16_t l = 0; l < 4; ++l) {
      const auto kind = static_cast<uint16_t>(t % 2);
      experts.push_back({static_cast<uint16_t>((kind + l) % 4)});
      experts.push_back({static_cast<uint16_t>(4 + (kind + 2 * l) % 4)});
    }
    EXPECT_TRUE(trace.Add({.experts = experts}));
  }
  return trace;
}

TEST(LearnPaths, FindsWhatAlwaysFollows) {
  const Trace trace = Alternating(50);
  const PathTable table = LearnPaths(trace, {0, 40});
  const PathRecall recall = MeasurePaths(table, trace, {40, 50});
  EXPECT_EQ(recall.paths, 1.0);
  EXPECT_LT(recall.popular, 0.8);
  EXPECT_EQ(recall.repeat, 0.0);
  // Only what was shown is learned.
  EXPECT_EQ(LearnPaths(trace, {1, 1}).keys(), 0U);
}

TEST(LearnPaths, WithoutTokensOrFollowingLayersNothingIsRecalled) {
  const Trace trace = Alternating(4);
  EXPECT_EQ(MeasurePaths(LearnPaths(trace, {0, 4}), trace, {2, 2}).paths, 0.0);
  Trace flat = *Trace::Create({.n_layer = 1, .n_expert = 4, .n_used = 1});
  ASSERT_TRUE(flat.Add({.experts = std::vector<ExpertId>{{2}}}));
  EXPECT_EQ(MeasurePaths(LearnPaths(flat, {0, 1}), flat, {0, 1}).paths, 0.0);
}

}  // namespace
}  // namespace moestro
