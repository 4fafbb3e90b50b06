// SPDX-License-Identifier: MIT
#include "decide/policy_tuning.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

PolicyTuning Tuning() {
  return {
      .model = {.name = "one.gguf", .id = 7, .n_layer = 4, .n_expert = 16, .n_used = 2},
      .sizes = {{.slots = 8, .choice = {.name = "lfu"}}, {.slots = 32, .choice = {.name = "lru"}}}};
}

TEST(PolicyTuning, TheNearestSizeByRatioCounts) {
  const PolicyTuning tuning = Tuning();
  const auto name = [&](uint64_t slots) {
    return ChoiceFor(tuning, tuning.model, slots).value_or(PolicyChoice{}).name;
  };
  EXPECT_EQ(name(2), "lfu");
  EXPECT_EQ(name(8), "lfu");
  EXPECT_EQ(name(15), "lfu");
  EXPECT_EQ(name(17), "lru");
  EXPECT_EQ(name(64), "lru");
}

TEST(PolicyTuning, AnotherModelIsRefusedAndBothAreNamed) {
  const PolicyTuning tuning = Tuning();
  TunedModel other = tuning.model;
  other.name = "two.gguf";
  EXPECT_TRUE(ChoiceFor(tuning, other, 8)) << "a file may be renamed";
  other.id = 0;
  EXPECT_TRUE(ChoiceFor(tuning, other, 8)) << "a trace from elsewhere knows no fingerprint";
  other.id = 9;
  const auto refused = ChoiceFor(tuning, other, 8);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("one.gguf"), std::string::npos);
  EXPECT_NE(refused.error().message.find("two.gguf"), std::string::npos);
  for (uint32_t TunedModel::* const count :
       {&TunedModel::n_layer, &TunedModel::n_expert, &TunedModel::n_used}) {
    TunedModel shaped = tuning.model;
    ++(shaped.*count);
    shaped.id = 0;
    EXPECT_FALSE(ChoiceFor(tuning, shaped, 8));
  }
}

}  // namespace
}  // namespace moestro
