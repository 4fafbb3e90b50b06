// SPDX-License-Identifier: MIT
#include "cli/option_flags.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace moestro {
namespace {

// Empty: parsed.
std::string Parse(std::span<const OptionRow> table, EngineOptions& options,
                  std::vector<std::string> arguments) {
  CommandLine line("program", "", "");
  const Flags flags = line.AddCommand({"command", ""}, [] { return 0; });
  AddOptionFlags(flags, options, table);
  arguments.insert(arguments.begin(), "command");
  const auto action = line.Parse(std::move(arguments));
  return action ? "" : action.error().message;
}

TEST(OptionFlags, ARowIsAFlagWithItsRange) {
  const std::array table = {
      SwitchOption({.flag = "--fast", .help = "as a test says"},
                   [](auto& o) -> auto& { return o.fast_batches; }),
      NumberOption(
          {.flag = "--fresh", .value = "N", .help = "as a test says", .needs = "--fast"},
          [](auto& o) -> auto& { return o.check_every; }, 0U, 100U)};
  EngineOptions options;
  EXPECT_EQ(Parse(table, options, {"--fast", "--fresh", "7"}), "");
  EXPECT_EQ(options.check_every, 7U);
  EXPECT_TRUE(options.fast_batches);
  EXPECT_EQ(Parse(table, options, {"--fast", "--fresh", "101"}),
            "--fresh: '101' is no whole number from 0 to 100 (see program command --help)");
  EXPECT_TRUE(Parse(table, options, {"--fresh", "7"}).contains("--fast"));
}

TEST(OptionFlags, RowsOfThePartsThatTheSimulatorHasToo) {
  EngineOptions options;
  CommandLine line("program", "", "");
  const Flags flags = line.AddCommand({"command", ""}, [] { return 0; });
  AddOptionFlags(flags, options, OptionPart::kLossy);
  AddOptionFlags(flags, options, OptionPart::kLittle);
  const auto parsed = line.Parse({"command", "--t1", "0.5", "--no-rescale", "--little", "half"});
  EXPECT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(options.lossy.t1, 0.5);
  EXPECT_TRUE(options.little.is_half);
  EXPECT_FALSE(line.Parse({"command", "--low", "x"}));
}

TEST(OptionFlags, EachIsInTheDocument) {
  std::ifstream file(MOESTRO_SOURCE_DIR "/docs/flags.md");
  const std::string document((std::istreambuf_iterator<char>(file)), {});
  for (const OptionRow& row : OptionTable()) {
    EXPECT_TRUE(document.contains("`--" + std::string(row.name())))
        << "docs/flags.md does not say what --" << row.name() << " does";
  }
}

}  // namespace
}  // namespace moestro
