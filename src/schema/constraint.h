// SPDX-License-Identifier: MIT
// The conditions of a schema for a value, all keywords together and without references: the form in
// which schemas are combined. A schema with anyOf or oneOf is a list of constraints, of which one
// must hold.
//
// Thread rule: plain values.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "schema/number_range.h"
#include "schema/rule_set.h"

namespace moestro {

// A place in the schema's text, by number (schema_reader.h).
using NodeId = uint32_t;
// Sub-schemas that must all hold, in increasing order; none: any value.
using NodeSet = std::vector<NodeId>;
NodeSet Both(const NodeSet& a, const NodeSet& b);

inline constexpr std::array kEveryJsonKind = {JsonKind::kObject,  JsonKind::kArray,
                                              JsonKind::kText,    JsonKind::kNumber,
                                              JsonKind::kBoolean, JsonKind::kNull};
inline constexpr size_t kJsonKinds = kEveryJsonKind.size();
using KindSet = uint8_t;
inline constexpr KindSet kAllKinds = (1U << kJsonKinds) - 1;
constexpr KindSet KindBit(JsonKind kind) {
  return static_cast<KindSet>(1U << static_cast<unsigned>(kind));
}

struct Constraint {
  KindSet kinds = kAllKinds;
  std::optional<std::vector<JsonView>> values;  // the value equals one of these

  NumberRange number;

  Times length;  // characters of a string
  // Patterns that must all hold, each with its keyword and place: "#: \"pattern\"".
  std::map<std::string, std::string> patterns;

  Times items;
  std::vector<NodeSet> first_items;
  NodeSet other_items;

  Times members;
  std::vector<std::pair<std::string, NodeSet>> properties;  // in the order of the schema
  std::set<std::string, std::less<>> required;
  NodeSet other_properties;

  // For each kind a keyword that no grammar can express, with its place; empty: all can be
  // expressed.
  std::array<std::string, kJsonKinds> unsupported;
  // For each kind some of the keywords left out because no grammar can express them, with their
  // places.
  std::array<std::set<std::string>, kJsonKinds> left_out;

  bool Has(JsonKind kind) const { return (kinds & KindBit(kind)) != 0; }
  const NodeSet& Item(size_t index) const;
  const NodeSet& Property(std::string_view name) const;  // time: number of properties
  // For many look-ups; valid as long as the constraint.
  std::map<std::string_view, const NodeSet*> PropertyIndex() const;
  void Refuse(KindSet kinds_refused, const std::string& why);
  void LeaveOut(KindSet kinds_meant, const std::string& what);
  size_t weight() const;  // the cost of copying a constraint
};

// A constraint for values that hold both. The result's kinds are empty if they contradict each
// other at first sight.
Constraint Merge(const Constraint& a, const Constraint& b);
// Compares as JSON Schema does: 1 is 1.0, the order of keys does not count.
bool IsEqual(JsonView a, JsonView b);
// Whether the value's own kind, bounds and lengths hold, without the values in it.
bool HoldsItself(const Constraint& constraint, JsonView value);
size_t CountCharacters(std::string_view text);  // REQUIRES: UTF-8

}  // namespace moestro
