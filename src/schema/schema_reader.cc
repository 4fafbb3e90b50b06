// SPDX-License-Identifier: MIT
#include "schema/schema_reader.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/number.h"

namespace moestro {
namespace {

constexpr size_t kMostCases = 256;
constexpr size_t kMostWork = 2'000'000;
constexpr size_t kStepsOfWork = 32;  // steps of a WorkLimit for each unit of work
// A place that is read takes 700 bytes, twice where it is one of several cases.
constexpr size_t kMostPlaces = 20'000;
constexpr size_t kMostBranches = 1'024;
constexpr int kMostReferences = 200;  // in a chain, without reading a value between
constexpr int kEmptinessDepth = 3;

// "~1" and "%25" of a JSON pointer in a URI; nullopt: not one.
std::optional<std::string> Unescaped(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    unsigned value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || digits.size() < 2 || end != digits.data() + 2) return std::nullopt;
    plain += static_cast<char>(value);
    i += 2;
  }
  text = plain;
  std::string token;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_escape = text[i] == '~' && i + 1 < text.size();
    if (is_escape) ++i;
    token += !is_escape ? text[i] : text[i] == '1' ? '/' : '~';
  }
  return token;
}

std::string Escaped(std::string_view key) {
  std::string text;
  for (const char c : key) text += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return text;
}

std::optional<JsonView> Step(JsonView view, const std::string& token) {
  if (view.kind() != JsonKind::kArray) return view.Find(token);
  const std::optional<size_t> index = ParseNumber<size_t>(token);
  return index ? view.At(*index) : std::nullopt;
}

bool HasOwnBase(JsonView schema) {
  const auto id = schema.Find("$id");
  return id && id->kind() == JsonKind::kText;
}

}  // namespace

SchemaReader::SchemaReader(JsonView schema, WorkLimit limit, bool leaves_out)
    : limit_(std::move(limit)), leaves_out_(leaves_out) {
  places_.push_back({0, "#", schema});
}

void SchemaReader::NoteLeftOut(std::string what) {
  constexpr size_t kMost = 16;  // a client gets all of them
  if (is_probing_) return;
  if (left_out_.size() < kMost) left_out_.insert(std::move(what));
}

void SchemaReader::NoteLeftOut(const Constraint& constraint, JsonKind kind) {
  for (const std::string& what : constraint.left_out[static_cast<size_t>(kind)]) NoteLeftOut(what);
}

NodeId SchemaReader::AddPlace(NodeId parent, std::string_view token, JsonView view) {
  const auto [found, is_new] = by_token_.try_emplace(std::pair(parent, std::string(token)),
                                                     static_cast<NodeId>(places_.size()));
  if (is_new) places_.push_back({parent, std::string(token), view});
  return found->second;
}

NodeId SchemaReader::PlaceOf(const SchemaProperty& property) {
  const auto properties = property.root.Find("properties");
  const NodeId list = AddPlace(root(), "properties", properties.value_or(property.root));
  return AddPlace(list, property.key, property.view);
}

NodeId SchemaReader::Below(const Keyword& keyword) {
  return AddPlace(keyword.place, keyword.name, keyword.value);
}

NodeId SchemaReader::Below(const Keyword& keyword, std::string_view key, JsonView view) {
  return AddPlace(Below(keyword), key, view);
}

std::string SchemaReader::Where(NodeId place) const {
  constexpr size_t kLongest = 200;  // for each part of an error message
  std::string where;
  for (; place != root() && where.size() < kLongest; place = places_[place].parent) {
    where.insert(0, "/" + Escaped(places_[place].token.substr(0, kLongest)));
  }
  return (place == root() ? "#" : "...") + where;
}

std::string SchemaReader::Where(const NodeSet& places) const {
  return places.empty() ? "#" : Where(places.back());
}

std::unexpected<Error> SchemaReader::Wrong(const Keyword& keyword, std::string_view wanted) const {
  return Fail(Errc::kInvalidRequest, "{}: \"{}\" must be {}", Where(keyword.place), keyword.name,
              wanted);
}

