// SPDX-License-Identifier: MIT
// Man pages and completions of a made-up program and of both of these.
#include "documents/documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/flags.h"
#include "cli/program.h"

namespace moestro {
namespace {

using Strings = std::vector<std::string>;

const FlagText& Find(const CommandText& command, std::string_view name) {
  return *std::ranges::find_if(command.flags,
                               [&](const FlagText& flag) { return flag.has_name(name); });
}

std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '-' ? std::string("\\-") : std::string(1, c);
  return out;
}

// The text of one command within a completion.
std::string Section(const std::string& all, const std::string& from, const std::string& to) {
  const size_t begin = all.find(from);
  if (begin == std::string::npos) return "";
  return all.substr(begin, all.find(to, begin + from.size()) - begin);
}

TEST(ProgramText, IsWhatTheFlagsWereDeclaredWith) {
  CommandLine line("moestro", "Does it.", "moestro 1.2");
  Flags flags = line.AddCommand({"go", "goes"}, [] { return 0; });
  std::string file;
  uint32_t count = 5;
  bool is_loud = false;
  flags.Add("FILE", file, "what").Required();
  flags.Group("Numbers");
  flags.Add("-n,--count", count, "how many").Between(1U, 9U).ShowDefault();
  flags.AddSwitch("--loud,!--quiet", is_loud, "noise").Excludes("--count");
  const ProgramText program = line.Describe();
  EXPECT_EQ(program.version, "1.2");
  ASSERT_NE(FindCommand(program, "go"), nullptr);
  EXPECT_EQ(FindCommand(program, "come"), nullptr);
  const CommandText& go = *FindCommand(program, "go");
  ASSERT_EQ(go.flags.size(), 4U);
  EXPECT_EQ(go.flags[1].positional, "FILE");
  EXPECT_TRUE(go.flags[1].is_required);
  EXPECT_EQ(go.flags[1].name(), "file");
  const FlagText& counted = Find(go, "--count");
  EXPECT_EQ(counted.names, (Strings{"-n", "--count"}));
  EXPECT_EQ(counted.group, "Numbers");
  EXPECT_EQ(counted.usual, "5");
  EXPECT_TRUE(counted.limits.contains("[1 - 9]")) << counted.limits;
  EXPECT_EQ(counted.excludes, Strings{"loud"});
  EXPECT_TRUE(Find(go, "--quiet").is_switch());
  EXPECT_EQ(Find(go, "--quiet").off_names, Strings{"--quiet"});
}

std::vector<CommandText> AllCommands(const ProgramText& program) {
  std::vector<CommandText> commands = program.commands;
  commands.append_range(program.others);
  return commands;
}

// A new one belongs into the table of tests/cli/outputs_cli_test.cc, too.
TEST(ProgramText, OutputsAreKnown) {
  std::vector<std::string> outputs;
  std::vector<std::string> unmarked;
  constexpr std::array kWriting{"output",       "machine-out", "plot",     "record",
                                "norms-output", "session",     "reference"};
  for (const CommandText& command : AllCommands(DescribeBoth("1.0").user)) {
    for (const FlagText& flag : command.flags) {
      const std::string name = command.name + " " + flag.name();
      if (flag.is_output) outputs.push_back(name);
      if (!flag.is_output && std::ranges::contains(kWriting, flag.name())) unmarked.push_back(name);
    }
  }
  const std::vector<std::string> known = {
      "run session",    "plan machine-out", "bench record",       "devices output",
      "eval plot",      "eval output",      "eval reference",     "logits output",
      "trace output",   "sim plot",         "sim output",         "profile norms-output",
      "profile output", "imatrix output",   "quantize output",    "fit output",
      "fit plot",       "merge output",     "merge norms-output", "synth output",
      "convert output"};
  EXPECT_EQ(outputs, known);
  EXPECT_EQ(unmarked, std::vector<std::string>());
}

TEST(ProgramText, ChoicesAreTheValuesThatHelpSpellsOut) {
  const ProgramText program = DescribeBoth("1.0").user;
  const CommandText& serve = *FindCommand(program, "serve");
  EXPECT_EQ(ChoicesOf(Find(serve, "--kv-type")), (Strings{"f16", "q8_0", "f32"}));
  EXPECT_EQ(ChoicesOf(Find(serve, "--chunk")), Strings{"auto"});
  EXPECT_TRUE(std::ranges::contains(ChoicesOf(Find(serve, "--policy")), "lru"));
  const std::string fish =
      "complete -c moestro -n '__fish_seen_subcommand_from serve' -l dense -x -a";
  EXPECT_TRUE(FishCompletion(program).contains(fish + " 'auto cpu'"));
  EXPECT_TRUE(ChoicesOf(Find(serve, "--ram")).empty());
  EXPECT_TRUE(TakesFile(Find(serve, "--api-key-file")));
  EXPECT_TRUE(TakesFolder(Find(serve, "--slot-save-path")));
}

void ExpectInManPagesAndCompletions(const ProgramText& program) {
  const std::string bash = BashCompletion(program);
  const std::string zsh = ZshCompletion(program);
  const std::string fish = FishCompletion(program);
  const std::string overview = ProgramManPage(program, "2026-01-01");
  ASSERT_GT(program.commands.size(), 9U);
  for (const CommandText& command : AllCommands(program)) {
    const std::string page = CommandManPage(program, command, "2026-01-01");
    EXPECT_TRUE(overview.contains("\n.B " + command.name + "\n")) << command.name;
    const std::string in_bash = Section(bash, "\n    " + command.name + ")\n", "\n      ;;\n");
    const std::string in_zsh = Section(zsh, "\n    " + command.name + ")\n", "\n      ;;\n");
    const std::string seen = "__fish_seen_subcommand_from " + command.name + "'";
    for (const FlagText& flag : command.flags) {
      if (!flag.positional.empty()) {
        EXPECT_TRUE(page.contains("\\fI" + flag.positional)) << flag.positional;
        continue;
      }
      EXPECT_TRUE(page.contains("\\fB" + Escaped(flag.names.front()) + "\\fR"))
          << command.name << " " << flag.names.front();
      Strings names = flag.names;
      names.insert(names.end(), flag.off_names.begin(), flag.off_names.end());
      for (const std::string& name : names) {
        const bool offers = in_bash.contains("'" + name + " ") ||
                            in_bash.contains(" " + name + " ") ||
                            in_bash.contains(" " + name + "'");
        EXPECT_TRUE(offers) << command.name << " " << name;
        EXPECT_TRUE(in_zsh.contains("'*" + name)) << command.name << " " << name;
        const std::string option =
            name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
        size_t at = fish.find(seen);
        bool is_there = false;
        for (; at != std::string::npos && !is_there; at = fish.find(seen, at + 1)) {
          is_there = fish.substr(at, fish.find('\n', at) - at).contains(option + " ");
        }
        EXPECT_TRUE(is_there) << command.name << " " << name;
      }
    }
  }
}

TEST(ProgramText, EveryFlagOfEveryCommandIsInManPagesAndCompletions) {
  const BothPrograms both = DescribeBoth("1.0");
  ExpectInManPagesAndCompletions(both.user);
  ExpectInManPagesAndCompletions(both.lab);
}

TEST(ProgramText, EachProgramHasItsCommandsAndKnowsTheOthers) {
  const BothPrograms both = DescribeBoth("1.0");
  const auto expect = [](const std::vector<CommandText>& found,
                         std::span<const CommandName> wanted) {
    ASSERT_EQ(found.size(), wanted.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].name, wanted[i].name);
      EXPECT_EQ(found[i].help, wanted[i].help);
    }
  };
  expect(both.user.commands, kUserCommands);
  expect(both.user.others, kLabCommands);
  expect(both.lab.commands, kLabCommands);
  for (const CommandName& command : kUserCommands) EXPECT_FALSE(IsLabCommand(command.name));
}

