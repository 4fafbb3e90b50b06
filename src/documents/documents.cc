// SPDX-License-Identifier: MIT
#include "documents/documents.h"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cli/flags.h"
#include "cli/program.h"
#include "commands/commands.h"
#include "lab/commands.h"

namespace moestro {

BothPrograms DescribeBoth(const std::string& version) {
  BothPrograms both{
      .user = MakeCommandLine(version)->Describe(),
      .lab = MakeLabCommandLine(std::string(kLabProgram), version)->Describe(),
  };
  both.user.others = both.lab.commands;
  both.lab.before = both.user.name;
  return both;
}

namespace {

constexpr size_t kLineWidth = 78;

// Escapes text for roff: dashes that can be copied, and no line that begins a request.
std::string Roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  if (out.starts_with('.') || out.starts_with('\'')) out.insert(0, "\\&");
  return out;
}

std::vector<std::string> LinesOf(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// Filled text in lines that people can read in the source, too. No line begins with a character of
// roff's requests.
std::string Filled(std::string_view text) {
  std::string out;
  std::string line;
  const auto flush = [&] {
    if (!line.empty()) out += Roff(line) + "\n";
    line.clear();
  };
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (Roff(line).size() + Roff(word).size() >= kLineWidth) flush();
    line += (line.empty() ? "" : " ") + std::string(word);
  }
  flush();
  return out;
}

std::string Title(const std::string& name, const ProgramText& program, const std::string& date) {
  return Format(
      ".\\\" Made from the table of flags.\n"
      ".TH {} 1 \"{}\" \"{} {}\" \"User Commands\"\n",
      Roff(UpperCase(name)), date, program.name, program.version);
}

// A footer has lines of its own: examples stand below each other.
std::string Footer(const std::string& text) {
  std::string out;
  for (const std::string& line : LinesOf(text)) out += Roff(line) + "\n";
  return out.empty() ? out : ".PP\n.nf\n" + out + ".fi\n";
}

// \fB\-c\fR, \fB\-\-ctx\fR \fIN\fR
std::string NamesOf(const FlagText& flag) {
  if (!flag.positional.empty()) return Format("\\fI{}\\fR", Roff(flag.positional));
  std::vector<std::string> names = flag.names;
  names.insert(names.end(), flag.off_names.begin(), flag.off_names.end());
  std::string out;
  for (const std::string& name : names) {
    out += Format("{}\\fB{}\\fR", out.empty() ? "" : ", ", Roff(name));
  }
  return flag.is_switch() ? out : out + Format(" \\fI{}\\fR", Roff(flag.value));
}

std::string Listed(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + ("--" + name);
  return out;
}

// "INT in [1 - 64]" in words.
std::string LimitsOf(const FlagText& flag) {
  const size_t begin = flag.limits.find(" in [");
  const size_t dash = flag.limits.find(" - ");
  if (begin == std::string::npos || dash == std::string::npos) return flag.limits;
  const size_t low = begin + 5;
  const size_t end = flag.limits.find(']', dash);
  return Format("from {} to {}", flag.limits.substr(low, dash - low),
                flag.limits.substr(dash + 3, end - dash - 3));
}

std::string Item(const FlagText& flag) {
  std::string out = ".TP\n" + NamesOf(flag) + "\n";
  const std::vector<std::string> lines = LinesOf(flag.help);
  if (!lines.empty()) out += Filled(lines.front());
  for (size_t i = 1; i < lines.size(); ++i) out += ".br\n" + Filled(lines[i]);
  std::string more;
  const auto add = [&](const std::string& text) { more += (more.empty() ? "" : "; ") + text; };
  if (flag.is_required) add("required");
  if (!flag.limits.empty()) add(LimitsOf(flag));
  if (!flag.usual.empty()) add("default: " + flag.usual);
  if (!flag.needs.empty()) add("needs " + Listed(flag.needs));
  if (!flag.excludes.empty()) add("not with " + Listed(flag.excludes));
  return more.empty() ? out : out + ".br\n" + Filled("[" + more + "]");
}

std::string Options(const CommandText& command) {
  std::vector<std::string> groups;  // in the order of the help
  for (const FlagText& flag : command.flags) {
    if (std::ranges::find(groups, flag.group) == groups.end()) groups.push_back(flag.group);
  }
  std::string out;
  for (const std::string& group : groups) {
    // CLI11's name for flags of no group.
    std::string heading = UpperCase(group) == "OPTIONS" ? "General" : group;
    std::ranges::replace(heading, '"', '\'');
    out += Format(".SS \"{}\"\n", Roff(heading));
    for (const FlagText& flag : command.flags) {
      if (flag.group == group) out += Item(flag);
    }
  }
  return out;
}

std::string Synopsis(const ProgramText& program, const CommandText& command) {
  std::string out = Format("\\fB{} {}\\fR", Roff(program.starter()), Roff(command.name));
  for (const FlagText& flag : command.flags) {
    if (flag.positional.empty()) continue;
    const std::string name = Format("\\fI{}\\fR", Roff(flag.positional));
    out += flag.is_required ? " " + name : Format(" [{}]", name);
  }
  return out + " [\\fIoptions\\fR]\n";
}

std::string PageOf(const ProgramText& program, const CommandText& command) {
  return program.starter() + "-" + command.name;
}

std::string SeeAlso(const ProgramText& program, const std::string& but) {
  std::vector<std::string> pages = {program.name};
  if (!program.other_program.empty()) pages.push_back(program.other_program);
  for (const CommandText& command : program.commands) pages.push_back(PageOf(program, command));
  std::erase(pages, but);
  std::string out = ".SH \"SEE ALSO\"\n";
  for (const std::string& page : pages) {
    out += Format(".BR {} (1){}\n", Roff(page), &page == &pages.back() ? "" : ",");
  }
  return out;
}

std::string ListOf(const std::vector<CommandText>& commands) {
  std::string out;
  for (const CommandText& command : commands) {
    out += Format(".TP\n.B {}\n", Roff(command.name)) + Filled(command.help);
  }
  return out;
}

constexpr const char* kExitStatus = R"(.SH "EXIT STATUS"
.TP
0
done
.TP
1
failed: one line on standard error says why and what helps
.TP
2
the command line or a setting is wrong
)";