Status SchemaReader::Spend(size_t work) {
  TRY_STATUS(limit_.Spend(work * kStepsOfWork));
  work_ += work;
  if (work_ <= kMostWork) return {};
  return Fail(Errc::kUnsupported, "the schema combines too much; make it simpler");
}

Result<SchemaReader::Cases> SchemaReader::Read(const NodeSet& places) {
  Cases all = {Constraint()};
  for (const NodeId place : places) {
    TRY(const Cases cases, ReadPlace(place));
    TRY(all, And(all, cases));
  }
  return all;
}

Result<SchemaReader::Cases> SchemaReader::ReadPlace(NodeId place) {
  if (places_[place].cases) {
    TRY_STATUS(Spend(places_[place].cases->size()));
    return *places_[place].cases;
  }
  if (places_[place].is_being_read) {
    return Fail(Errc::kInvalidRequest, "{}: refers to itself, with no value between", Where(place));
  }
  if (depth_ >= kMostReferences) {
    return Fail(Errc::kUnsupported, "{}: more than {} schemas in each other", Where(place),
                kMostReferences);
  }
  if (places_.size() > kMostPlaces) {
    return Fail(Errc::kUnsupported, "the schema has more than {} parts; make it smaller",
                kMostPlaces);
  }
  TRY_STATUS(Spend(1));
  places_[place].is_being_read = true;
  ++depth_;
  auto cases = ReadObject(place);
  --depth_;
  places_[place].is_being_read = false;
  if (cases) places_[place].cases = *cases;
  return cases;
}

Result<SchemaReader::Cases> SchemaReader::ReadObject(NodeId place) {
  const JsonView schema = places_[place].view;
  if (const auto boolean = schema.boolean()) {
    return *boolean ? Cases{Constraint()} : Cases{};
  }
  if (schema.kind() != JsonKind::kObject) {
    return Fail(Errc::kInvalidRequest, "{}: a schema must be an object or a boolean", Where(place));
  }
  if (place != root() && HasOwnBase(schema)) {
    return Fail(Errc::kUnsupported, "{}: \"$id\" inside of a schema", Where(place));
  }
  TRY(Constraint own, ReadKeywords(place));
  TRY(Cases cases, And({Constraint()}, {std::move(own)}));
  if (const auto reference = schema.Find("$ref")) {
    TRY(const NodeId target, Resolve({place, "$ref", *reference}));
    TRY(const Cases other, ReadPlace(target));
    TRY(cases, And(cases, other));
  }
  if (const auto list = schema.Find("allOf")) {
    const Keyword keyword{place, "allOf", *list};
    if (list->kind() != JsonKind::kArray) return Wrong(keyword, "a list");
    TRY_STATUS(CheckBranches(keyword));
    for (size_t i = 0; i < list->size(); ++i) {
      TRY(const Cases other, ReadPlace(Below(keyword, std::to_string(i), *list->At(i))));
      TRY(cases, And(cases, other));
    }
  }
  if (const auto list = schema.Find("anyOf")) {
    TRY(const Cases other, ReadBranches({place, "anyOf", *list}));
    TRY(cases, And(cases, other));
  }
  if (const auto list = schema.Find("oneOf")) {
    TRY(cases, ExactlyOne(cases, {place, "oneOf", *list}));
  }
  return cases;
}

Result<NodeId> SchemaReader::Resolve(const Keyword& reference) {
  const auto text = reference.value.text();
  if (!text) return Wrong(reference, "a text");
  if (*text != "#" && !text->starts_with("#/")) {
    return Fail(Errc::kUnsupported,
                "{}: \"$ref\": \"{}\" is not of this schema; write \"#/$defs/NAME\"",
                Where(reference.place), text->substr(0, 100));
  }
  NodeId place = root();
  JsonView view = places_[root()].view;
  std::string_view rest = std::string_view(*text).substr(1);
  while (!rest.empty()) {
    rest.remove_prefix(1);
    const auto token = Unescaped(rest.substr(0, rest.find('/')));
    const auto next = token ? Step(view, *token) : std::nullopt;
    if (!next) {
      return Fail(Errc::kInvalidRequest, "{}: \"$ref\": \"{}\" leads nowhere",
                  Where(reference.place), text->substr(0, 100));
    }
    if (place != root() && HasOwnBase(view)) {
      return Fail(Errc::kUnsupported, "{}: \"$ref\" through a schema with \"$id\"",
                  Where(reference.place));
    }
    view = *next;
    place = AddPlace(place, *token, view);
    rest.remove_prefix(std::min(rest.find('/'), rest.size()));
  }
  return place;
}

