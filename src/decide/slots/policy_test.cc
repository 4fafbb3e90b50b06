// SPDX-License-Identifier: MIT
#include "decide/slots/policy.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

PolicyTuning Tuning() {
  return {
      .model = {.name = "one.gguf"},
      .sizes = {{.slots = 8, .choice = {.name = "lfu"}}, {.slots = 32, .choice = {.name = "lru"}}}};
}

TEST(PolicyTuning, TheNearestSizeByRatioCounts) {
  const PolicyTuning tuning = Tuning();
  const auto name = [&](uint64_t slots) { return ChoiceFor(tuning, slots).name; };
  EXPECT_EQ(name(2), "lfu");
  EXPECT_EQ(name(8), "lfu");
  EXPECT_EQ(name(15), "lfu");
  EXPECT_EQ(name(17), "lru");
  EXPECT_EQ(name(64), "lru");
}

}  // namespace
}  // namespace moestro
