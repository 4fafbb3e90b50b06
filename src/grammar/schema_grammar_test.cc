// SPDX-License-Identifier: MIT
// What texts a grammar allows is asked of libllama in tests/grammar_test.cc.
#include "grammar/schema_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace moestro {
namespace {

void ExpectRefused(const std::string& schema, Errc code, const std::string& reason) {
  GrammarRules rules;
  const auto added = rules.AddSchema(schema, "root");
  ASSERT_FALSE(added) << schema.substr(0, 200);
  EXPECT_EQ(added.error().code, code) << added.error().message;
  EXPECT_NE(added.error().message.find(reason), std::string::npos) << added.error().message;
  EXPECT_EQ(added.error().message.find('\n'), std::string::npos);
  EXPECT_LT(added.error().message.size(), 400U);
}

TEST(GrammarRules, NamesAreFreeAndAllowed) {
  GrammarRules rules;
  EXPECT_EQ(rules.AddRule("root", "\"a\""), "root");
  EXPECT_EQ(rules.AddRule("get_weather!", "\"b\""), "get-weather-");
  EXPECT_NE(rules.AddRule("root", "\"c\""), "root");
  EXPECT_NE(rules.AddRule("json-value", "\"d\""), "json-value");
  EXPECT_FALSE(rules.AddRule("", "\"e\"").empty());
  EXPECT_EQ(rules.AddSchema(R"({"type":"null"})", "null").value(), "null");
  EXPECT_EQ(rules.AddAnyObject(), "json-object");
  EXPECT_NE(rules.Text().find("root ::= \"a\"\n"), std::string::npos);
  EXPECT_NE(rules.Text().find("null ::= \"null\"\n"), std::string::npos);
}

TEST(GrammarRules, AFailureAddsNothing) {
  GrammarRules rules;
  rules.AddRule("root", "\"a\"");
  EXPECT_FALSE(rules.AddSchema(R"({"properties":{"a":{"not":{"type":"null"}}}})", "x"));
  EXPECT_EQ(rules.Text(), "root ::= \"a\"\n");
}

TEST(GrammarRules, WhatRestrictsAndCannotBeSaidIsRefused) {
  const auto at = [](const std::string& schema) {
    return R"({"properties":{"a":)" + schema + "}}";
  };
  for (const char* keyword :
       {R"("multipleOf":3)", R"("uniqueItems":true)", R"("contains":{})", R"("minProperties":3)",
        R"("maxProperties":3)", R"("patternProperties":{"^a":{}})",
        R"("propertyNames":{"minLength":2})", R"("dependentRequired":{"a":["b"]})",
        R"("if":{},"then":false)", R"("not":{"type":"null"})", R"("unevaluatedProperties":false)",
        R"("format":"ipv6")", R"x("pattern":"(?=a)")x", R"("$dynamicRef":"#a")", R"("$id":"b")",
        R"("minLength":1000000)", R"("pattern":"a","format":"date")"}) {
    const std::string name = std::string(keyword).substr(1, std::string(keyword).find('"', 1) - 1);
    ExpectRefused(at("{" + std::string(keyword) + "}"), Errc::kUnsupported, "properties/a:");
    ExpectRefused(at("{" + std::string(keyword) + "}"), Errc::kUnsupported, name);
  }
}

TEST(GrammarRules, AKeywordOfAnotherKindDoesNotMatter) {
  GrammarRules rules;
  EXPECT_TRUE(rules.AddSchema(R"({"type":"string","uniqueItems":true,"multipleOf":2})", "a"));
  EXPECT_TRUE(rules.AddSchema(R"({"type":"array","uniqueItems":true,"maxItems":1})", "b"));
  EXPECT_TRUE(rules.AddSchema(R"({"title":"t","default":1,"examples":[],"x-unknown":{}})", "c"));
}

TEST(GrammarRules, WrongSchemasAreInvalid) {
  ExpectRefused("{", Errc::kInvalidRequest, "byte");
  ExpectRefused("3", Errc::kInvalidRequest, "#");
  ExpectRefused(R"({"properties":{"a":[]}})", Errc::kInvalidRequest, "properties/a:");
  ExpectRefused(R"({"type":"strin"})", Errc::kInvalidRequest, "\"type\"");
  ExpectRefused(R"({"minLength":-1})", Errc::kInvalidRequest, "minLength");
  ExpectRefused(R"({"minLength":"x"})", Errc::kInvalidRequest, "minLength");
  ExpectRefused(R"({"maxItems":1.5})", Errc::kInvalidRequest, "maxItems");
  ExpectRefused(R"({"required":true})", Errc::kInvalidRequest, "required");
  ExpectRefused(R"({"anyOf":[]})", Errc::kInvalidRequest, "anyOf");
  ExpectRefused(R"({"$ref":"#/$defs/b"})", Errc::kInvalidRequest, "leads nowhere");
  ExpectRefused(R"({"$ref":"https://a/b"})", Errc::kUnsupported, "https://a/b");
  ExpectRefused(R"x({"type":"string","pattern":"("})x", Errc::kInvalidRequest, "pattern");
}

TEST(GrammarRules, SchemasThatAcceptNothingAreInvalid) {
  for (const char* schema :
       {"false", R"({"not":{}})", R"({"allOf":[{"type":"string"},{"type":"null"}]})",
        R"({"type":"integer","minimum":3,"maximum":2})", R"({"type":"string","enum":[1]})",
        R"({"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}})",
        R"({"type":"string","minLength":3,"maxLength":2})",
        R"({"type":"array","items":{"$ref":"#"},"minItems":1})",
        R"({"type":"integer","exclusiveMinimum":1,"exclusiveMaximum":2})"}) {
    ExpectRefused(schema, Errc::kInvalidRequest, "accepts no");
  }
}

TEST(GrammarRules, ReferencesInACircleAreInvalid) {
  ExpectRefused(R"({"$ref":"#"})", Errc::kInvalidRequest, "itself");
  ExpectRefused(R"({"anyOf":[{"type":"null"},{"allOf":[{"$ref":"#"}]}]})", Errc::kInvalidRequest,
                "itself");
  ExpectRefused(R"({"properties":{"a":{"$ref":"#/$defs/b"}},
                    "$defs":{"b":{"$ref":"#/$defs/c"},"c":{"$ref":"#/$defs/b"}}})",
                Errc::kInvalidRequest, "itself");
}

