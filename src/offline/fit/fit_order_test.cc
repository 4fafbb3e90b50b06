// SPDX-License-Identifier: MIT
#include "offline/fit/fit_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "offline/fit/fit_state.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

TEST(FitOrder, ErrorsThatMakeTheScatterAreNoise) {
  const std::vector<Estimate> clear{{1.0, 0.1}, {2.0, 0.1}, {3.0, 0.1}};
  EXPECT_NEAR(NoiseShare(clear), 0.01, 1e-12);
  const std::vector<Estimate> noisy{{1.0, 1.0}, {2.0, 1.0}, {3.0, 1.0}};
  EXPECT_NEAR(NoiseShare(noisy), 1.0, 1e-12);
  EXPECT_GT(NoiseShare(std::vector<Estimate>{{1.0, 0.1}, {1.0, 0.1}}), kMostNoise);
  EXPECT_GT(NoiseShare(std::vector<Estimate>{{1.0, 0.1}}), kMostNoise);
  EXPECT_GT(NoiseShare(std::vector<Estimate>{{1.0}, {2.0}}), kMostNoise);  // no error known
}

TEST(FitOrder, RisesAndBreaksTies) {
  const std::vector<double> score{3.0, 0.0, 1.0, 0.0, 0.0};
  const std::vector<double> tie{0.0, 2.0, 0.0, 1.0, 2.0};
  EXPECT_EQ(RisingOrder(score, tie), (std::vector<uint32_t>{3, 1, 4, 2, 0}));
}

TEST(FitOrder, EveryBeginningIsSpreadOverTheLayers) {
  const std::vector<uint32_t> order = SpreadOver(5, 7);
  for (size_t round = 0; round < 7; ++round) {
    for (uint32_t l = 0; l < 5; ++l) EXPECT_EQ(order[round * 5 + l] / 7, l);
  }
  EXPECT_EQ(order, SpreadOver(5, 7));
  std::vector<uint32_t> sorted = order;
  std::ranges::sort(sorted);
  for (uint32_t i = 0; i < sorted.size(); ++i) EXPECT_EQ(sorted[i], i);
  EXPECT_NE(order, sorted);
}

TEST(FitOrder, RankCorrelationSeesOrderAlone) {
  const std::vector<double> a{1.0, 2.0, 3.0, 4.0};
  EXPECT_DOUBLE_EQ(RankCorrelation(a, std::vector<double>{1.0, 10.0, 11.0, 1e6}), 1.0);
  EXPECT_DOUBLE_EQ(RankCorrelation(a, std::vector<double>{4.0, 3.0, 2.0, 1.0}), -1.0);
  EXPECT_DOUBLE_EQ(RankCorrelation(a, std::vector<double>{5.0, 5.0, 5.0, 5.0}), 0.0);
  EXPECT_NEAR(RankCorrelation(a, std::vector<double>{1.0, 1.0, 2.0, 2.0}), 0.894427, 1e-6);
}

TEST(FitTolerance, IsKlOrPerplexity) {
  const auto kl = ParseTolerance("KL=0.01");
  ASSERT_TRUE(kl);
  EXPECT_EQ(kl->kind, FitTolerance::Kind::kKl);
  EXPECT_DOUBLE_EQ(kl->most, 0.01);
  EXPECT_EQ(kl->Text(0.5), "KL=0.5");
  const auto ppl = ParseTolerance("ppl=2.5%");
  ASSERT_TRUE(ppl);
  EXPECT_DOUBLE_EQ(ppl->most, 0.025);
  EXPECT_EQ(ppl->Text(0.01), "ppl=1%");
  for (const char* bad : {"", "KL", "KL=", "KL=x", "KL=0", "KL=-1", "KL=nan", "KL=inf", "KL=1%",
                          "ppl=1", "ppl=%", "0.01", "ppl", "KL=0.1x"}) {
    EXPECT_FALSE(ParseTolerance(bad)) << bad;
  }
}

TEST(FitState, GoesOnWithWhatItKnew) {
  const TempFolder folder;
  const std::string path = folder.File("state.json");
  {
    auto state = FitState::Open(path, "model-a");
    ASSERT_TRUE(state);
    ASSERT_TRUE(state->Add("expert 1", {.value = 0.25, .error = 0.5}));
    ASSERT_TRUE(state->Add("expert 2", {.value = 1.0}));
  }
  const auto again = FitState::Open(path, "model-a");
  ASSERT_TRUE(again);
  ASSERT_TRUE(again->Find("expert 1"));
  EXPECT_EQ(again->Find("expert 1")->value, 0.25);
  EXPECT_EQ(again->Find("expert 1")->error, 0.5);
  EXPECT_TRUE(std::isnan(again->Find("expert 2")->error));
  EXPECT_FALSE(again->Find("expert 3"));
  const auto other = FitState::Open(path, "model-b");
  ASSERT_TRUE(other);
  EXPECT_FALSE(other->Find("expert 1"));
}

}  // namespace
}  // namespace moestro
