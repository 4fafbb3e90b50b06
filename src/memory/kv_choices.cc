// SPDX-License-Identifier: MIT
#include "memory/kv_choices.h"

#include <algorithm>

#include "base/check.h"
#include "base/format.h"
#include "base/printable.h"

namespace moestro {
namespace {

// "name value" lines of a text that is not trusted.
std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    if (end > 0) lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::string_view ChoiceName(std::string_view line) {
  return line.substr(0, std::min(line.find(' '), line.size()));
}

}  // namespace

void KvChoices::Add(std::string_view name, std::string value) {
  CHECK(!name.contains(' ') && !name.contains('\n'));
  // A device's name comes from its driver and may contain anything.
  std::ranges::replace(value, '\n', ' ');
  choices_.emplace_back(name, std::move(value));
}

std::string KvChoices::text() const {
  std::string text;
  for (const auto& [name, value] : choices_) text += Format("{} {}\n", name, value);
  return text;
}

std::string_view KvChoices::Find(std::string_view text, std::string_view name) {
  for (const std::string_view line : LinesOf(text)) {
    if (ChoiceName(line) == name) return line.substr(std::min(name.size() + 1, line.size()));
  }
  return {};
}

std::string KvChoices::Difference(std::string_view saved, std::string_view ours,
                                  std::string_view ignored) {
  const std::vector<std::string_view> theirs = LinesOf(saved);
  const std::vector<std::string_view> here = LinesOf(ours);
  const auto counts = [&](std::string_view line) {
    return ignored.empty() || ChoiceName(line) != ignored;
  };
  for (const std::string_view line : theirs) {
    if (!counts(line) || std::ranges::contains(here, line)) continue;
    const std::string_view name = ChoiceName(line);
    const std::string_view own = Find(ours, name);
    if (own.empty()) {
      return Format(
          "was saved with {}, and this run goes without; give the same flags, or name "
          "another file",
          Printable(line));
    }
    return Format(
        "was saved with {}, and this run has {} {}; give the same flags, or name another "
        "file",
        Printable(line), name, own);
  }
  for (const std::string_view line : here) {
    if (!counts(line) || std::ranges::contains(theirs, line)) continue;
    return Format(
        "was saved without {}, which this run has; give the same flags, or name another "
        "file",
        line);
  }
  return {};
}

}  // namespace moestro
