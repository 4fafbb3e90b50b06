// SPDX-License-Identifier: MIT
// The keywords that restrict values of one kind.
#include <algorithm>
#include <array>

#include "schema/pattern.h"
#include "schema/schema_reader.h"

namespace moestro {
namespace {

KindSet KindsOfType(std::string_view name) {
  if (name == "null") return KindBit(JsonKind::kNull);
  if (name == "boolean") return KindBit(JsonKind::kBoolean);
  if (name == "number" || name == "integer") return KindBit(JsonKind::kNumber);
  if (name == "string") return KindBit(JsonKind::kText);
  if (name == "array") return KindBit(JsonKind::kArray);
  if (name == "object") return KindBit(JsonKind::kObject);
  return 0;
}

// Keywords that restrict values of one kind in a way that our grammars cannot express. Some stand
// for another schema: without them the rest would not be the client's schema.
struct Unsayable {
  std::string_view name;
  KindSet kinds;
  bool may_be_left_out = true;
};
constexpr std::array<Unsayable, 12> kUnsayable = {{
    {"multipleOf", KindBit(JsonKind::kNumber)},
    {"contains", KindBit(JsonKind::kArray)},
    {"unevaluatedItems", KindBit(JsonKind::kArray)},
    {"propertyNames", KindBit(JsonKind::kObject)},
    {"dependencies", KindBit(JsonKind::kObject)},
    {"dependentRequired", KindBit(JsonKind::kObject)},
    {"dependentSchemas", KindBit(JsonKind::kObject)},
    {"unevaluatedProperties", KindBit(JsonKind::kObject)},
    {"extends", kAllKinds, false},
    {"disallow", kAllKinds},
    {"$dynamicRef", kAllKinds, false},
    {"$recursiveRef", kAllKinds, false},
}};

std::string Unsaid(const std::string& place, std::string_view keyword) {
  return Format("{}: a grammar cannot say \"{}\"", place, keyword);
}

void Raise(uint64_t& least, uint64_t n) { least = std::max(least, n); }
void Lower(std::optional<uint64_t>& most, uint64_t n) { most = std::min(most.value_or(n), n); }

// Whether the keyword's value restricts nothing.
bool SaysNothing(std::string_view keyword, JsonView value) {
  if (keyword == "dependencies" || keyword.starts_with("dependent")) return value.size() == 0;
  if (keyword == "propertyNames" || keyword.starts_with("unevaluated")) {
    return value.boolean() == true || (value.kind() == JsonKind::kObject && value.size() == 0);
  }
  return false;
}

}  // namespace

Result<Constraint> SchemaReader::ReadKeywords(NodeId place) {
  Constraint constraint;
  const JsonView schema = places_[place].view;
  for (const auto& [name, value] : schema.members()) {
    const Keyword keyword{place, std::string(name), value};
    TRY_STATUS(ReadGeneral(keyword, constraint));
    TRY_STATUS(ReadNumber(keyword, constraint));
    TRY_STATUS(ReadString(keyword, constraint));
    TRY_STATUS(ReadArray(keyword, constraint));
    TRY_STATUS(ReadMembers(keyword, constraint));
    const auto found = std::ranges::find(kUnsayable, name, &Unsayable::name);
    if (found == kUnsayable.end() || SaysNothing(name, value)) continue;
    if (found->may_be_left_out) {
      CannotSay(keyword, found->kinds, constraint);
    } else {
      constraint.Refuse(found->kinds, Unsaid(Where(place), name));
    }
  }
  const bool is_nullable = schema.Find("nullable").and_then(&JsonView::boolean) == true;
  if (is_nullable && schema.Find("type") && constraint.kinds != 0) {
    constraint.kinds |= KindBit(JsonKind::kNull);
  }
  // Merge() finds contradictions and keeps only the values that fit.
  return Merge(constraint, Constraint());
}

void SchemaReader::CannotSay(const Keyword& keyword, KindSet kinds, Constraint& constraint) const {
  const std::string place = Where(keyword.place);
  if (leaves_out_) {
    constraint.LeaveOut(kinds, Format("{}: \"{}\"", place, keyword.name));
  } else {
    constraint.Refuse(kinds, Unsaid(place, keyword.name));
  }
}

Status SchemaReader::ReadGeneral(const Keyword& keyword, Constraint& constraint) {
  const auto& [place, name, value] = keyword;
  if (name == "type") return ReadType(keyword, constraint);
  if (name == "const") constraint.values = std::vector{value};
  if (name == "enum") {
    if (value.kind() != JsonKind::kArray) return Wrong(keyword, "a list");
    if (places_[place].view.Find("const")) {
      constraint.Refuse(kAllKinds, Unsaid(Where(place), "enum beside const"));
      return {};
    }
    constraint.values.emplace();
    for (size_t i = 0; i < value.size(); ++i) constraint.values->push_back(*value.At(i));
  }
  const bool is_anything =
      value.boolean() == true || (value.kind() == JsonKind::kObject && value.size() == 0);
  if (name == "not" && is_anything) {
    constraint.kinds = 0;
  } else if (name == "not" && value.boolean() != false) {
    CannotSay(keyword, kAllKinds, constraint);
  }
  const JsonView schema = places_[place].view;
  if (name == "if" && (schema.Find("then") || schema.Find("else"))) {
    CannotSay(keyword, kAllKinds, constraint);
  }
  return {};
}

Status SchemaReader::ReadType(const Keyword& keyword, Constraint& constraint) {
  std::vector<JsonView> types = {keyword.value};
  if (keyword.value.kind() == JsonKind::kArray) {
    types.clear();
    for (size_t i = 0; i < keyword.value.size(); ++i) types.push_back(*keyword.value.At(i));
  }
  KindSet kinds = 0;
  bool has_fractions = false;
  for (const JsonView type : types) {
    const std::string name = type.text().value_or("");
    const KindSet kind = KindsOfType(name);
    if (kind == 0) return Wrong(keyword, "a type's name or a list of them");
    kinds |= kind;
    has_fractions = has_fractions || name == "number";
  }
  constraint.kinds &= kinds;
  if (!has_fractions) constraint.number.is_integer = true;
  return {};
}

Status SchemaReader::ReadNumber(const Keyword& keyword, Constraint& constraint) {
  const bool is_low = keyword.name == "minimum" || keyword.name == "exclusiveMinimum";
  const bool is_high = keyword.name == "maximum" || keyword.name == "exclusiveMaximum";
  if (!is_low && !is_high) return {};
  const bool is_exclusive = keyword.name.starts_with("exclusive");
  JsonView value = keyword.value;
  // In draft 4 the keyword is a flag for the other one.
  if (is_exclusive && value.kind() == JsonKind::kBoolean) {
    const auto bound = places_[keyword.place].view.Find(is_low ? "minimum" : "maximum");
    if (value.boolean() == false || !bound) return {};
    value = *bound;
  }
  if (value.kind() != JsonKind::kNumber) return Wrong(keyword, "a number");
  const auto number = Decimal::Parse(value.Dump());
  if (!number) return Wrong(keyword, "a number of fewer digits");
  // Merge() keeps only the stronger of two bounds; a contradiction leaves an empty range there.
  Constraint bound;
  (is_low ? bound.number.low : bound.number.high) = Bound{*number, is_exclusive};
  constraint.number = Merge(constraint, bound).number;
  return {};
}

Status SchemaReader::ReadString(const Keyword& keyword, Constraint& constraint) {
  if (keyword.name == "minLength") {
    TRY(const uint64_t least, Count(keyword));
    Raise(constraint.length.least, least);
  } else if (keyword.name == "maxLength") {
    TRY(const uint64_t most, Count(keyword));
    Lower(constraint.length.most, most);
  } else if (keyword.name == "pattern") {
    const auto pattern = keyword.value.text();
    if (!pattern) return Wrong(keyword, "a text");
    constraint.patterns.emplace(*pattern, Format("{}: \"pattern\"", Where(keyword.place)));
  } else if (keyword.name == "format") {
    return ReadFormat(keyword, constraint);
  }
  return {};
}

Status SchemaReader::ReadFormat(const Keyword& keyword, Constraint& constraint) {
  const auto format = keyword.value.text();
  if (!format) return Wrong(keyword, "a text");
  if (const auto pattern = PatternOfFormat(*format)) {
    constraint.patterns.emplace(*pattern,
                                Format("{}: \"format\": \"{}\"", Where(keyword.place), *format));
  } else if (IsStandardFormat(*format)) {
    const Keyword named{keyword.place, Format("format\": \"{}", *format), keyword.value};
    CannotSay(named, KindBit(JsonKind::kText), constraint);
  }
  return {};
}

Status SchemaReader::ReadArray(const Keyword& keyword, Constraint& constraint) {
  const JsonView schema = places_[keyword.place].view;
  if (keyword.name == "minItems") {
    TRY(const uint64_t least, Count(keyword));
    Raise(constraint.items.least, least);
  } else if (keyword.name == "maxItems") {
    TRY(const uint64_t most, Count(keyword));
    Lower(constraint.items.most, most);
  } else if (keyword.name == "items" || keyword.name == "prefixItems") {
    return ReadItems(keyword, constraint);
  } else if (keyword.name == "additionalItems") {
    // in draft 7, where "items" is the list
    const auto items = schema.Find("items");
    const bool has_list = items && items->kind() == JsonKind::kArray;
    if (has_list) constraint.other_items = {Below(keyword)};
  } else if (keyword.name == "uniqueItems") {
    const auto most = schema.Find("maxItems").and_then(&JsonView::number);
    if (keyword.value.boolean() == true && most.value_or(2) > 1) {
      CannotSay(keyword, KindBit(JsonKind::kArray), constraint);
    }
  }
  return {};
}

Status SchemaReader::ReadItems(const Keyword& keyword, Constraint& constraint) {
  const bool is_list = keyword.value.kind() == JsonKind::kArray;
  if (!is_list && keyword.name == "prefixItems") return Wrong(keyword, "a list");
  if (!is_list) {
    constraint.other_items = {Below(keyword)};
    return {};
  }
  if (keyword.name == "items" && places_[keyword.place].view.Find("prefixItems")) {
    return Wrong(keyword, "one schema beside prefixItems");
  }
  for (size_t i = 0; i < keyword.value.size(); ++i) {
    constraint.first_items.push_back({Below(keyword, std::to_string(i), *keyword.value.At(i))});
  }
  return {};
}

Status SchemaReader::ReadMembers(const Keyword& keyword, Constraint& constraint) {
  if (keyword.name == "minProperties") {
    TRY(const uint64_t least, Count(keyword));
    Raise(constraint.members.least, least);
  } else if (keyword.name == "maxProperties") {
    TRY(const uint64_t most, Count(keyword));
    Lower(constraint.members.most, most);
  } else if (keyword.name == "properties") {
    if (keyword.value.kind() != JsonKind::kObject) return Wrong(keyword, "an object");
    for (const auto& [name, value] : keyword.value.members()) {
      constraint.properties.emplace_back(name, NodeSet{Below(keyword, name, value)});
    }
  } else if (keyword.name == "additionalProperties") {
    constraint.other_properties = {Below(keyword)};
  } else if (keyword.name == "patternProperties" && keyword.value.size() > 0) {
    constraint.Refuse(KindBit(JsonKind::kObject), Unsaid(Where(keyword.place), keyword.name));
  } else if (keyword.name == "required") {
    return ReadRequired(keyword, constraint);
  }
  return {};
}

Status SchemaReader::ReadRequired(const Keyword& keyword, Constraint& constraint) {
  if (keyword.value.kind() != JsonKind::kArray) return Wrong(keyword, "a list of names");
  for (size_t i = 0; i < keyword.value.size(); ++i) {
    const auto name = keyword.value.At(i)->text();
    if (!name) return Wrong(keyword, "a list of names");
    constraint.required.insert(*name);
  }
  return {};
}

Result<uint64_t> SchemaReader::Count(const Keyword& keyword) const {
  const auto number = keyword.value.number();
  constexpr double kLargest = 9007199254740992.0;  // all integers up to here are doubles
  if (!number || *number < 0 ||
      *number != static_cast<double>(static_cast<int64_t>(std::min(*number, kLargest)))) {
    return Wrong(keyword, "a whole number from 0 on");
  }
  return static_cast<uint64_t>(std::min(*number, kLargest));
}

}  // namespace moestro
