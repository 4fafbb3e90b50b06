// SPDX-License-Identifier: MIT
#include "cli/usage_advice.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "base/format.h"
#include "base/nearest_name.h"
#include "base/printable.h"
#include "base/text.h"

namespace moestro {
namespace {

// Paths, addresses and names of repositories have a slash.
bool LooksLikeModel(std::string_view typed) {
  return typed.contains('/') || IsNamedWith(typed, ".gguf");
}

}  // namespace

std::string UnknownCommand(std::string_view typed, const KnownCommands& known) {
  std::string all = Format("commands are {}", Joined(known.names));
  if (!known.other_names.empty()) {
    all += Format("; of {} {}", known.other_program, Joined(known.other_names));
  }
  all += Format(" (see {} --help)", known.program);
  if (typed.empty()) return "a command is missing: " + all;
  if (typed.starts_with('-')) {
    return Format("a command must come before '{}': {}", Printable(typed), all);
  }
  if (std::ranges::contains(known.other_names, typed)) {
    return Format("'{}' is a command of {}: {} {}", typed, known.other_program, known.other_start,
                  typed);
  }
  std::vector<std::string> names(known.names.begin(), known.names.end());
  names.append_range(known.other_names);
  if (const auto nearest = NearestName(typed, names)) {
    const bool is_own = std::ranges::contains(known.names, *nearest);
    const std::string& program = is_own ? known.program : known.other_start;
    return Format("'{}' is no command; did you mean '{} {}'? (see {} --help)", Printable(typed),
                  program, *nearest, program);
  }
  if (!known.for_files.empty() && LooksLikeModel(typed)) {
    return Format("'{}' is no command; to start a model: {} {}", Printable(typed), known.for_files,
                  Printable(typed, 4096));
  }
  return Format("'{}' is no command; {}", Printable(typed), all);
}

std::string UnknownFlag(std::string_view typed, std::string_view command,
                        std::span<const std::string> flags) {
  const std::string_view name = typed.substr(0, typed.find('='));
  const std::optional<std::string> nearest = NearestName(name, flags);
  const std::string hint = nearest ? Format("; did you mean {}?", *nearest) : "";
  return Format("{} has no flag '{}'{} (see {} --help)", command, Printable(name), hint, command);
}

}  // namespace moestro