// Both are in one shell, so their functions have different names.
TEST(Completions, OfTwoProgramsHaveFunctionsOfTheirOwn) {
  const BothPrograms both = DescribeBoth("1.0");
  EXPECT_TRUE(BashCompletion(both.user).contains("-F _moestro moestro\n"));
  EXPECT_TRUE(BashCompletion(both.lab).contains("-F _moestro_lab moestro-lab\n"));
  EXPECT_FALSE(BashCompletion(both.lab).contains("_moestro_words"));
  EXPECT_TRUE(ZshCompletion(both.lab).contains("\n_moestro_lab() {"));
  EXPECT_TRUE(ZshCompletion(both.lab).starts_with("#compdef moestro-lab\n"));
  EXPECT_FALSE(FishCompletion(both.lab).contains("-c moestro "));
}

TEST(ManPage, OfACommandOfTheLaboratoryIsFoundAsAUserTypesIt) {
  const BothPrograms both = DescribeBoth("1.0");
  const std::string page = CommandManPage(both.lab, both.lab.commands.front(), "2026-01-01");
  EXPECT_TRUE(page.contains(".TH MOESTRO\\-EVAL 1 \"2026-01-01\" \"moestro-lab 1.0\"")) << page;
  EXPECT_TRUE(page.contains("\\fBmoestro eval\\fR")) << page;
  EXPECT_TRUE(page.contains(".BR moestro\\-lab (1),")) << page;
  EXPECT_FALSE(page.contains(".BR moestro\\-eval (1)")) << page;
  EXPECT_TRUE(ProgramManPage(both.user, "d").contains(".SS \"Commands of moestro\\-lab\""));
  EXPECT_FALSE(ProgramManPage(both.lab, "d").contains("moestro.conf"));
}

TEST(ManPage, KeepsWhatRoffWouldTakeForItsOwn) {
  const ProgramText program{.name = "moestro",
                            .version = "1",
                            .summary = "S.",
                            .footer = ".first\n'second \\ x",
                            .commands = {}};
  const std::string page = ProgramManPage(program, "2026-01-01");
  EXPECT_TRUE(page.contains("\n\\&.first\n")) << page;
  EXPECT_TRUE(page.contains("\n\\&'second \\e x\n")) << page;
}

TEST(Completions, QuotesOfHelpDoNotEndAWord) {
  const FlagText flag{.names = {"--x"}, .value = "FILE", .help = "the user's [own]: \\ it"};
  const ProgramText program{.name = "moestro",
                            .version = "1",
                            .summary = "",
                            .footer = "",
                            .commands = {{.name = "go", .help = "it's", .flags = {flag}}}};
  for (const std::string& text :
       {BashCompletion(program), ZshCompletion(program), FishCompletion(program)}) {
    EXPECT_EQ(std::ranges::count(text, '\'') % 2, 0) << text;
    EXPECT_FALSE(text.contains("user's")) << text;
  }
}

}  // namespace
}  // namespace moestro
