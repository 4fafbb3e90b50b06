// SPDX-License-Identifier: MIT
#include "engine/knobs.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro {
namespace {

TEST(Knobs, EachSetsItsOption) {
  EngineOptions options;
  const std::vector<std::pair<std::string_view, std::string>> values = {
      {"cache", "25%"}, {"ram", "2G"}, {"policy", "lru"}, {"predictor", "none"}, {"prefetch", "3"}};
  for (const auto& [name, value] : values) {
    EXPECT_TRUE(SetKnob(options, name, value).has_value()) << name;
  }
  EXPECT_EQ(values.size(), KnownKnobs().size());
  EXPECT_EQ(options.cache->percent, 25.0);
  EXPECT_EQ(options.ram_bytes, 2ULL << 30);
  EXPECT_EQ(options.policy->name, "lru");
  EXPECT_EQ(options.predictor, "none");
  EXPECT_EQ(options.prefetch, 3U);
  EXPECT_TRUE(SetKnob(options, "policy", "auto").has_value());
  EXPECT_FALSE(options.policy.has_value());
}

TEST(Knobs, WhatAFlagWouldRefuseIsRefused) {
  EngineOptions options;
  for (const std::string_view name : KnownKnobs()) {
    for (const char* value : {"", "no such thing", "-1"}) {
      const Status status = SetKnob(options, name, value);
      ASSERT_FALSE(status.has_value()) << name << "=" << value;
      EXPECT_EQ(status.error().code, Errc::kUsage);
    }
  }
  EXPECT_FALSE(SetKnob(options, "prefetch", "9").has_value());
  EXPECT_FALSE(SetKnob(options, "ram", "0").has_value());
  const Status unknown = SetKnob(options, "speed", "11");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("cache, ram, policy"), std::string::npos);
}

}  // namespace
}  // namespace moestro
