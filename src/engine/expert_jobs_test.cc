// SPDX-License-Identifier: MIT
#include "engine/expert_jobs.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace moestro {
namespace {

TEST(GroupByExpert, OneTokenKeepsRouterOrder) {
  const Routing routing{
      .n_tokens = 1, .n_used = 3, .experts = {{5}, {0}, {2}}, .weights = {1, 1, 1}};
  const ExpertJobs jobs = GroupByExpert(routing, 6);
  ASSERT_EQ(jobs.jobs.size(), 3U);
  EXPECT_EQ(jobs.jobs[0].expert.value, 5);
  EXPECT_EQ(jobs.jobs[2].expert.value, 2);
  EXPECT_EQ(KeysOf(LayerId{4}, jobs)[1], (ExpertKey{.layer = {4}, .expert = {0}}));
}

TEST(GroupByExpert, EveryPairIsInTheJobOfItsExpert) {
  std::mt19937 random(3);
  constexpr uint32_t kExperts = 7;
  Routing routing{
      .n_tokens = 40, .n_used = 3, .experts = {}, .weights = std::vector<float>(120, 1.0F)};
  for (int t = 0; t < 40; ++t) {
    std::set<uint16_t> chosen;
    while (chosen.size() < 3) chosen.insert(static_cast<uint16_t>(random() % kExperts));
    for (const uint16_t e : chosen) routing.experts.push_back({e});
  }
  const ExpertJobs jobs = GroupByExpert(routing, kExperts);
  std::set<uint32_t> seen;
  for (size_t i = 0; i < routing.experts.size(); ++i) {
    const uint32_t pair = jobs.pair_of[i];
    EXPECT_TRUE(seen.insert(pair).second);
    EXPECT_EQ(jobs.token_of[pair], i / 3);
    for (const ExpertJobs::Job& job : jobs.jobs) {
      const bool inside = pair >= job.first_pair && pair < job.first_pair + job.n_pairs;
      EXPECT_EQ(inside, job.expert == routing.experts[i]);
    }
  }
  EXPECT_EQ(seen.size(), 120U);
}

}  // namespace
}  // namespace moestro
