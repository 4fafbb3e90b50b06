// SPDX-License-Identifier: MIT
#include "engine/knobs.h"

#include <optional>

#include "base/text.h"

namespace moestro {
namespace {

// The row of a knob; nullptr: no such knob.
const OptionRow* FindKnob(std::string_view name, std::span<const OptionRow> table) {
  for (const OptionRow& row : table) {
    if (row.is_knob && row.name() == name) return &row;
  }
  return nullptr;
}

}  // namespace

std::vector<std::string_view> KnownKnobs(std::span<const OptionRow> table) {
  std::vector<std::string_view> names;
  for (const OptionRow& row : table) {
    if (row.is_knob) names.push_back(row.name());
  }
  return names;
}

std::string KnobNames() {
  std::string names;
  for (const std::string_view name : KnownKnobs()) {
    names += Format("{}{}", names.empty() ? "" : ", ", name);
  }
  return names;
}

Status SetKnob(EngineOptions& options, std::string_view name, const std::string& value,
               std::span<const OptionRow> table) {
  const OptionRow* row = FindKnob(name, table);
  if (row != nullptr) return row->set(options, value);
  return Fail(Errc::kUsage, "'{}' is no knob; known are {}", name, KnobNames());
}

bool IsBudgetKnob(std::string_view name) {
  const OptionRow* row = FindKnob(name, OptionTable());
  return row != nullptr && row->is_budget;
}

KnobSettings ChangedKnobs(const EngineOptions& options, std::span<const OptionRow> table) {
  const EngineOptions defaults;
  KnobSettings changed;
  for (const OptionRow& row : table) {
    if (!row.is_knob || row.is_budget) continue;
    const std::optional<std::string> value = row.get(options);
    if (value && value != row.get(defaults)) {
      changed.push_back({.knob = std::string(row.name()), .value = *value});
    }
  }
  return changed;
}

}  // namespace moestro
