// SPDX-License-Identifier: MIT
// The commands and flags of the program as plain values, from which man pages, completions and
// settings are made. CommandLine::Describe() returns them, so that they match the program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moestro {

struct FlagText {
  std::vector<std::string> names = {};      // with their dashes: "-c", "--ctx", "--ctx-size"
  std::vector<std::string> off_names = {};  // names that turn a switch off: "--no-perf"
  std::string positional = {};              // "MODEL"; a positional argument has no names
  std::string value = {};                   // the name of the value; empty: a switch
  std::string limits = {};                  // "INT in [1 - 64]", "{a,b}"; empty: any value
  std::string help = {};                // several lines: "NAME: what it is" each, after the first
  std::string group = {};               // the heading
  std::string usual = {};               // the default; empty: none is shown
  std::vector<std::string> needs = {};  // other flags of the command, by name()
  std::vector<std::string> excludes = {};
  bool is_required = false;
  bool is_output = false;  // a file that is written

  bool is_switch() const { return positional.empty() && value.empty(); }
  // Name in settings: the first long name without dashes, or the argument's in small letters.
  std::string name() const;
  bool has_name(std::string_view name) const;  // `name` with its dashes is one of the flag's names
};

struct CommandText {
  std::string name;
  std::string help;
  std::string footer = {};
  std::vector<FlagText> flags = {};  // in the order of the help, --help among them
};

struct ProgramText {
  std::string name;
  std::string version;  // "0.1.0"
  std::string summary;
  std::string footer;
  std::vector<CommandText> commands;
  std::string before = {};               // a command, in pages and examples; empty: the name
  std::string other_program = {};        // empty: there is none
  std::vector<CommandText> others = {};  // commands of that which the help lists, too

  const std::string& starter() const { return before.empty() ? name : before; }
};

// nullptr: no such command.
const CommandText* FindCommand(const ProgramText& program, std::string_view name);

// Values of a flag, for completions: the alternatives that help or limits spell out.
std::vector<std::string> ChoicesOf(const FlagText& flag);
bool TakesFile(const FlagText& flag);
bool TakesFolder(const FlagText& flag);

// The first line of help, cut where its first sentence or part ends.
std::string ShortHelp(const FlagText& flag);

}  // namespace moestro
