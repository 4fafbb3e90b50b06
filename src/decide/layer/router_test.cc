// SPDX-License-Identifier: MIT
#include "decide/layer/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace moestro {
namespace {

constexpr RouterSpec kPlain{.n_expert = 4, .n_used = 2};

TEST(Route, TakesTheLargestInOrder) {
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F, -1.0F, 3.0F, 0.0F, 0.0F, 4.0F};
  const Routing r = Route(kPlain, logits);
  ASSERT_EQ(r.n_tokens, 2U);
  EXPECT_EQ(r.experts_of(0)[0].value, 1);
  EXPECT_EQ(r.experts_of(0)[1].value, 2);
  EXPECT_EQ(r.experts_of(1)[0].value, 3);
  EXPECT_EQ(r.experts_of(1)[1].value, 0);
  const double sum = 1.0 + std::exp(2.0) + std::exp(1.0) + std::exp(-1.0);
  EXPECT_NEAR(r.weights_of(0)[0], std::exp(2.0) / sum, 1e-6);
  EXPECT_NEAR(r.weights_of(0)[1], std::exp(1.0) / sum, 1e-6);
}

TEST(Route, RenormalisesThenScales) {
  RouterSpec spec = kPlain;
  spec.renormalise = true;
  spec.weight_scale = 2.5F;
  const std::vector<float> logits = {0.0F, 2.0F, 1.0F, -1.0F};
  const Routing r = Route(spec, logits);
  EXPECT_NEAR(r.weights[0] + r.weights[1], 2.5F, 1e-6);
  EXPECT_NEAR(r.weights[0] / r.weights[1], std::exp(1.0), 1e-5);
}

TEST(Route, RootsOfSoftplusAreTheWeights) {
  RouterSpec spec = kPlain;
  spec.gating = Gating::kSoftplusRoot;
  const std::vector<float> logits = {-2.0F, 40.0F, std::nanf(""), 0.5F};
  const Routing r = Route(spec, logits);
  EXPECT_EQ(r.experts[0].value, 1);
  EXPECT_EQ(r.experts[1].value, 3);
  EXPECT_NEAR(r.weights[0], std::sqrt(40.0), 1e-5);
  EXPECT_NEAR(r.weights[1], std::sqrt(std::log(1.0 + std::exp(0.5))), 1e-6);
}

// Logits only weigh the experts that are given, and order them.
TEST(Router, FollowsGivenExperts) {
  RouterSpec spec = kPlain;
  spec.gating = Gating::kSigmoid;
  spec.renormalise = true;
  const std::vector<float> logits = {5.0F, -1.0F, 4.0F, 1.0F, 0.0F, 9.0F, 0.5F, 8.0F};
  const std::vector<int32_t> experts = {1, 3, 2, 0};
  Routing r;
  class Router router;  // another test has a function of that name
  router.Follow(spec, logits, experts, 3, r);
  ASSERT_EQ(r.n_tokens, 2U);
  EXPECT_EQ(r.experts_of(0)[0].value, 3);
  EXPECT_EQ(r.experts_of(0)[1].value, 1);
  EXPECT_EQ(r.experts_of(1)[0].value, 2);
  EXPECT_EQ(r.experts_of(1)[1].value, 0);
  const auto logistic = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  EXPECT_NEAR(r.weights[0], logistic(1.0) / (logistic(1.0) + logistic(-1.0)), 1e-6);
  EXPECT_EQ(r.candidates.row(0).experts[2].value, 0) << "the best of the others";
  EXPECT_GT(r.candidates.row(0).scores[1], r.candidates.row(0).scores[2]);
  const float lifted = r.candidates.row(0).scores[2] + r.candidates.row(0).ranges[0];
  EXPECT_GT(r.candidates.row(0).scores[1], lifted) << "a present expert replaces no given one";
  // A step of fewer experts takes the best of them.
  spec.n_used = 1;
  router.Follow(spec, logits, experts, 0, r);
  EXPECT_EQ(r.experts_of(0)[0].value, 3);
  EXPECT_EQ(r.experts_of(1)[0].value, 2);
}

TEST(Route, TiesGoToTheLowerId) {
  const std::vector<float> logits = {1.0F, 1.0F, 1.0F, 1.0F};
  const Routing r = Route(kPlain, logits);
  EXPECT_EQ(r.experts[0].value, 0);
  EXPECT_EQ(r.experts[1].value, 1);
}

