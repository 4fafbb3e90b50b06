// SPDX-License-Identifier: MIT
#include "cli/program_text.h"

#include <algorithm>
#include <cctype>
#include <cstddef>

#include "base/text.h"

namespace moestro {
namespace {

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Whether a word is a literal value; FILE and N are names of values.
bool IsLiteral(std::string_view word) {
  return !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::islower(c) || std::isdigit(c) || c == '_' || c == '-';
  });
}

}  // namespace

std::string FlagText::name() const {
  if (!positional.empty()) return LowerCase(positional);
  const auto is_long = [](const std::string& n) { return n.starts_with("--"); };
  const auto found = std::ranges::find_if(names, is_long);
  return found == names.end() ? names.front().substr(1) : found->substr(2);
}

bool FlagText::has_name(std::string_view name) const {
  return std::ranges::contains(names, name) || std::ranges::contains(off_names, name);
}

const CommandText* FindCommand(const ProgramText& program, std::string_view name) {
  const auto found = std::ranges::find(program.commands, name, &CommandText::name);
  return found == program.commands.end() ? nullptr : &*found;
}

std::vector<std::string> ChoicesOf(const FlagText& flag) {
  if (flag.limits.starts_with('{') && flag.limits.ends_with('}')) {
    return Split(std::string_view(flag.limits).substr(1, flag.limits.size() - 2), ',');
  }
  std::vector<std::string> choices;
  for (std::string& word : Split(flag.value, '|')) {
    if (IsLiteral(word)) choices.push_back(std::move(word));
  }
  if (!choices.empty()) return choices;
  std::vector<std::string> lines = Split(flag.help, '\n');
  for (size_t i = 1; i < lines.size(); ++i) {
    std::string word = lines[i].substr(0, lines[i].find(':'));
    if (word.size() < lines[i].size() && IsLiteral(word)) choices.push_back(std::move(word));
  }
  return choices;
}

bool TakesFile(const FlagText& flag) {
  return flag.positional == "MODEL" || flag.positional == "TRACE" || flag.value.contains("FILE");
}

bool TakesFolder(const FlagText& flag) { return flag.value.contains("DIR"); }

std::string ShortHelp(const FlagText& flag) {
  const std::string line = flag.help.substr(0, flag.help.find('\n'));
  size_t end = std::min({line.find("; "), line.find(" ("), line.size()});
  constexpr size_t kMost = 72;
  if (end > kMost) end = std::min(line.rfind(' ', kMost), kMost);
  return line.substr(0, end);
}

}  // namespace moestro
