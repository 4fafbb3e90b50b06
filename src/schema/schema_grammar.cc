// SPDX-License-Identifier: MIT
#include "schema/schema_grammar.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "base/result.h"
#include "base/text.h"
#include "schema/object_writer.h"
#include "schema/rule_set.h"
#include "schema/schema_writer.h"

namespace moestro {

// Numbers end before they are beyond a double: 19 digits and an exponent of at most 279. Strings
// have no half surrogate pairs, neither as bytes nor as escapes, since most parsers refuse such
// strings.
std::span<const JsonRule> JsonRules() {
  static constexpr std::array<JsonRule, 13> kRules = {{
      {"json-ws", R"(" "? | "\n" [ \t]{0,32})"},
      {"json-value",
       R"(json-object | json-array | json-string | json-number | "true" | "false" | "null")"},
      {"json-object", R"("{" json-ws ( json-member ( "," json-ws json-member )* json-ws )? "}")"},
      {"json-member", R"(json-string ":" json-ws json-value)"},
      {"json-array", R"("[" json-ws ( json-value ( "," json-ws json-value )* json-ws )? "]")"},
      {"json-string", R"("\"" json-char* "\"")"},
      {"json-char",
       R"([\x20-\x21\x23-\x5B\x5D-\uD7FF\uE000-\U0010FFFF] | "\\" ( ["\\/bfnrt] | json-unit ))"},
      {"json-unit", R"("u" ( [0-9a-cA-CeEfF] json-hex{3} | [dD] [0-7] json-hex{2} | )"
                    R"([dD] [89abAB] json-hex{2} "\\u" [dD] [c-fC-F] json-hex{2} ))"},
      {"json-hex", "[0-9a-fA-F]"},
      {"json-integer", R"("-"? ( "0" | [1-9] [0-9]{0,18} ))"},
      {"json-number", R"(json-integer ( "." [0-9]{1,24} )? ( [eE] [+-]? json-exponent )?)"},
      {"json-exponent", R"([0-9] [0-9]? | "1" [0-9] [0-9] | "2" [0-7] [0-9])"},
      {"json-boolean", R"("true" | "false")"},
  }};
  return kRules;
}

namespace {

constexpr std::string_view kReserved = "json-";
constexpr size_t kMostLeftOut = 16;

}  // namespace

std::string GrammarRules::FreeName(std::string_view name, bool is_family) {
  std::string base;
  for (const char c : name.substr(0, 64)) {
    const bool is_known =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    base += is_known ? c : '-';
  }
  if (base.empty() || base.starts_with(kReserved)) base.insert(0, "rule-");
  const auto is_taken = [&](const std::string& wanted) {
    const auto next = rules_.lower_bound(wanted + "-");
    const bool has_family = next != rules_.end() && next->first.starts_with(wanted + "-");
    return rules_.contains(wanted) || (is_family && has_family);
  };
  uint32_t& number = next_number_[{base, is_family}];
  while (true) {
    [[maybe_unused]] const Status spent = limit_.Spend(base.size());
    std::string free = number == 0 ? base : Format("{}{}", base, number + 1);
    ++number;
    if (!is_taken(free)) return free;
  }
}

void GrammarRules::Add(std::string name, std::string body) {
  const size_t line = name.size() + body.size() + std::string_view(" ::= \n").size();
  if (rules_.insert({std::move(name), std::move(body)}).second) bytes_ += line;
}

void GrammarRules::AddJsonRules() {
  for (const JsonRule& rule : JsonRules()) Add(std::string(rule.name), std::string(rule.body));
}

void GrammarRules::AddNamed(std::vector<std::pair<std::string, std::string>> named) {
  for (auto& [rule, body] : named) Add(rule, std::move(body));
}

void GrammarRules::NoteLeftOut(std::string_view what) {
  std::string told = owner_.empty() ? std::string(what) : Format("{} {}", owner_, what);
  if (std::ranges::contains(left_out_, told)) return;
  if (left_out_.size() < kMostLeftOut) left_out_.push_back(std::move(told));
}

Result<std::string> GrammarRules::AddSchema(std::string_view schema, std::string_view name) {
  return AddKinds(schema, kAllKinds, name);
}

Result<std::string> GrammarRules::AddObjectSchema(std::string_view schema, std::string_view name) {
  return AddKinds(schema, KindBit(JsonKind::kObject), name);
}