constexpr const char* kFiles = R"(.SH FILES
.TP
.I /etc/moestro/moestro.conf
settings of this machine for
.BR moestro\-serve (1)
.TP
.I $XDG_CONFIG_HOME/moestro/moestro.conf
the user's, which go before those; without the variable
.I ~/.config
.TP
.I $XDG_CACHE_HOME/moestro
the demo model, prefixes, measured costs; without the variable
.I ~/.cache
)";

}  // namespace

std::string ProgramManPage(const ProgramText& program, const std::string& date) {
  std::string out = Title(program.name, program, date);
  std::string summary = program.summary;  // summary for the page's name: "runs ..." of "Runs ... ."
  if (summary.ends_with('.')) summary.pop_back();
  if (!summary.empty()) {
    summary.front() = static_cast<char>(std::tolower(static_cast<unsigned char>(summary.front())));
  }
  out += Format(".SH NAME\n{} \\- {}\n", Roff(program.name), Roff(summary));
  out += Format(".SH SYNOPSIS\n\\fB{}\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n", Roff(program.name));
  out += ".SH DESCRIPTION\n" + Filled(program.summary) + Footer(program.footer);
  out += ".SH COMMANDS\n" + ListOf(program.commands);
  if (!program.others.empty()) {
    out += Format(".SS \"Commands of {}\"\n", Roff(program.other_program)) +
           Filled(Format("These are another program's, which {} starts where it lies beside it.",
                         program.name)) +
           ListOf(program.others);
  }
  if (FindCommand(program, "serve") != nullptr) out += kFiles;
  return out + kExitStatus + SeeAlso(program, program.name);
}

std::string CommandManPage(const ProgramText& program, const CommandText& command,
                           const std::string& date) {
  const std::string name = PageOf(program, command);
  std::string out = Title(name, program, date);
  out += Format(".SH NAME\n{} \\- {}\n", Roff(name), Roff(command.help));
  out += ".SH SYNOPSIS\n" + Synopsis(program, command);
  std::string help = command.help;
  if (!help.empty()) {
    help.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(help.front())));
    if (!help.ends_with('.')) help += '.';
  }
  out += ".SH DESCRIPTION\n" + Filled(help) + Footer(command.footer);
  out += ".SH OPTIONS\n" + Options(command);
  return out + kExitStatus + SeeAlso(program, name);
}

}  // namespace moestro
