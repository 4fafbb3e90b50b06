// SPDX-License-Identifier: MIT
#include "schema/constraint.h"

#include <algorithm>
#include <iterator>

namespace moestro {
namespace {

constexpr size_t kMostNamed = 8;  // for messages

Times Overlap(Times a, Times b) {
  Times both = {std::max(a.least, b.least), a.most ? a.most : b.most};
  if (a.most && b.most) both.most = std::min(*a.most, *b.most);
  return both;
}

bool IsImpossible(const Times& times) { return times.most && *times.most < times.least; }

bool IsWithin(size_t n, const Times& times) {
  return n >= times.least && (!times.most || n <= *times.most);
}

// The bound that holds back more; `sign` is 1 for lower bounds, -1 for upper ones.
std::optional<Bound> Stronger(const std::optional<Bound>& a, const std::optional<Bound>& b,
                              int sign) {
  if (!a || !b) return a ? a : b;
  if (a->value == b->value) return Bound{a->value, a->is_exclusive || b->is_exclusive};
  return (a->value > b->value) == (sign > 0) ? a : b;
}

bool IsImpossible(const NumberRange& range) {
  if (!range.low || !range.high) return false;
  if (range.low->value == range.high->value) {
    return range.low->is_exclusive || range.high->is_exclusive ||
           (range.is_integer && !range.low->value.fraction.empty());
  }
  return range.low->value > range.high->value;
}

bool IsWithin(const Decimal& number, const NumberRange& range) {
  if (range.is_integer && !number.fraction.empty()) return false;
  if (range.low &&
      (number < range.low->value || (range.low->is_exclusive && number == range.low->value))) {
    return false;
  }
  return !range.high || number < range.high->value ||
         (!range.high->is_exclusive && number == range.high->value);
}

// Merges the names of both sides; a name that one side lacks is among its other properties.
void MergeProperties(const Constraint& a, const Constraint& b, Constraint& both) {
  const auto of_b = b.PropertyIndex();
  std::set<std::string_view> of_a;
  for (const auto& [name, places] : a.properties) {
    of_a.insert(name);
    const auto found = of_b.find(name);
    both.properties.emplace_back(
        name, Both(places, found == of_b.end() ? b.other_properties : *found->second));
  }
  for (const auto& [name, places] : b.properties) {
    if (!of_a.contains(name)) both.properties.emplace_back(name, Both(places, a.other_properties));
  }
  both.other_properties = Both(a.other_properties, b.other_properties);
  both.required = a.required;
  both.required.insert(b.required.begin(), b.required.end());
}

void MergeItems(const Constraint& a, const Constraint& b, Constraint& both) {
  const size_t n = std::max(a.first_items.size(), b.first_items.size());
  for (size_t i = 0; i < n; ++i) both.first_items.push_back(Both(a.Item(i), b.Item(i)));
  both.other_items = Both(a.other_items, b.other_items);
}

void DropImpossibleKinds(Constraint& c) {
  const auto drop = [&c](JsonKind kind) { c.kinds &= static_cast<KindSet>(~KindBit(kind)); };
  if (IsImpossible(c.number)) drop(JsonKind::kNumber);
  if (IsImpossible(c.length)) drop(JsonKind::kText);
  if (IsImpossible(c.items)) drop(JsonKind::kArray);
  if (IsImpossible(c.members) || (c.members.most && *c.members.most < c.required.size())) {
    drop(JsonKind::kObject);
  }
}

}  // namespace

NodeSet Both(const NodeSet& a, const NodeSet& b) {
  NodeSet both;
  std::ranges::set_union(a, b, std::back_inserter(both));
  return both;
}

const NodeSet& Constraint::Item(size_t index) const {
  return index < first_items.size() ? first_items[index] : other_items;
}

const NodeSet& Constraint::Property(std::string_view name) const {
  for (const auto& [property, places] : properties) {
    if (property == name) return places;
  }
  return other_properties;
}

std::map<std::string_view, const NodeSet*> Constraint::PropertyIndex() const {
  std::map<std::string_view, const NodeSet*> index;
  for (const auto& [name, places] : properties) index.emplace(name, &places);
  return index;
}

void Constraint::Refuse(KindSet kinds_refused, const std::string& why) {
  for (size_t i = 0; i < kJsonKinds; ++i) {
    if ((kinds_refused >> i & 1U) != 0 && unsupported[i].empty()) unsupported[i] = why;
  }
}

void Constraint::LeaveOut(KindSet kinds_meant, const std::string& what) {
  for (size_t i = 0; i < kJsonKinds; ++i) {
    if ((kinds_meant >> i & 1U) != 0 && left_out[i].size() < kMostNamed) left_out[i].insert(what);
  }
}

size_t Constraint::weight() const {
  return 1 + properties.size() + required.size() + first_items.size() +
         (values ? values->size() : 0);
}

Constraint Merge(const Constraint& a, const Constraint& b) {
  Constraint both;
  both.kinds = a.kinds & b.kinds;
  both.number.is_integer = a.number.is_integer || b.number.is_integer;
  both.number.low = Stronger(a.number.low, b.number.low, 1);
  both.number.high = Stronger(a.number.high, b.number.high, -1);
  both.length = Overlap(a.length, b.length);
  both.patterns = a.patterns;
  both.patterns.insert(b.patterns.begin(), b.patterns.end());
  both.items = Overlap(a.items, b.items);
  MergeItems(a, b, both);
  both.members = Overlap(a.members, b.members);
  MergeProperties(a, b, both);
  both.unsupported = a.unsupported;
  for (size_t i = 0; i < kJsonKinds; ++i) {
    if (both.unsupported[i].empty()) both.unsupported[i] = b.unsupported[i];
  }
  both.left_out = a.left_out;
  for (size_t i = 0; i < kJsonKinds; ++i) {
    for (const std::string& what : b.left_out[i])
      both.LeaveOut(static_cast<KindSet>(1U << i), what);
  }
  DropImpossibleKinds(both);
  if (a.values || b.values) {
    both.values.emplace();
    for (const JsonView value : a.values ? *a.values : *b.values) {
      const bool is_of_both =
          !(a.values && b.values) ||
          std::ranges::any_of(*b.values, [value](JsonView other) { return IsEqual(value, other); });
      if (is_of_both && HoldsItself(both, value)) both.values->push_back(value);
    }
    if (both.values->empty()) both.kinds = 0;
  }
  return both;
}

bool HoldsItself(const Constraint& constraint, JsonView value) {
  const JsonKind kind = value.kind();
  if (!constraint.Has(kind)) return false;
  switch (kind) {
    case JsonKind::kNumber: {
      const auto number = Decimal::Parse(value.Dump());
      return number && IsWithin(*number, constraint.number);
    }
    case JsonKind::kText:
      return IsWithin(CountCharacters(*value.text()), constraint.length);
    case JsonKind::kArray:
      return IsWithin(value.size(), constraint.items);
    case JsonKind::kObject:
      return IsWithin(value.size(), constraint.members) &&
             std::ranges::all_of(constraint.required,
                                 [&](const std::string& name) { return !!value.Find(name); });
    default:
      return true;
  }
}

bool IsEqual(JsonView a, JsonView b) {
  if (a.kind() != b.kind() || a.size() != b.size()) return false;
  switch (a.kind()) {
    case JsonKind::kNumber: {
      const auto x = Decimal::Parse(a.Dump());
      return x && x == Decimal::Parse(b.Dump());
    }
    case JsonKind::kArray:
      for (size_t i = 0; i < a.size(); ++i) {
        if (!IsEqual(*a.At(i), *b.At(i))) return false;
      }
      return true;
    case JsonKind::kObject:
      return std::ranges::all_of(a.members(), [b](const auto& member) {
        const auto other = b.Find(member.first);
        return other && IsEqual(member.second, *other);
      });
    default:
      return a.Dump() == b.Dump();
  }
}

size_t CountCharacters(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace moestro
