// SPDX-License-Identifier: MIT
// --little, --draft and what they work with, from outside.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using Arguments = std::vector<std::string>;
using testing::Finished;
using testing::kDemo;
using testing::Program;

Arguments With(Arguments arguments, const Arguments& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

class PassesTest : public ::testing::Test {
 protected:
  Finished RunProgram(const Arguments& arguments) const {
    return Program(folder_.path(), {.arguments = arguments}).Wait();
  }
  Finished Write(const Arguments& more, const std::string& tokens = "40") const {
    return RunProgram(With({"run", kDemo, "-p", "Once upon a time", "-n", tokens, "--cache", "30%",
                            "--seed", "1", "--ctx", "256", "-t", "1"},
                           more));
  }
  std::string Low() const {
    std::string made = (folder_.path() / "low.gguf").string();
    const Finished quantized = RunProgram({"quantize", kDemo, "-o", made, "--experts", "q4_0"});
    EXPECT_EQ(quantized.exit_code, 0) << quantized.err;
    return made;
  }

  TempFolder folder_;
};

TEST_F(PassesTest, LittleSaysHowOftenItWasNotSure) {
  const Finished sure = Write({"--little", "half", "--gamma", "0"});
  EXPECT_EQ(sure.exit_code, 0) << sure.err;
  EXPECT_NE(sure.err.find("little   0 of 39 tokens decoded again"), std::string::npos) << sure.err;
  const Finished some = Write({"--little", "2", "--gamma", "0.5", "--json"});
  const auto report = Json::Parse(some.out);
  ASSERT_TRUE(report) << some.out;
  EXPECT_EQ(report->Find("little_tokens")->number(), 39.0);
  EXPECT_GT(report->Find("fallback_ratio")->number().value_or(0), 0.0);
  EXPECT_LT(report->Find("fallback_ratio")->number().value_or(1), 1.0);
  EXPECT_GT(report->Find("foreseen_recall")->number().value_or(0), 0.5);
  const Finished exact = Write({});
  EXPECT_EQ(Write({"--little", "half", "--gamma", "1"}).out, exact.out);
  EXPECT_NE(sure.out, exact.out);
}

TEST_F(PassesTest, DraftsChangeNoText) {
  for (const Arguments& sampling : {Arguments{"--temp", "0"}, Arguments{"--temp", "1"}}) {
    const Finished plain = Write(sampling);
    for (const char* draft : {"little", "little:2", "ngram", "ngram:16", "auto"}) {
      const Finished drafted = Write(With(sampling, {"--draft", draft}));
      EXPECT_EQ(drafted.exit_code, 0) << drafted.err;
      EXPECT_EQ(drafted.out, plain.out) << draft;
    }
  }
}

TEST_F(PassesTest, ATextWithDraftsCanBeTakenUpAgain) {
  const auto twice = [&](const std::string& name, const Arguments& more) {
    const std::string session = (folder_.path() / name).string();
    const Arguments arguments = With({"--session", session, "--temp", "0"}, more);
    const Finished first = Write(arguments);
    EXPECT_EQ(first.exit_code, 0) << first.err;
    const Finished second =
        RunProgram(With({"run", kDemo, "-p", " and then", "-n", "20", "--ctx", "256"}, arguments));
    EXPECT_EQ(second.exit_code, 0) << second.err;
    return first.out + second.out;
  };
  EXPECT_EQ(twice("drafted", {"--draft", "little"}), twice("plain", {}));
}

TEST_F(PassesTest, WhatWorksTogetherDoes) {
  const std::string low = Low();
  const std::vector<Arguments> runs = {
      {"--little", "half", "--low", low},
      {"--little", "half", "--low", low, "--little-misses", "low"},
      {"--little", "half", "--prefer-resident", "0.1"},
      {"--low", low, "--prefer-resident", "0.1"},
      {"--beams", "3", "--low", low},
      {"--beams", "3", "--prefer-resident", "0.1"},
  };
  for (const Arguments& arguments : runs) {
    const Finished first = Write(arguments, "12");
    EXPECT_EQ(first.exit_code, 0) << first.err;
    EXPECT_EQ(Write(arguments, "12").out, first.out) << arguments.front();  // reproducible
  }
  const std::vector<Arguments> benches = {
      {"--sequences", "3", "--little", "half"},
      {"--sequences", "3", "--low", low},
      {"--sequences", "3", "--prefer-resident", "0.1"},
      {"--draft", "little"},
      {"--draft", "ngram", "--draft-acceptance", "0.8"},
      {"--little", "half", "--gamma-quantile", "0.3"},
  };
  for (const Arguments& arguments : benches) {
    const Finished bench = RunProgram(
        With({"bench", kDemo, "-p", "8", "-n", "12", "--cache", "30%", "--json"}, arguments));
    EXPECT_EQ(bench.exit_code, 0) << bench.err;
    const auto report = Json::Parse(bench.out);
    ASSERT_TRUE(report) << bench.out;
    EXPECT_EQ(report->Find("decode_tokens")->number(),
              arguments.front() == "--sequences" ? 36.0 : 12.0)
        << arguments.front();
  }
}

TEST_F(PassesTest, WhatDoesNotWorkTogetherIsAUsageError) {
  const std::vector<Arguments> pairs = {
      {"--little", "half", "--beams", "2"},
      {"--little", "half", "--draft", "ngram"},
      {"--draft", "little", "--beams", "2"},
      {"--draft", "little", "--low", "x.gguf"},
      {"--draft", "ngram", "--prefer-resident", "0.1"},
      {"--draft", "ngram", "--drop-below", "0.1"},
      {"--draft", "mtp", "--temp", "0"},  // the demo has no layer for it
  };
  for (const Arguments& pair : pairs) {
    const Finished refused = Write(pair);
    EXPECT_EQ(refused.exit_code, 2) << pair[0] << " " << pair[2];
    EXPECT_NE(refused.err.find(pair[0]), std::string::npos) << refused.err;
    EXPECT_EQ(refused.out, "");
  }
  const Finished bench = RunProgram({"bench", kDemo, "--sequences", "2", "--draft", "ngram"});
  EXPECT_EQ(bench.exit_code, 2);
  EXPECT_NE(bench.err.find("do not work together"), std::string::npos);
}

TEST_F(PassesTest, WhatMeasuresAllExpertsRefusesFewer) {
  const std::string out = (folder_.path() / "out").string();
  const std::vector<Arguments> commands = {
      {"profile", kDemo, "--text", "x.txt"},
      {"imatrix", kDemo, "--text", "x.txt", "-o", out},
      {"fit", kDemo, "--text", "x.txt", "--tolerance", "KL=0.1", "-o", out},
  };
  for (const Arguments& command : commands) {
    const Finished refused = RunProgram(With(command, {"--little", "half"}));
    EXPECT_EQ(refused.exit_code, 2) << command.front();
    EXPECT_NE(refused.err.find("leave out --little"), std::string::npos) << refused.err;
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

TEST_F(PassesTest, BadValuesAreNamed) {
  const std::vector<Arguments> wrong = {
      {"--little", "4"},
      {"--little", "0"},
      {"--little", "many"},
      {"--little", "half", "--gamma", "1.1"},
      {"--little", "half", "--gamma", "-1"},
      {"--little", "half", "--gamma", "nan"},
      {"--little", "half", "--little-misses", "skip"},
      {"--little", "half", "--little-misses", "low"},
      {"--gamma", "0.5"},
      {"--draft", "big"},
      {"--draft", "little:0"},
      {"--draft", "ngram:17"},
  };
  for (const Arguments& arguments : wrong) {
    const Finished refused = Write(arguments);
    EXPECT_EQ(refused.exit_code, 2) << arguments[0] << " " << arguments[1] << refused.err;
    EXPECT_EQ(refused.out, "");
    EXPECT_NE(refused.err.find(arguments[arguments.size() - 2]), std::string::npos) << refused.err;
  }
}

}  // namespace
}  // namespace moestro
