// SPDX-License-Identifier: MIT
#include "cli/flags.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/program.h"

namespace moestro {
namespace {

TEST(FlagsTest, LimitsAreSaidInWords) {
  CommandLine line("program", "", "");
  Flags flags = line.AddCommand({"command", ""}, [] { return 0; });
  uint32_t whole = 3;
  double part = 0.5;
  std::optional<double> unset;
  flags.Add("-w,--whole", whole, "").Between(1U, 64U).ShowDefault();
  flags.Add("--part", part, "").Between(0.0, 1.0).ShowDefault();
  flags.Add("--unset", unset, "").Positive();
  const auto error = [&](const char* argument) {
    const auto action = line.Parse({"command", argument});
    return action ? "" : action.error().message;
  };
  EXPECT_EQ(error("--whole=65"), "--whole: '65' is not from 1 to 64 (see program command --help)");
  EXPECT_EQ(error("--whole=-1"), "--whole: '-1' is not from 1 to 64 (see program command --help)");
  EXPECT_EQ(error("--part=1.5"), "--part: '1.5' is not from 0 to 1 (see program command --help)");
  EXPECT_EQ(error("--unset=0"), "--unset: '0' is not above 0 (see program command --help)");
  EXPECT_EQ(error("--whole=64"), "");
  EXPECT_EQ(error("--part=1e-05"), "");
  EXPECT_EQ(error("--unset=2.5"), "");
  EXPECT_EQ(whole, 64U);
  EXPECT_EQ(part, 1e-05);
  EXPECT_EQ(unset, 2.5);
  const std::vector<FlagText> shown = line.Describe().commands.front().flags;
  const auto flag = [&](const char* name) {
    return *std::ranges::find(shown, name, [](const FlagText& f) { return f.name(); });
  };
  EXPECT_EQ(flag("whole").usual, "3");
  EXPECT_EQ(flag("whole").limits, "UINT in [1 - 64]");
  EXPECT_EQ(flag("part").usual, "0.5");
  EXPECT_EQ(flag("part").limits, "FLOAT in [0 - 1]");
}

}  // namespace
}  // namespace moestro
