// SPDX-License-Identifier: MIT
#include "speed/logits_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro {
namespace {

TEST(HashLogits, DependsOnEveryBit) {
  const std::vector<float> a = {1.0F, 2.0F};
  EXPECT_EQ(HashLogits(a), HashLogits(std::vector<float>{1.0F, 2.0F}));
  EXPECT_NE(HashLogits(a), HashLogits(std::vector<float>{2.0F, 1.0F}));
  EXPECT_NE(HashLogits(std::vector<float>{0.0F}), HashLogits(std::vector<float>{-0.0F}));
  EXPECT_EQ(HashLogits({}), "cbf29ce484222325");
}

}  // namespace
}  // namespace moestro
