// SPDX-License-Identifier: MIT
// The flags of all commands, as the parser takes them.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "base/text.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "commands/commands.h"
#include "lab/commands.h"

namespace moestro {
namespace {

// What a command says about one of its flags alone with this value; empty: it takes the value.
// `line` is made once for many: that takes longer than reading it.
std::string Refusal(CommandLine& line, const std::string& command, const std::string& flag,
                    const std::string& value) {
  const auto action = line.Parse({command, Format("{}={}", flag, value)});
  if (action) return "";
  // What else the command needs is found out behind the value.
  const std::string& message = action.error().message;
  return message.contains(flag + ":") || message.contains(flag + ",") ? message : "";
}

struct NumberFlag {
  std::string command;
  std::string name;
  std::string good;  // a value that it takes
};

// Flags that take some number and not any text.
std::vector<NumberFlag> NumberFlags(CommandLine& line) {
  std::vector<NumberFlag> flags;
  for (const CommandText& command : line.Describe().commands) {
    for (const FlagText& flag : command.flags) {
      if (!flag.positional.empty() || flag.is_switch()) continue;
      const std::string name = "--" + flag.name();
      if (Refusal(line, command.name, name, "x!").empty()) continue;
      if (Refusal(line, command.name, name, "one").empty()) continue;  // names of hosts
      for (const char* good : {"1", "0.5", "64", "1/1", "KL=1", "1+1"}) {
        if (!Refusal(line, command.name, name, good).empty()) continue;
        flags.push_back({command.name, name, good});
        break;
      }
    }
  }
  return flags;
}

// Flags of numbers that take what is none: lists of numbers.
std::set<std::string> ListFlags(CommandLine& line, size_t at_least) {
  const std::vector<NumberFlag> flags = NumberFlags(line);
  EXPECT_GT(flags.size(), at_least);
  std::set<std::string> lists;
  for (const NumberFlag& flag : flags) {
    for (const std::string bad :
         {"3,0",   "0,95",     "1'0",      "1_0", "nan", "-nan", "NaN", "inf",
          "-inf",  "infinity", " 1",       "1 ",  "+1",  "0x1",  "0b1", "1e",
          "1.5.2", "1e999",    "\xC2\xB2", "1\t", "1;2", "one"}) {
      if (!Refusal(line, flag.command, flag.name, bad).empty()) continue;
      EXPECT_TRUE(bad == "3,0" || bad == "0,95")
          << flag.command << " " << flag.name << " takes '" << bad << "'";
      lists.insert(flag.name);
    }
  }
  return lists;
}

// One reader reads them all: none takes a part of a text for a number, or what is none.
TEST(FlagsTest, EveryNumberIsOneOrRefused) {
  const std::set<std::string> known = {"--rows", "--slots", "--tokens", "--vram"};
  EXPECT_TRUE(std::ranges::includes(known, ListFlags(*MakeCommandLine("1"), 50)));
  EXPECT_TRUE(std::ranges::includes(known, ListFlags(*MakeLabCommandLine("moestro", "1"), 50)));
}

TEST(FlagsTest, ANumberWithACommaIsToldThePoint) {
  const auto line = MakeCommandLine("1");
  EXPECT_EQ(Refusal(*line, "run", "--temp", "0,8"),
            "--temp: '0,8' is no number; write 0.8 (see moestro run --help)");
  EXPECT_EQ(Refusal(*line, "run", "--predict", "3,0"),
            "-n,--predict,--n-predict: '3,0' is no whole number (see moestro run --help)");
  EXPECT_EQ(Refusal(*line, "serve", "--queue", "-1"),
            "--queue: '-1' is no whole number from 0 on (see moestro serve --help)");
}

}  // namespace
}  // namespace moestro
