// SPDX-License-Identifier: MIT
#include "cli/common_flags.h"

#include <gtest/gtest.h>

#include <array>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/number.h"
#include "cli/flags.h"

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
  AddOptionFlags(flags, options, OptionGroup::kLossy);
  AddOptionFlags(flags, options, OptionGroup::kLittle);
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

struct Parsed {
  CommonOptions common;
  SamplingOptions sampling;
  std::string error;  // empty: parsed
};

Parsed Parse(std::vector<std::string> arguments) {
  Parsed parsed;
  CommandLine line("program", "", "");
  Flags flags = line.AddCommand({"command", ""}, [] { return 0; });
  AddSamplingFlags(flags, parsed.sampling);
  AddCommonFlags(flags, parsed.common);
  arguments.insert(arguments.begin(), "command");
  if (const auto action = line.Parse(arguments); !action) parsed.error = action.error().message;
  return parsed;
}

TEST(CommonFlags, SizesAndShares) {
  const Parsed parsed = Parse({"--ram", "6G", "--cache", "25%", "-t", "2", "-c", "512"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.common.engine.ram_bytes, 6 * kGiB);
  ASSERT_TRUE(parsed.common.engine.cache);
  EXPECT_EQ(parsed.common.engine.cache->bytes, 0U);
  EXPECT_EQ(parsed.common.engine.cache->percent, 25.0);
  EXPECT_EQ(parsed.common.engine.threads, 2U);
  EXPECT_EQ(parsed.common.engine.ctx, 512U);
  EXPECT_EQ(Parse({"--cache", "512M"}).common.engine.cache->bytes, 512 * kMiB);
}

TEST(CommonFlags, ChunksAreANumberOfTokensOrTheModels) {
  EXPECT_EQ(Parse({"--chunk", "auto"}).common.engine.chunk, 0U);
  EXPECT_EQ(Parse({"--chunk", "96"}).common.engine.chunk, 96U);
  EXPECT_EQ(Parse({}).common.engine.chunk, 0U);
}

TEST(CommonFlags, SeedsAreNumbersAndMinusOneIsNone) {
  EXPECT_EQ(Parse({"--seed", "4294967295"}).common.seed, 4294967295U);
  EXPECT_EQ(Parse({"-s", "0"}).common.seed, 0U);
  EXPECT_EQ(Parse({"--seed", "-1"}).common.seed, std::nullopt);
  EXPECT_EQ(Parse({}).common.seed, std::nullopt);
}

TEST(CommonFlags, MistakesNameTheFlagAndTheValue) {
  const auto expect = [](std::vector<std::string> arguments) {
    const std::string flag = arguments[0];
    const std::string value = arguments.back();
    const std::string error = Parse(std::move(arguments)).error;
    EXPECT_NE(error.find(flag), std::string::npos) << flag << ": " << error;
    EXPECT_NE(error.find(value), std::string::npos) << value << ": " << error;
  };
  expect({"--ram", "lots"});
  expect({"--cache", "0%"});
  expect({"--cache", "101%"});
  expect({"--threads", "many"});
  expect({"--numa", "on"});
  expect({"--numa", "0"});
  expect({"--ctx", "x"});
  expect({"--seed", "4294967296"});
  expect({"--seed", "-2"});
  expect({"--reader", "mmap"});
  expect({"--io-depth", "0"});
  expect({"--io-depth", "257"});
  expect({"--io-depth", "some"});
  expect({"--policy", "fortune"});
  expect({"--chunk", "0"});
  expect({"--chunk", "half"});
  expect({"--logit-bias", "12"});
  expect({"--top-k", "few"});
  EXPECT_NE(Parse({"--ram", "0"}).error, "");
  EXPECT_NE(Parse({"--threads", "-1"}).error, "");
}

TEST(CommonFlags, TheDepthOfReadsIsANumberOrMeasured) {
  EXPECT_EQ(Parse({}).common.engine.io_depth, 0U);
  EXPECT_EQ(Parse({"--io-depth", "auto"}).common.engine.io_depth, 0U);
  EXPECT_EQ(Parse({"--io-depth", "256"}).common.engine.io_depth, 256U);
}

TEST(CommonFlags, ThePolicyIsNamedOrReadOrFound) {
  EXPECT_FALSE(Parse({}).common.engine.policy);
  EXPECT_FALSE(Parse({"--policy", "auto"}).common.engine.policy);
  EXPECT_EQ(Parse({"--policy", "lru"}).common.engine.policy->name, "lru");
  EXPECT_EQ(Parse({"--policy-file", "x.json"}).common.engine.policy_file, "x.json");
  EXPECT_NE(Parse({"--policy", "lru", "--policy-file", "x.json"}).error, "");
}

TEST(SamplingFlags, CarryLlamaCppsNamesAndDefaults) {
  const SamplingOptions defaults = Parse({}).sampling;
  EXPECT_EQ(defaults.temp, 0.8F);
  EXPECT_EQ(defaults.top_k, 40);
  EXPECT_EQ(defaults.top_p, 0.95F);
  EXPECT_EQ(defaults.min_p, 0.05F);
  EXPECT_EQ(defaults.repeat_last_n, 64);
  EXPECT_EQ(defaults.repeat_penalty, 1.0F);
  const Parsed parsed =
      Parse({"--temp", "0", "--top-k", "5", "--min-p", "0.1", "--repeat-penalty", "1.1",
             "--logit-bias", "7+1.5", "--logit-bias", "8-2", "--ignore-eos"});
  EXPECT_EQ(parsed.error, "");
  EXPECT_EQ(parsed.sampling.temp, 0.0F);
  EXPECT_EQ(parsed.sampling.top_k, 5);
  EXPECT_EQ(parsed.sampling.min_p, 0.1F);
  EXPECT_EQ(parsed.sampling.repeat_penalty, 1.1F);
  EXPECT_TRUE(parsed.sampling.ignore_eos);
  EXPECT_EQ(parsed.sampling.logit_bias,
            (std::vector<std::pair<Token, float>>{{7, 1.5F}, {8, -2.0F}}));
}

TEST(SamplingFlags, AMissingGrammarFileIsAUsageError) {
  EXPECT_NE(Parse({"--grammar-file", "/nowhere/x.gbnf"}).error.find("/nowhere/x.gbnf"),
            std::string::npos);
}

TEST(Features, AlonePairsAndTheirRefusals) {
  EXPECT_TRUE(CheckTogether({}));
  EXPECT_TRUE(CheckTogether({.draft = true}));
  EXPECT_TRUE(CheckTogether({.little = true, .low = true, .prefer_resident = true}));
  EXPECT_TRUE(CheckTogether({.beams = true, .low = true}));
  const Status refused = CheckTogether({.little = true, .beams = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kUsage);
  EXPECT_EQ(refused.error().message,
            "--little and --beams do not work together; --little works with --low, "
            "--prefer-resident, --sequences");
  const Status alone = CheckTogether({.draft = true, .low = true});
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().message,
            "--draft and --low do not work together; --draft works with none of these");
}

TEST(Features, AnEnginesOptions) {
  EngineOptions engine;
  engine.little.is_half = true;
  engine.lossy.prefer_resident = 0.1;
  const Features features = FeaturesOf(engine);
  EXPECT_TRUE(features.little && features.prefer_resident);
  EXPECT_FALSE(features.low || features.draft || features.beams || features.sequences);
}

}  // namespace
}  // namespace moestro
