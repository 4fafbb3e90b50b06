// SPDX-License-Identifier: MIT
#include "cli/option_flags.h"

#include <algorithm>
#include <string>

#include "base/format.h"

namespace moestro {
namespace {

const char* HeadingOf(OptionPart part) {
  switch (part) {
    case OptionPart::kMachine:
      return "Memory, disk and threads";
    case OptionPart::kDevice:
      return "Device";
    case OptionPart::kCopies:
    case OptionPart::kLossy:
      return kLossyHeading;
    case OptionPart::kLittle:
      return "Fewer experts where the model is sure (output is no longer exact)";
  }
  return "";
}

Flag AddRow(Flags flags, const OptionRow& row, EngineOptions& options) {
  const std::string names(row.flag);
  if (row.on_off) return flags.AddSwitch(names, row.on_off(options), HelpOf(row));
  return flags.AddParsed(
      names, std::string(row.value), HelpOf(row),
      [&options, set = row.set](const std::string& text) { return set(options, text); });
}

}  // namespace

void AddOptionFlags(Flags flags, EngineOptions& options, std::span<const OptionRow> table) {
  for (const OptionRow& row : table) {
    flags.Group(HeadingOf(row.part));
    const Flag flag = AddRow(flags, row, options);
    if (!row.needs.empty()) flag.Needs(std::string(row.needs));
    if (!row.excludes.empty()) flag.Excludes(std::string(row.excludes));
  }
}

void AddOptionFlags(Flags flags, EngineOptions& options, OptionPart part) {
  const auto rows = std::ranges::equal_range(OptionTable(), part, {}, &OptionRow::part);
  AddOptionFlags(flags, options, rows);
}

void ExcludeChosenByQuality(Flag quality) {
  for (const OptionRow& row : OptionTable()) {
    if (row.is_by_quality) quality.Excludes(Format("--{}", row.name()));
  }
}

}  // namespace moestro
