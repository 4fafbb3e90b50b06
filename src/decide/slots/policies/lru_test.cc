// SPDX-License-Identifier: MIT
#include "decide/slots/policies/lru.h"

#include <gtest/gtest.h>

#include "decide/slots/policies/pins_testing.h"

namespace moestro {
namespace {

ExpertKey Key(uint16_t e) { return {.layer = {0}, .expert = {e}}; }

TEST(Lru, GivesUpTheOldest) {
  LruPolicy lru;
  lru.Reset({.slots = 3});
  for (uint32_t i = 0; i < 3; ++i) lru.Inserted(SlotId{i}, Key(static_cast<uint16_t>(i)), 1);
  EXPECT_EQ(lru.Victim(Pins()).value, 0U);
  lru.Touched(SlotId{0}, 1);
  EXPECT_EQ(lru.Victim(Pins()).value, 1U);
  EXPECT_EQ(lru.Victim(Pins({1})).value, 2U);
  lru.Erased(SlotId{1});
  EXPECT_EQ(lru.Victim(Pins()).value, 2U);
}

TEST(Lru, ResetForgets) {
  LruPolicy lru;
  lru.Reset({.slots = 2});
  lru.Inserted(SlotId{1}, Key(1), 1);
  lru.Reset({.slots = 2});
  lru.Inserted(SlotId{0}, Key(0), 1);
  EXPECT_EQ(lru.Victim(Pins()).value, 0U);
}

TEST(Registry, KnowsItsNamesAndRefusesOthers) {
  for (const PolicyInfo& info : KnownPolicies())
    EXPECT_TRUE(MakePolicy({.name = std::string(info.name)}).has_value()) << info.name;
  const auto unknown = MakePolicy({.name = "mru"});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, Errc::kUsage);
  EXPECT_NE(unknown.error().message.find("lru"), std::string::npos);
}

}  // namespace
}  // namespace moestro
