// SPDX-License-Identifier: MIT
#include "offline/record/output_norms.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/layer_plan.h"

namespace moestro {
namespace {

TEST(OutputNorms, AreMeansOverRowsAndTheLayersMeanWhereNoRowCame) {
  OutputNorms norms({.n_layer = 2, .n_expert = 3, .n_used = 2}, 2);
  LayerPlan plan{.layer = ExpertLayerId{0}};
  plan.experts = {
      {.key = {.layer = ExpertLayerId{0}, .expert = {2}}, .first_pair = 0, .n_pairs = 2},
      {.key = {.layer = ExpertLayerId{0}, .expert = {0}}, .first_pair = 2, .n_pairs = 1}};
  const std::vector<float> results = {3, 4, 0, 1, 6, 8};  // lengths 5, 1 and 10
  norms.Add({.plan = plan, .inputs = {}, .products = {}, .results = results});
  const ExpertNorms mean = norms.Mean();
  EXPECT_FLOAT_EQ(mean.of(ExpertLayerId{0}, {2}), 3.0F);
  EXPECT_FLOAT_EQ(mean.of(ExpertLayerId{0}, {0}), 10.0F);
  EXPECT_FLOAT_EQ(mean.of(ExpertLayerId{0}, {1}), 6.5F);
  EXPECT_FLOAT_EQ(mean.of(ExpertLayerId{1}, {1}), 1.0F);
}

}  // namespace
}  // namespace moestro
