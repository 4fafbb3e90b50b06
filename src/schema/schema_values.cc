// SPDX-License-Identifier: MIT
// Checks values against a schema, and whether a schema accepts any value.
#include <algorithm>

#include "schema/schema_reader.h"

namespace moestro {

bool SchemaReader::IsSurelyEmpty(const PlaceSet& places, int depth) {
  if (places.empty() || depth == 0) return false;
  // A place that is being read now, or that cannot be read, may accept a value.
  const auto cases = Read(places);
  return cases && std::ranges::all_of(*cases, [this, depth](const Constraint& constraint) {
           return IsSurelyEmpty(constraint, depth - 1);
         });
}

bool SchemaReader::IsSurelyEmpty(const Constraint& constraint, int depth) {
  if (constraint.values) {
    return std::ranges::none_of(*constraint.values, [&](JsonView value) {
      return AcceptsOwn(constraint, value).value_or(true);
    });
  }
  KindSet kinds = constraint.kinds;
  const bool has_impossible_member = std::ranges::any_of(
      constraint.required, [&, of_name = constraint.PropertyIndex()](const std::string& name) {
        const auto found = of_name.find(name);
        return IsSurelyEmpty(found == of_name.end() ? constraint.other_properties : *found->second,
                             depth);
      });
  if (has_impossible_member) kinds &= static_cast<KindSet>(~KindBit(JsonKind::kObject));
  for (size_t i = 0; i < std::min<size_t>(constraint.items.least, constraint.first_items.size());
       ++i) {
    if (!IsSurelyEmpty(constraint.Item(i), depth)) continue;
    kinds &= static_cast<KindSet>(~KindBit(JsonKind::kArray));
  }
  return kinds == 0;
}

Result<bool> SchemaReader::Accepts(const PlaceSet& places, JsonView value) {
  if (places.empty()) return true;
  TRY(const Cases cases, Read(places));
  for (const Constraint& constraint : cases) {
    TRY(const bool accepts, Accepts(constraint, value));
    if (accepts) return true;
  }
  return false;
}

Result<bool> SchemaReader::Accepts(const Constraint& constraint, JsonView value) {
  TRY_STATUS(Spend(constraint.weight()));
  if (constraint.values && std::ranges::none_of(*constraint.values, [value](JsonView other) {
        return IsEqual(value, other);
      })) {
    return false;
  }
  return AcceptsOwn(constraint, value);
}

Result<bool> SchemaReader::AcceptsOwn(const Constraint& constraint, JsonView value) {
  TRY_STATUS(Spend(1 + constraint.required.size()));
  if (!HoldsItself(constraint, value)) return false;
  const JsonKind kind = value.kind();
  if (const std::string& why = constraint.unsupported[static_cast<size_t>(kind)]; !why.empty()) {
    return Fail(Errc::kUnsupported, "{}, not even beside enum or const", why);
  }
  NoteLeftOut(constraint, kind);
  if (kind == JsonKind::kText && !constraint.patterns.empty()) {
    for (const auto& [text, keyword] : constraint.patterns) {
      const std::string beside = Format("{} beside enum or const", keyword);
      if (!leaves_out_) return Fail(Errc::kUnsupported, "{}", beside);
      NoteLeftOut(beside);
    }
  }
  if (kind == JsonKind::kArray) {
    for (size_t i = 0; i < value.size(); ++i) {
      TRY(const bool accepts, Accepts(constraint.Item(i), *value.At(i)));
      if (!accepts) return false;
    }
  }
  if (kind == JsonKind::kObject) {
    for (const auto& [name, member] : value.members()) {
      TRY_STATUS(Spend(constraint.properties.size()));
      TRY(const bool accepts, Accepts(constraint.Property(name), member));
      if (!accepts) return false;
    }
  }
  return true;
}

}  // namespace moestro
