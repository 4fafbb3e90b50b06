// SPDX-License-Identifier: MIT
#include "cli/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cli/flags.h"

namespace moestro {
namespace {

const std::vector<std::string> kNames = {"run", "serve", "inspect"};

std::string Command(std::string_view typed) {
  return UnknownCommand(typed, {.program = "moestro", .names = kNames, .for_files = "moestro run"});
}

TEST(UsageAdvice, NamesTheNearestCommand) {
  EXPECT_EQ(Command("rnu"),
            "'rnu' is no command; did you mean 'moestro run'? (see moestro --help)");
}

TEST(UsageAdvice, ListsTheCommandsWhereNoneIsNear) {
  EXPECT_EQ(Command("dance"),
            "'dance' is no command; commands are run, serve, inspect (see moestro --help)");
  EXPECT_EQ(Command(""),
            "a command is missing: commands are run, serve, inspect (see moestro --help)");
  EXPECT_EQ(Command("--prompt"),
            "a command must come before '--prompt': commands are run, serve, inspect (see moestro "
            "--help)");
}

TEST(UsageAdvice, AModelInPlaceOfACommandIsToBeRun) {
  EXPECT_EQ(Command("model.gguf"),
            "'model.gguf' is no command; to start a model: moestro run model.gguf");
  EXPECT_EQ(Command("B.GGUF"), "'B.GGUF' is no command; to start a model: moestro run B.GGUF");
  EXPECT_TRUE(Command("owner/name").ends_with("moestro run owner/name"));
  EXPECT_TRUE(Command(".gguf").contains("commands are"));
  EXPECT_TRUE(UnknownCommand("a.gguf", {.program = "m", .names = kNames, .for_files = ""})
                  .contains("commands are"));
}

TEST(UsageAdvice, KnowsTheCommandsOfAnotherProgram) {
  const std::vector<std::string> others = {"eval", "trace"};
  const auto command = [&](std::string_view typed) {
    return UnknownCommand(typed, {.program = "moestro",
                                  .names = kNames,
                                  .other_program = "moestro-lab",
                                  .other_start = "moestro",
                                  .other_names = others});
  };
  EXPECT_EQ(command("eval"), "'eval' is a command of moestro-lab: moestro eval");
  EXPECT_EQ(command("evla"),
            "'evla' is no command; did you mean 'moestro eval'? (see moestro --help)");
  EXPECT_EQ(command("rnu"),
            "'rnu' is no command; did you mean 'moestro run'? (see moestro --help)");
  EXPECT_EQ(command(""),
            "a command is missing: commands are run, serve, inspect; of moestro-lab eval, trace "
            "(see moestro --help)");
}

TEST(UsageAdvice, NamesTheNearestFlagWithoutItsValue) {
  const std::vector<std::string> flags = {"--prompt", "--ram"};
  const std::string wanted =
      "moestro run has no flag '--promt'; did you mean --prompt? (see moestro run --help)";
  EXPECT_EQ(UnknownFlag("--promt", "moestro run", flags), wanted);
  EXPECT_EQ(UnknownFlag("--promt=Hello", "moestro run", flags), wanted);
  EXPECT_EQ(UnknownFlag("--dance", "moestro run", flags),
            "moestro run has no flag '--dance' (see moestro run --help)");
}

TEST(UsageAdvice, HostileTextStaysOneShortLine) {
  for (const std::string& typed :
       {std::string("a\nb\x1b[31m\xff\0", 11), std::string(1'000'000, 'z'), std::string("\n")}) {
    for (const std::string& text : {Command(typed), UnknownFlag(typed, "moestro run", kNames)}) {
      EXPECT_LT(text.size(), 400U);
      EXPECT_TRUE(std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; })) << text;
    }
  }
}

// Through the parser, which has its own words for these.
class UsageAdviceOfFlags : public ::testing::Test {
 protected:
  UsageAdviceOfFlags() : line_("moestro", "", "1") {
    line_.NameCommandForFiles("moestro run");
    Flags run = line_.AddCommand({"run", ""}, [] { return 0; });
    run.Add("MODEL", model_, "");
    run.Add("-p,--prompt", prompt_, "");
    run.AddSwitch("--perf,!--no-perf", perf_, "");
    Flags logits = line_.AddCommand({"logits", ""}, [] { return 0; });
    logits.Add("--tokens", tokens_, "").Required();
  }
  std::string Error(std::vector<std::string> arguments) {
    const auto action = line_.Parse(std::move(arguments));
    if (action) return "none";
    EXPECT_EQ(action.error().code, Errc::kUsage);
    return action.error().message;
  }

  CommandLine line_;
  std::string model_;
  std::string prompt_;
  std::string tokens_;
  bool perf_ = false;
};

TEST_F(UsageAdviceOfFlags, CommandsAndFiles) {
  EXPECT_TRUE(Error({"rnu"}).contains("did you mean 'moestro run'?"));
  EXPECT_TRUE(Error({"rnu", "m.gguf", "-p", "x"}).contains("did you mean 'moestro run'?"));
  EXPECT_TRUE(Error({"m.gguf", "-p", "x"}).contains("moestro run m.gguf"));
  EXPECT_TRUE(Error({}).contains("commands are run, logits"));
  EXPECT_TRUE(Error({"-p", "x"}).contains("before '-p'"));
  EXPECT_EQ(Error({"run", "m.gguf"}), "none");
}

TEST_F(UsageAdviceOfFlags, FlagsOfTheCommand) {
  EXPECT_TRUE(Error({"run", "--promt", "x"}).contains("did you mean --prompt?"));
  EXPECT_TRUE(Error({"run", "m.gguf", "--promt=x"}).contains("did you mean --prompt?"));
  EXPECT_TRUE(Error({"run", "--no-pref"}).contains("did you mean --no-perf?"));
  EXPECT_TRUE(Error({"run", "--hepl"}).contains("did you mean --help?"));
  EXPECT_TRUE(Error({"run", "--dance"}).ends_with("(see moestro run --help)"));
  EXPECT_TRUE(Error({"--versoin", "run"}).contains("did you mean --version?"));
}

// The flag that is missing is the one that was mistyped.
TEST_F(UsageAdviceOfFlags, RequiredFlagsThatWereMistyped) {
  EXPECT_TRUE(Error({"logits", "--tokns", "1"}).contains("did you mean --tokens?"));
  EXPECT_TRUE(Error({"logits"}).contains("--tokens is required"));
}

TEST_F(UsageAdviceOfFlags, WordsTooManyAreStillNamed) {
  EXPECT_TRUE(Error({"run", "a.gguf", "b.gguf"}).contains("b.gguf"));
}

}  // namespace
}  // namespace moestro