Result<std::string> GrammarRules::AddKinds(std::string_view schema, KindSet kinds,
                                           std::string_view name) {
  if (schema.size() > kLongestSchema) {
    return Fail(Errc::kUnsupported, "a schema of {} bytes is too long (at most {})", schema.size(),
                kLongestSchema);
  }
  TRY_STATUS(limit_.Spend(schema.size()));
  const auto json = Json::Parse(schema);
  if (!json) return Fail(Errc::kInvalidRequest, "the schema is {}", json.error().message);
  SchemaReader reader(json->view(), limit_, unsaid_ == Unsaid::kLeftOut);
  return AddPlace(reader, reader.root(), kinds, name);
}

Result<std::string> GrammarRules::AddProperty(const SchemaProperty& property,
                                              std::string_view name) {
  SchemaReader reader(property.root, limit_, unsaid_ == Unsaid::kLeftOut);
  return AddPlace(reader, reader.PlaceOf(property), kAllKinds, name);
}

Result<std::string> GrammarRules::AddPlace(SchemaReader& reader, NodeId place, KindSet kinds,
                                           std::string_view name) {
  RuleSet rules;
  size_t order_steps = order_steps_;
  TRY(const RuleId first, SchemaWriter(reader, rules, order_steps).Write(place, kinds));
  const std::string first_name = FreeName(name, true);
  auto named = rules.Named(first, first_name);
  if (named.empty()) {
    return Fail(Errc::kInvalidRequest, "the schema accepts no JSON text that ends");
  }
  size_t length = 0;
  for (const auto& [rule, body] : named) length += rule.size() + body.size();
  if (length > kLongestText) {
    return Fail(Errc::kUnsupported, "the schema needs a grammar of {} bytes (at most {})", length,
                kLongestText);
  }
  AddJsonRules();
  AddNamed(std::move(named));
  order_steps_ = order_steps;
  for (const std::string& what : reader.left_out()) NoteLeftOut(what);
  return first_name;
}

std::string GrammarRules::AddMembers(const GrammarMembers& members, std::string_view name) {
  RuleSet rules;
  MemberList list;
  list.separator = RuleBody().Gbnf(members.separator);
  for (const GrammarMembers::Member& member : members.members) {
    list.members.push_back(
        {.rule = rules.Add(RuleBody().Gbnf(member.rule)), .is_required = member.is_required});
  }
  const MemberRules written = MemberOrder(rules, order_steps_).Write(list, ManyMembers::kRepeat);
  if (written.may_repeat) {
    NoteLeftOut(Format("#: that each of its {} properties comes once", list.members.size()));
  }
  const std::string first_name = FreeName(name, true);
  AddNamed(rules.Named(written.rule, first_name));
  return first_name;
}

std::string GrammarRules::AddAnyObject() {
  AddJsonRules();
  return "json-object";
}

std::string GrammarRules::AddRule(std::string_view name, std::string_view body) {
  std::string free = FreeName(name, false);
  Add(free, std::string(body));
  return free;
}

std::string GrammarRules::Literal(std::string_view text) { return QuoteForGbnf(text); }

std::string GrammarRules::Text() const {
  CHECK(rules_.contains("root"));
  std::string text;
  for (const auto& [name, body] : rules_) text += name + " ::= " + body + "\n";
  return text;
}

namespace {

void AddTextLimits(const Constraint& constraint, const std::string& place, ValueShape& shape) {
  if (!constraint.Has(JsonKind::kText) || constraint.values) return;
  const auto add = [&](std::string_view keyword) {
    shape.text_limits.insert(Format("{}: \"{}\"", place, keyword));
  };
  if (constraint.length.least > 0) add("minLength");
  if (constraint.length.most) add("maxLength");
  for (const auto& [pattern, keyword] : constraint.patterns) shape.text_limits.insert(keyword);
  const auto text = static_cast<size_t>(JsonKind::kText);
  shape.text_limits.insert(constraint.left_out[text].begin(), constraint.left_out[text].end());
}

}  // namespace

Result<ValueShape> ShapeOf(const SchemaProperty& property, const WorkLimit& limit) {
  SchemaReader reader(property.root, limit, /*leaves_out=*/true);
  const NodeId place = reader.PlaceOf(property);
  TRY(const SchemaReader::Cases cases, reader.Read({place}));
  ValueShape shape{.kinds = 0};
  std::vector<JsonView> values;
  bool are_all_fixed = true;
  for (const Constraint& constraint : cases) {
    AddTextLimits(constraint, reader.Where(place), shape);
    if (!constraint.values) {
      shape.kinds |= constraint.kinds;
      are_all_fixed = false;
      continue;
    }
    for (const JsonView value : *constraint.values) {
      if (!HoldsItself(constraint, value)) continue;
      shape.kinds |= KindBit(value.kind());
      values.push_back(value);
    }
  }
  if (are_all_fixed) shape.values = std::move(values);
  return shape;
}

}  // namespace moestro
