// SPDX-License-Identifier: MIT
#include "schema/schema_grammar.h"

#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "schema/json_rules.h"
#include "schema/rule_set.h"
#include "schema/schema_writer.h"

namespace moestro {
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

Result<std::string> GrammarRules::AddSchema(std::string_view schema, std::string_view name) {
  if (schema.size() > kLongestSchema) {
    return Fail(Errc::kUnsupported, "a schema of {} bytes is too long (at most {})", schema.size(),
                kLongestSchema);
  }
  TRY_STATUS(limit_.Spend(schema.size()));
  const auto json = Json::Parse(schema);
  if (!json) return Fail(Errc::kInvalidRequest, "the schema is {}", json.error().message);
  SchemaReader reader(json->view(), limit_, unsaid_ == Unsaid::kLeftOut);
  RuleSet rules;
  TRY(const RuleId first, SchemaWriter(reader, rules).Write());
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
  for (auto& [rule, body] : named) Add(rule, std::move(body));
  for (const std::string& what : reader.left_out()) {
    if (left_out_.size() < kMostLeftOut) left_out_.push_back(what);
  }
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

}  // namespace moestro