TEST(GrammarRules, AOneOfOfWhichTwoMayHoldIsRefused) {
  ExpectRefused(R"({"oneOf":[{"type":"integer"},{"minimum":2}]})", Errc::kUnsupported, "oneOf");
  ExpectRefused(R"({"type":"object","oneOf":[{"required":["a"]},{"required":["b"]}]})",
                Errc::kUnsupported, "branches 0 and 1");
}

// Each must be told in a moment, not computed for ever or until memory ends.
TEST(GrammarRules, HostileSchemasAreRefused) {
  std::string doubling = R"({"$ref":"#/$defs/a0","$defs":{)";
  std::string chain = R"({"$ref":"#/$defs/a0","$defs":{)";
  for (int i = 0; i < 1000; ++i) {
    const std::string next = R"({"$ref":"#/$defs/a)" + std::to_string(i + 1) + "\"}";
    const std::string name = "\"a" + std::to_string(i) + "\":";
    doubling += name + R"({"anyOf":[)" + next + "," + next + "]},";
    chain += name + next + ",";
  }
  ExpectRefused(doubling + R"("a1000":{}}})", Errc::kUnsupported, "more than");
  ExpectRefused(chain + R"("a1000":{}}})", Errc::kUnsupported, "in each other");
  std::string product = R"({"allOf":[)";
  for (int i = 0; i < 20; ++i) {
    product += R"({"anyOf":[{"minLength":)" + std::to_string(i) + R"(},{"maxLength":)" +
               std::to_string(100 - i) + "}]},";
  }
  ExpectRefused(product + "{}]}", Errc::kUnsupported, "anyOf");
  ExpectRefused("\"" + std::string(300'000, 'a') + "\"", Errc::kUnsupported, "too long");
  std::string values = R"({"enum":[0)";
  for (int i = 1; i < 10'000; ++i) values += "," + std::to_string(i);
  values += "]";
  ExpectRefused(R"({"allOf":[)" + values + "}," + values + "}]}", Errc::kUnsupported, "too much");
  std::string names = R"({"properties":{)";
  const std::string long_name(2000, 'x');
  for (int i = 0; i < 100; ++i) names += "\"" + std::to_string(i) + long_name + "\":{},";
  ExpectRefused(names + R"("a":{}}})", Errc::kUnsupported, "rules");
  const std::string deep(200, '[');
  ExpectRefused(R"({"const":)" + deep + "}", Errc::kInvalidRequest, "nested");
}

// Properties of which any may be missing: the grammar grows with their number, not with the number
// of their subsets.
TEST(GrammarRules, ManyOptionalPropertiesMakeAGrammarOfTheirLength) {
  const auto rules_of = [](int n) {
    std::string schema = R"({"type":"object","additionalProperties":false,"properties":{"z":{})";
    for (int i = 0; i < n; ++i) schema += ",\"p" + std::to_string(i) + R"(":{"type":"null"})";
    GrammarRules rules;
    EXPECT_TRUE(rules.AddSchema(schema + "}}", "root"));
    return std::ranges::count(rules.Text(), '\n');
  };
  EXPECT_LT(rules_of(400), 5 * rules_of(100));
}

}  // namespace
}  // namespace moestro
