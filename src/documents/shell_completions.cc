// SPDX-License-Identifier: MIT
#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "documents/documents.h"

namespace moestro {
namespace {

std::vector<std::string> AllNames(const FlagText& flag) {
  std::vector<std::string> names = flag.names;
  names.insert(names.end(), flag.off_names.begin(), flag.off_names.end());
  return names;
}

// `text` as one word between single quotes, which all supported shells read alike but for the quote
// itself and fish's backslash; both become other signs.
std::string Quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "’";
    } else {
      out += c == '\\' || c == '\n' ? ' ' : c;
    }
  }
  return out + "'";
}

// Escapes signs that would end a part of zsh's specifications.
std::string ZshText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':') out += '\\';
    out += c;
  }
  return out;
}

std::string ZshAction(const FlagText& flag) {
  const std::vector<std::string> choices = ChoicesOf(flag);
  const std::string name = ZshText(flag.value);
  if (!choices.empty()) return Format(":{}:({})", name, Joined(choices, " "));
  if (TakesFile(flag)) return Format(":{}:_files", name);
  if (TakesFolder(flag)) return Format(":{}:_files -/", name);
  return Format(":{}: ", name);
}

std::string ZshFlag(const FlagText& flag) {
  if (!flag.positional.empty()) return Format("      {} \\\n", Quoted("*" + ZshAction(flag)));
  std::string out;
  const std::vector<std::string> names = AllNames(flag);
  for (const std::string& name : names) {
    // A value may follow "=" after a long name, and at once after a short one.
    const std::string_view joint = flag.is_switch() ? "" : name.starts_with("--") ? "=" : "+";
    std::string spec = Format("*{}{}[{}]", name, joint, ZshText(ShortHelp(flag)));
    if (!flag.is_switch()) spec += ZshAction(flag);
    out += Format("      {} \\\n", Quoted(spec));
  }
  return out;
}

// Commands of the program, then those of the other that it starts.
std::vector<CommandText> AllCommands(const ProgramText& program) {
  std::vector<CommandText> commands = program.commands;
  commands.append_range(program.others);
  return commands;
}

// "_moestro_lab": a shell has the functions of both programs at once.
std::string FunctionOf(const ProgramText& program) {
  std::string name = "_" + program.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

// Bash's code that offers values for the flag before the cursor.
std::string BashValues(const CommandText& command, const std::string& words) {
  std::string out;
  for (const FlagText& flag : command.flags) {
    if (flag.is_switch() || !flag.positional.empty()) continue;
    const std::vector<std::string> choices = ChoicesOf(flag);
    const std::string names = Joined(flag.names, "|");
    if (!choices.empty()) {
      out += Format("        {}) {} '{}'; return ;;\n", names, words, Joined(choices, " "));
    } else if (TakesFolder(flag)) {
      out += Format("        {}) mapfile -t COMPREPLY < <(compgen -d -- \"$word\"); return ;;\n",
                    names);
    } else {
      out += Format("        {}) return ;;\n", names);
    }
  }
  return out;
}

}  // namespace

std::string BashCompletion(const ProgramText& program) {
  std::vector<std::string> commands;
  std::string cases;
  const std::string function = FunctionOf(program);
  const std::string words = function + "_words";
  for (const CommandText& command : AllCommands(program)) {
    commands.push_back(command.name);
    std::vector<std::string> names;
    for (const FlagText& flag : command.flags) {
      for (std::string& name : AllNames(flag)) names.push_back(std::move(name));
    }
    const std::string values = BashValues(command, words);
    cases += Format("    {})\n", command.name);
    if (!values.empty()) cases += "      case $before in\n" + values + "      esac\n";
    cases += Format("      {} '{}'\n      ;;\n", words, Joined(names, " "));
  }
  return Format(R"(# bash completion for {0}. Made from the table of flags.
# shellcheck shell=bash

{3}_words() {{
  mapfile -t COMPREPLY < <(compgen -W "$1" -- "$word")
}}

# What is no flag and no value with known words is left to bash: files.
{3}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
  COMPREPLY=()
  # Bash takes "--flag=value" apart.
  if [ "$word" = = ]; then
    word=
  elif [ "$before" = = ] && [ "$COMP_CWORD" -gt 2 ]; then
    before=${{COMP_WORDS[COMP_CWORD - 2]}}
  fi
  if [ "$COMP_CWORD" -eq 1 ]; then
    {3}_words '{1} --help --version'
    return
  fi
  case $before in
    -*) ;;
    *) [ "${{word:0:1}}" = - ] || return ;;
  esac
  case ${{COMP_WORDS[1]}} in
{2}  esac
}}

complete -o bashdefault -o default -F {3} {0}
)",
                program.name, Joined(commands, " "), cases, function);
}

std::string ZshCompletion(const ProgramText& program) {
  std::string commands;
  std::string cases;
  for (const CommandText& command : AllCommands(program)) {
    commands += Format("    {}\n", Quoted(command.name + ":" + ZshText(command.help)));
    cases += Format("    {})\n      _arguments -s \\\n", command.name);
    for (const FlagText& flag : command.flags) cases += ZshFlag(flag);
    cases += "      && return\n      ;;\n";
  }
  return Format(R"(#compdef {0}
# zsh completion for {0}. Made from the table of flags.

{3}() {{
  local -a commands
  commands=(
{1}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  (( CURRENT-- ))
  shift words
  case $words[1] in
{2}  esac
}}

{3} "$@"
)",
                program.name, commands, cases, FunctionOf(program));
}

std::string FishCompletion(const ProgramText& program) {
  const std::vector<CommandText> commands = AllCommands(program);
  std::string out =
      Format("# fish completion for {0}. Made from the table of flags.\n", program.name);
  for (const CommandText& command : commands) {
    out += Format("complete -c {} -n __fish_use_subcommand -f -a {} -d {}\n", program.name,
                  command.name, Quoted(command.help));
  }
  for (const CommandText& command : commands) {
    for (const FlagText& flag : command.flags) {
      if (!flag.positional.empty()) continue;
      out +=
          Format("complete -c {} -n '__fish_seen_subcommand_from {}'", program.name, command.name);
      for (const std::string& name : AllNames(flag)) {
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      const std::vector<std::string> choices = ChoicesOf(flag);
      if (!choices.empty()) {
        out += Format(" -x -a {}", Quoted(Joined(choices, " ")));
      } else if (!flag.is_switch()) {
        out += TakesFile(flag) || TakesFolder(flag) ? " -r -F" : " -x";
      }
      out += Format(" -d {}\n", Quoted(ShortHelp(flag)));
    }
  }
  return out;
}

}  // namespace moestro
