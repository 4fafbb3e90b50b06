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
      {"cache", "25%"},
      {"ram", "2G"},
      {"policy", "lru"},
      {"predictor", "none"},
      {"prefetch", "3"},
      {"kv-type", "q8_0"},
      {"low", "l.gguf"},
      {"low-share", "0.5"},
      {"t1", "0.1"},
      {"t2", "0.7"},
      {"importance", "score-norm"},
      {"norms", "m.norms"},
      {"drop-below", "0.02"},
      {"prefer-resident", "0.3"},
      {"keep", "2"},
      {"rescale", "1"},
      {"upgrade", "1"},
      {"lossy-mode", "opportunistic"},
      {"little", "half"},
      {"gamma", "0.9"},
      {"little-misses", "drop"}};
  for (const auto& [name, value] : values) {
    EXPECT_TRUE(SetKnob(options, name, value).has_value()) << name;
  }
  EXPECT_EQ(values.size(), KnownKnobs().size());
  EXPECT_EQ(options.cache->percent, 25.0);
  EXPECT_EQ(options.ram_bytes, 2ULL << 30);
  EXPECT_EQ(options.policy->name, "lru");
  EXPECT_EQ(options.predictor, "none");
  EXPECT_EQ(options.prefetch, 3U);
  EXPECT_EQ(options.kv_type, KvType::kQ8);
  EXPECT_EQ(options.low, "l.gguf");
  EXPECT_EQ(options.norms, "m.norms");
  EXPECT_EQ(options.lossy.t1, 0.1);
  EXPECT_FALSE(options.lossy.is_reproducible);
  EXPECT_EQ(options.little,
            (LittleOptions{.is_half = true, .gamma = 0.9, .misses = Misses::kDrop}));
  EXPECT_TRUE(SetKnob(options, "policy", "auto").has_value());
  EXPECT_FALSE(options.policy.has_value());
}

TEST(Knobs, WhatWasChangedCanBeSetAgain) {
  EXPECT_TRUE(ChangedKnobs({}).empty());
  EngineOptions options;
  options.cache = CacheSize{.bytes = 5};
  options.ram_bytes = 7;
  options.policy = PolicyChoice{.name = "hobbit", .parameters = {{"w_lru", 0.25}}};
  options.prefetch = 0;
  options.low = "a b.gguf";
  options.lossy = {.t1 = 1.0 / 3.0,
                   .t2 = 0.9,
                   .importance = "score-norm",
                   .drop_below = 0.01,
                   .prefer_resident = 0.1,
                   .keep = 3,
                   .rescales = true,
                   .upgrades = true,
                   .is_reproducible = false};
  EngineOptions again;
  for (const KnobSetting& s : ChangedKnobs(options)) {
    EXPECT_FALSE(IsBudgetKnob(s.knob)) << s.knob;
    EXPECT_TRUE(SetKnob(again, s.knob, s.value)) << s.knob << "=" << s.value;
  }
  EXPECT_EQ(again.lossy, options.lossy);
  EXPECT_EQ(again.low, options.low);
  EXPECT_EQ(again.prefetch, 0U);
  EXPECT_EQ(ToText(*again.policy), ToText(*options.policy));
  EXPECT_FALSE(again.cache);
  EXPECT_TRUE(IsBudgetKnob("cache") && IsBudgetKnob("ram"));
}

TEST(Knobs, WhatAFlagWouldRefuseIsRefused) {
  EngineOptions options;
  for (const std::string_view name : KnownKnobs()) {
    if (name == "low" || name == "norms") continue;  // any text may name a file
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
  EXPECT_NE(unknown.error().message.find("ram, cache, kv-type, policy"), std::string::npos);
}

}  // namespace
}  // namespace moestro
