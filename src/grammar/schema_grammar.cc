// SPDX-License-Identifier: MIT
#include "grammar/schema_grammar.h"

#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "grammar/json_rules.h"
#include "grammar/rule_set.h"
#include "grammar/schema_writer.h"

namespace moestro {
namespace {

constexpr std::string_view kReserved = "json-";
constexpr size_t kLongestGrammar = size_t{256} << 10;  // the sampler takes no more

}  // namespace

std::string GrammarRules::FreeName(std::string_view name, bool is_family) const {
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
  std::string free = base;
  for (int i = 2; is_taken(free); ++i) free = Format("{}{}", base, i);
  return free;
}

void GrammarRules::AddJsonRules() {
  for (const JsonRule& rule : JsonRules()) rules_.try_emplace(std::string(rule.name), rule.body);
}

Result<std::string> GrammarRules::AddSchema(std::string_view schema, std::string_view name) {
  if (schema.size() > kLongestSchema) {
    return Fail(Errc::kUnsupported, "a schema of {} bytes is too long (at most {})", schema.size(),
                kLongestSchema);
  }
  const auto json = Json::Parse(schema);
  if (!json) return Fail(Errc::kInvalidRequest, "the schema is {}", json.error().message);
  SchemaReader reader(json->view());
  RuleSet rules;
  TRY(const RuleId first, SchemaWriter(reader, rules).Write());
  const std::string first_name = FreeName(name, true);
  auto named = rules.Named(first, first_name);
  if (named.empty()) {
    return Fail(Errc::kInvalidRequest, "the schema accepts no JSON text that ends");
  }
  size_t length = 0;
  for (const auto& [rule, body] : named) length += rule.size() + body.size();
  if (length > kLongestGrammar) {
    return Fail(Errc::kUnsupported, "the schema needs a grammar of {} bytes (at most {})", length,
                kLongestGrammar);
  }
  AddJsonRules();
  for (auto& [rule, body] : named) rules_.emplace(rule, std::move(body));
  return first_name;
}

std::string GrammarRules::AddAnyObject() {
  AddJsonRules();
  return "json-object";
}

std::string GrammarRules::AddRule(std::string_view name, std::string_view body) {
  std::string free = FreeName(name, false);
  rules_.emplace(free, body);
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