Status SchemaReader::CheckBranches(const Keyword& keyword) const {
  if (keyword.value.size() <= kMostBranches) return {};
  return Fail(Errc::kUnsupported, "{}: \"{}\" of more than {} schemas", Where(keyword.place),
              keyword.name, kMostBranches);
}

Result<SchemaReader::Cases> SchemaReader::ReadBranches(const Keyword& keyword) {
  if (keyword.value.kind() != JsonKind::kArray || keyword.value.size() == 0) {
    return Wrong(keyword, "a list of schemas");
  }
  TRY_STATUS(CheckBranches(keyword));
  Cases all;
  for (size_t i = 0; i < keyword.value.size(); ++i) {
    TRY(Cases cases, ReadPlace(Below(keyword, std::to_string(i), *keyword.value.At(i))));
    std::ranges::move(cases, std::back_inserter(all));
  }
  return all;
}

Result<SchemaReader::Cases> SchemaReader::And(const Cases& a, const Cases& b) {
  Cases both;
  for (const Constraint& x : a) {
    for (const Constraint& y : b) {
      const size_t compared = x.values && y.values ? x.values->size() * y.values->size() : 0;
      TRY_STATUS(Spend(x.weight() + y.weight() + compared));
      Constraint merged = Merge(x, y);
      if (merged.kinds != 0) both.push_back(std::move(merged));
    }
  }
  if (both.size() <= kMostCases) return both;
  return Fail(Errc::kUnsupported, "the schema's anyOf and oneOf make more than {} cases",
              kMostCases);
}

// Reads oneOf like anyOf, if no value can be of two branches.
Result<SchemaReader::Cases> SchemaReader::ExactlyOne(const Cases& base, const Keyword& keyword) {
  if (keyword.value.kind() != JsonKind::kArray || keyword.value.size() == 0) {
    return Wrong(keyword, "a list of schemas");
  }
  TRY_STATUS(CheckBranches(keyword));
  std::vector<Cases> branches;
  for (size_t i = 0; i < keyword.value.size(); ++i) {
    TRY(const Cases cases, ReadPlace(Below(keyword, std::to_string(i), *keyword.value.At(i))));
    TRY(Cases branch, And(base, cases));
    for (size_t j = 0; j < branches.size(); ++j) {
      TRY(const Cases of_two, And(branches[j], branch));
      is_probing_ = true;
      const bool is_disjoint = std::ranges::all_of(
          of_two, [this](const Constraint& c) { return IsSurelyEmpty(c, kEmptinessDepth); });
      is_probing_ = false;
      if (is_disjoint) continue;
      if (leaves_out_) {
        NoteLeftOut(Format("{}: \"oneOf\"", Where(keyword.place)));
        continue;
      }
      return Fail(Errc::kUnsupported,
                  "{}: \"oneOf\": a value may be of branches {} and {}, which a grammar cannot "
                  "forbid; use anyOf, or tell them apart by type, const or required properties",
                  Where(keyword.place), j, i);
    }
    branches.push_back(std::move(branch));
  }
  Cases all;
  for (Cases& branch : branches) std::ranges::move(branch, std::back_inserter(all));
  if (all.size() > kMostCases) return And(all, {Constraint()});
  return all;
}

// Checks values against a schema, and whether a schema accepts any value.

bool SchemaReader::IsSurelyEmpty(const NodeSet& places, int depth) {
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

Result<bool> SchemaReader::Accepts(const NodeSet& places, JsonView value) {
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