// Few experts are found in another way than many: the first ones of more candidates are the same.
TEST(Route, FewExpertsAreTheFirstOfMany) {
  std::mt19937 random(3);
  RouterSpec few{.n_expert = 128, .n_used = 8};
  RouterSpec many{.n_expert = 128, .n_used = 64};
  for (const uint32_t values : {3U, 40U, 100000U}) {  // many ties, some, hardly any
    std::vector<float> logits(size_t{50} * few.n_expert);
    for (float& logit : logits) logit = static_cast<float>(random() % values) * 1e-3F - 1.0F;
    const Routing of_few = Route(few, logits);
    const Routing of_many = Route(many, logits);
    for (size_t t = 0; t < of_few.n_tokens; ++t) {
      for (size_t k = 0; k < few.n_used; ++k) {
        EXPECT_EQ(of_few.experts_of(t)[k].value, of_many.experts_of(t)[k].value) << t << " " << k;
      }
    }
  }
}

// A device's choices by the same logits, in its order.
TEST(Router, KnowsItsOwnChoices) {
  const auto are_choices = [](const RouterSpec& spec, const std::vector<float>& logits,
                              const std::vector<float>& bias, const std::vector<uint16_t>& chosen) {
    std::vector<ExpertId> experts;
    for (const uint16_t e : chosen) experts.push_back(ExpertId{e});
    class moestro::Router rule;
    return rule.AreChoices(spec, logits, bias, experts);
  };
  const std::vector<float> two_rows = {0.0F, 2.0F, 1.0F, -1.0F, 3.0F, 0.0F, 1.0F, 2.0F};
  EXPECT_TRUE(are_choices(kPlain, two_rows, {}, {1, 2, 0, 3}));
  EXPECT_FALSE(are_choices(kPlain, two_rows, {}, {2, 1, 0, 3}));  // in another order
  EXPECT_FALSE(are_choices(kPlain, two_rows, {}, {1, 2, 0, 2}));  // not the best
  EXPECT_FALSE(are_choices(kPlain, two_rows, {}, {1, 1, 0, 3}));  // one twice
  // Equal scores, and scores that are equal as probabilities alone.
  EXPECT_TRUE(are_choices(kPlain, {1.0F, 1.0F, 1.0F, 1.0F}, {}, {0, 1}));
  EXPECT_FALSE(are_choices(kPlain, {1.0F, 1.0F, 1.0F, 1.0F}, {}, {1, 0}));
  EXPECT_FALSE(are_choices(kPlain, {1.0F, 1.0F, 1.0F, 1.0F}, {}, {2, 3}));
  const std::vector<float> near = {9.0F, 5.0F, std::nextafter(5.0F, 6.0F), 0.0F};
  const Routing rule = Route(kPlain, near);
  EXPECT_TRUE(are_choices(kPlain, near, {}, {rule.experts[0].value, rule.experts[1].value}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(are_choices(kPlain, {nan, 2.0F, 1.0F, 0.0F}, {}, {0, 1}));
  EXPECT_TRUE(are_choices(kPlain, {nan, 2.0F, 1.0F, 0.0F}, {}, {1, 2}));
  RouterSpec biased = kPlain;
  biased.gating = Gating::kSigmoid;
  const std::vector<float> bias = {0.0F, 0.0F, 0.0F, 5.0F};
  EXPECT_TRUE(are_choices(biased, {0.0F, 2.0F, 1.0F, -1.0F}, bias, {3, 1}));
  EXPECT_FALSE(are_choices(biased, {0.0F, 2.0F, 1.0F, -1.0F}, bias, {1, 2}));
}

TEST(Route, NeverRepeatsAnExpertEvenOnBrokenLogits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& logits :
       {std::vector<float>{nan, nan, nan, nan}, std::vector<float>{inf, inf, -inf, nan},
        std::vector<float>{-inf, -inf, -inf, -inf}}) {
    const Routing r = Route(kPlain, logits);
    EXPECT_NE(r.experts[0].value, r.experts[1].value);
    EXPECT_LT(r.experts[0].value, 4);
    EXPECT_FALSE(std::isnan(r.weights[0]));
  }
}

std::vector<int> Chosen(const Routing& r) {
  std::vector<int> ids;
  for (const ExpertId id : r.experts) ids.push_back(id.value);
  return ids;
}

double SigmoidOf(double x) { return 1.0 / (1.0 + std::exp(-x)); }

TEST(Route, SigmoidWeighsEachExpertForItself) {
  RouterSpec spec = kPlain;
  spec.gating = Gating::kSigmoid;
  const Routing r = Route(spec, std::vector<float>{0.5F, 2.0F, 1.0F, -1.0F});
  EXPECT_EQ(Chosen(r), (std::vector{1, 2}));
  EXPECT_NEAR(r.weights[0], SigmoidOf(2.0), 1e-6);
  EXPECT_NEAR(r.weights[1], SigmoidOf(1.0), 1e-6);
}

TEST(Route, TheBiasDecidesWhoNotHowMuch) {
  RouterSpec spec = kPlain;
  spec.gating = Gating::kSigmoid;
  const std::vector<float> logits{0.5F, 2.0F, 1.0F, -1.0F};
  const std::vector<float> bias{0.0F, -0.5F, 0.0F, 0.6F};  // selection 0.62, 0.38, 0.73, 0.87
  const Routing r = Route(spec, logits, bias);
  EXPECT_EQ(Chosen(r), (std::vector{3, 2}));
  EXPECT_NEAR(r.weights[0], SigmoidOf(-1.0), 1e-6);
  EXPECT_NEAR(r.weights[1], SigmoidOf(1.0), 1e-6);
  spec.renormalise = true;
  spec.weight_scale = 2.5F;
  const Routing scaled = Route(spec, logits, bias);
  EXPECT_NEAR(scaled.weights[0], 2.5 * SigmoidOf(-1.0) / (SigmoidOf(-1.0) + SigmoidOf(1.0)), 1e-6);
}

TEST(Route, SoftmaxOfTheChosenOnly) {
  RouterSpec spec = kPlain;
  spec.gating = Gating::kSoftmaxOfChosen;
  const Routing r = Route(spec, std::vector<float>{0.5F, 2.0F, 1.0F, -1.0F});
  EXPECT_EQ(Chosen(r), (std::vector{1, 2}));
  EXPECT_NEAR(r.weights[0], SigmoidOf(1.0), 1e-6);  // e^2 / (e^2 + e^1)
  EXPECT_NEAR(r.weights[1], SigmoidOf(-1.0), 1e-6);
}

TEST(Route, OnlyTheBestGroupsTakePart) {
  // Groups {0,1}, {2,3}, {4,5}: the best expert of all is in the group with the smallest sum.
  RouterSpec spec{.n_expert = 6, .n_used = 3, .gating = Gating::kSigmoid, .n_group = 3};
  spec.n_group_used = 2;
  const std::vector<float> logits{3.0F, -9.0F, 1.0F, 0.5F, 2.0F, 0.0F};
  EXPECT_EQ(Chosen(Route(spec, logits)), (std::vector{4, 2, 3}));
  // The bias counts for groups as well.
  EXPECT_EQ(Chosen(Route(spec, logits, std::vector<float>{0, 1.0F, 0, 0, 0, 0})),
            (std::vector{1, 0, 4}));
  spec.n_group_used = 3;
  EXPECT_EQ(Chosen(Route(spec, logits)), (std::vector{0, 4, 2}));
}

// Who is excluded is a candidate with no score, and widens no range.
TEST(Route, CandidatesOfExcludedGroupsCannotRun) {
  RouterSpec spec{.n_expert = 6, .n_used = 2, .gating = Gating::kSigmoid, .n_group = 3};
  spec.n_group_used = 1;
  const std::vector<float> logits{3.0F, -9.0F, 1.0F, 0.5F, 2.0F, 0.0F};
  const Routing routing = Route(spec, logits, {}, 6);
  const std::vector<float>& scores = routing.candidates.scores;
  ASSERT_EQ(scores.size(), 6U);
  EXPECT_EQ(routing.candidates.experts[0].value, 4);
  EXPECT_EQ(routing.candidates.experts[1].value, 5);
  for (size_t i = 2; i < 6; ++i) EXPECT_EQ(scores[i], -std::numeric_limits<float>::infinity());
  EXPECT_FLOAT_EQ(routing.candidates.ranges[0], scores[0] - scores[1]);
}

TEST(Route, GroupsTieToTheLowerId) {
  const RouterSpec spec{.n_expert = 4, .n_used = 2, .n_group = 2, .n_group_used = 1};
  EXPECT_EQ(Chosen(Route(spec, std::vector<float>{1.0F, 1.0F, 1.0F, 1.0F})), (std::vector{0, 1}));
}

TEST(Route, EveryKindSurvivesBrokenLogits) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const Gating gating : {Gating::kSoftmax, Gating::kSigmoid, Gating::kSoftmaxOfChosen}) {
    for (const uint32_t groups : {1U, 2U}) {
      const RouterSpec spec{.n_expert = 4, .n_used = 2, .gating = gating, .n_group = groups};
      for (const std::vector<float>& logits :
           {std::vector<float>{nan, nan, nan, nan}, std::vector<float>{inf, inf, -inf, nan},
            std::vector<float>{-inf, -inf, -inf, -inf}}) {
        const Routing r = Route(spec, logits, std::vector<float>{nan, 0.0F, inf, -inf});
        EXPECT_NE(r.experts[0].value, r.experts[1].value);
        EXPECT_FALSE(std::isnan(r.weights[0])) << static_cast<int>(gating);
      }
    }
  }
}

}  // namespace
}  // namespace moestro
