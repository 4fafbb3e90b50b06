// SPDX-License-Identifier: MIT
#include "engine/option_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/knobs.h"

namespace moestro {
namespace {

TEST(OptionTable, EachNameComesOnceAndPartsFollowEachOther) {
  std::set<std::string> names;
  for (const OptionRow& row : OptionTable()) {
    EXPECT_TRUE(names.insert(std::string(row.name())).second) << row.name();
    EXPECT_FALSE(row.help.empty()) << row.name();
    EXPECT_EQ(row.value.empty(), bool{row.on_off}) << row.name();
    for (const std::string_view other : {row.needs, row.excludes}) {
      EXPECT_TRUE(other.empty() || names.contains(std::string(other.substr(2)))) << other;
    }
  }
  EXPECT_TRUE(std::ranges::is_sorted(OptionTable(), {}, &OptionRow::part));
  EXPECT_EQ(FindOption("ctx").flag, "-c,--ctx,--ctx-size");
  EXPECT_EQ(FindOption("rescale").flag, "--rescale,!--no-rescale");
}

TEST(OptionTable, WhatARowSaysItReads) {
  for (const OptionRow& row : OptionTable()) {
    const auto text = row.get(EngineOptions{});
    if (!text) continue;
    EngineOptions options;
    if (row.name() == "threads") continue;  // 0 stands for the physical cores
    const Status set = row.set(options, *text);
    ASSERT_TRUE(set) << row.name() << " " << *text << ": " << set.error().message;
    EXPECT_EQ(row.get(options), text) << row.name();
  }
}

TEST(OptionTable, ValuesOutsideTheirRangesAreRefusedOnce) {
  using Spoil = std::function<void(EngineOptions&)>;
  const std::vector<std::pair<std::string, Spoil>> spoilt = {
      {"--t1 is 1.5; write a number from 0 to 1", [](auto& o) { o.lossy.t1 = 1.5; }},
      {"--t2 is -0.5; write a number from 0 to 1", [](auto& o) { o.lossy.t2 = -0.5; }},
      {"--gamma is nan",
       [](auto& o) { o.little.gamma = std::numeric_limits<double>::quiet_NaN(); }},
      {"--drop-below is 2", [](auto& o) { o.lossy.drop_below = 2.0; }},
      {"--prefer-resident is 2", [](auto& o) { o.lossy.prefer_resident = 2.0; }},
      {"--low-share is 1; write a number between 0 and 1", [](auto& o) { o.low_share = 1.0; }},
      {"--prefetch is 9; write a whole number from 0 to 8", [](auto& o) { o.prefetch = 9; }},
      {"--io-depth is 257; write auto, or 1 to 256", [](auto& o) { o.io_depth = 257; }},
      {"fortune", [](auto& o) { o.predictor = "fortune"; }},
      {"mmap", [](auto& o) { o.reader = "mmap"; }},
      {"'both' is no way to use memory nodes; write auto or off", [](auto& o) { o.numa = "both"; }},
      {"beauty", [](auto& o) { o.lossy.importance = "beauty"; }},
  };
  EXPECT_TRUE(CheckOptions(EngineOptions{}));
  for (const auto& [sentence, spoil] : spoilt) {
    EngineOptions options;
    spoil(options);
    const Status checked = CheckOptions(options);
    ASSERT_FALSE(checked) << sentence;
    EXPECT_EQ(checked.error().code, Errc::kUsage);
    EXPECT_TRUE(checked.error().message.contains(sentence)) << checked.error().message;
  }
}

TEST(OptionTable, HelpSaysRangeAndDefault) {
  EXPECT_TRUE(HelpOf(FindOption("prefetch")).ends_with("(from 0 to 8; default: 1)"));
  EXPECT_TRUE(HelpOf(FindOption("t1")).ends_with("(from 0 to 1; default: 0.6 with --low)"));
  EXPECT_TRUE(HelpOf(FindOption("importance")).contains("(default: score):\nscore: "));
  EXPECT_EQ(HelpOf(FindOption("upgrade")).find("default"), std::string::npos);
}

// What a new option takes: this row.
TEST(OptionTable, ARowIsAKnobWithItsRange) {
  const std::array table = {NumberOption(
      {.flag = "--fresh", .value = "N", .help = "as a test says", .is_knob = true},
      [](auto& o) -> auto& { return o.check_every; }, 0U, 100U)};
  EXPECT_EQ(KnownKnobs(table), (std::vector<std::string_view>{"fresh"}));
  EngineOptions options;
  EXPECT_TRUE(SetKnob(options, "fresh", "7", table));
  EXPECT_EQ(options.check_every, 7U);
  EXPECT_EQ(ToText(ChangedKnobs(options, table)), "fresh=7");
  for (const char* text : {"101", "-1", "7x", ""}) {
    const Status set = SetKnob(options, "fresh", text, table);
    ASSERT_FALSE(set) << text;
    EXPECT_EQ(set.error().message, "'" + std::string(text) + "' is no whole number from 0 to 100");
    EXPECT_EQ(options.check_every, 7U) << "what is refused changes nothing";
  }
  options.check_every = 101;
  const Status checked = CheckOptions(options, table);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message, "--fresh is 101; write a whole number from 0 to 100");
}

}  // namespace
}  // namespace moestro
