// SPDX-License-Identifier: MIT
// Tests the rules' text; tests/serve/grammar_test.cc checks with libllama which texts a grammar
// allows.
#include "schema/schema_grammar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/work_limit.h"

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

TEST(GrammarRules, WhatCannotBeSaidIsLeftOutAndNamedIfItMay) {
  for (const char* keyword :
       {R"("multipleOf":3)", R"("uniqueItems":true)", R"("contains":{})", R"("minProperties":3)",
        R"("maxProperties":3)", R"("propertyNames":{"minLength":2})",
        R"("dependentRequired":{"a":["b"]})", R"("if":{},"then":false)", R"("not":{"type":"null"})",
        R"("unevaluatedProperties":false)", R"("format":"ipv6")", R"("oneOf":[{},{}])",
        R"x("pattern":"(?=a)")x", R"("pattern":"a","format":"date")",
        R"("enum":[4],"multipleOf":3)"}) {
    GrammarRules rules({}, GrammarRules::Unsaid::kLeftOut);
    const std::string schema = R"({"properties":{"a":{)" + std::string(keyword) + "}}}";
    const auto rule = rules.AddSchema(schema, "x");
    EXPECT_TRUE(rule) << keyword << ": " << (rule ? "" : rule.error().message);
    ASSERT_EQ(rules.left_out().size(), 1U) << keyword;
    EXPECT_TRUE(rules.left_out()[0].contains("properties/a: ")) << rules.left_out()[0];
  }
  GrammarRules rules({}, GrammarRules::Unsaid::kLeftOut);
  EXPECT_TRUE(rules.AddSchema(R"({"type":"string","uniqueItems":true,"multipleOf":2})", "a"));
  EXPECT_TRUE(rules.left_out().empty()) << "of another kind";
  // Without these keywords the rest would be another schema.
  for (const char* keyword : {R"("$dynamicRef":"#a")", R"("$id":"b")", R"("$ref":"https://a/b")",
                              R"("patternProperties":{"^a":{}})", R"x("pattern":"(")x"}) {
    EXPECT_FALSE(rules.AddSchema(R"({"properties":{"a":{)" + std::string(keyword) + "}}}", "x"))
        << keyword;
  }
}

// The keyword that answers may break is named, and no other.
TEST(GrammarRules, WhatIsLeftOutIsNamedRightly) {
  const auto left_out = [](const std::string& schema) {
    GrammarRules rules({}, GrammarRules::Unsaid::kLeftOut);
    const auto rule = rules.AddSchema(schema, "x");
    EXPECT_TRUE(rule) << schema << (rule ? "" : rule.error().message);
    std::string all;
    for (const std::string& what : rules.left_out()) all += (all.empty() ? "" : "; ") + what;
    return all;
  };
  const std::string beside = R"( beside such a "pattern" or "format")";
  // The pattern is held.
  EXPECT_EQ(left_out(R"x({"pattern":"^[a-z]+(-[a-z]+)*$","maxLength":8})x"),
            R"(#: "maxLength")" + beside);
  EXPECT_EQ(left_out(R"x({"pattern":"^[a-z]+(-[a-z]+)*$","minLength":1,"maxLength":8})x"),
            R"(#: "maxLength")" + beside);
  EXPECT_EQ(left_out(R"x({"pattern":"^[a-z]+(-[a-z]+)*$","minLength":5,"maxLength":8})x"),
            R"(#: "maxLength")" + beside + R"(; #: "minLength")" + beside);
  EXPECT_EQ(left_out(R"({"pattern":"^[a-z]+$","minLength":5,"maxLength":8})"), "");
  EXPECT_EQ(left_out(R"({"format":"date","pattern":"^2"})"),
            R"(#: "pattern" beside another pattern or format)");
  EXPECT_EQ(left_out(R"x({"allOf":[{"pattern":"^(?=a)"},{"pattern":"b$"}]})x"),
            R"x(#/allOf/0: "pattern" (a pattern with a look-around or a named group (byte 2)))x");
  EXPECT_EQ(left_out(R"({"enum":["a","b"],"pattern":"^a"})"),
            R"(#: "pattern" beside enum or const)");
  EXPECT_EQ(left_out(R"({"minLength":1000000})"), R"(#: "minLength" above 100000)");
  EXPECT_EQ(left_out(R"({"type":"array","minItems":1000000})"), R"(#: "minItems" above 100000)");
  // The check whether two branches exclude each other leaves nothing out of the grammar.
  EXPECT_EQ(left_out(R"({"oneOf":[{"type":"object","required":["a"],"properties":{
      "a":{"const":1,"multipleOf":1}}},{"type":"object","required":["a"],"properties":{
      "a":{"const":2}}}]})"),
            R"(#/oneOf/0/properties/a: "multipleOf")");
}

// Thousands of keywords are merged, each with its own place.
TEST(GrammarRules, WhatIsLeftOutOfAHugeSchemaIsFew) {
  std::string all = R"({"multipleOf":2})";
  for (int i = 1; i < 1000; ++i) all += R"(,{"multipleOf":2})";
  GrammarRules rules({}, GrammarRules::Unsaid::kLeftOut);
  EXPECT_TRUE(rules.AddSchema(R"({"allOf":[)" + all + "]}", "x"));
  EXPECT_EQ(rules.left_out().size(), 8U);
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

// Each must be refused in a moment, not computed for ever or until memory ends.
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

// Twenty thousand tools of short names took minutes: each name was looked for anew among all.
TEST(GrammarRules, NamingTakesStepsInProportionToTheRules) {
  const auto steps_for = [](int n) {
    const WorkLimit limit({.processor_seconds = 1.0, .clock = [] { return 0.0; }});
    GrammarRules rules(limit);
    for (int i = 0; i < n; ++i) rules.AddRule("call", "\"a\"");
    for (int i = 0; i < n; ++i) EXPECT_TRUE(rules.AddSchema("{}", "\u540d\u524d"));
    return limit.steps();
  };
  EXPECT_LT(steps_for(2000), 5 * steps_for(500));
}

TEST(GrammarRules, ANameIsFreeAgainstNamesThatLookLikeItsNumbers) {
  GrammarRules rules;
  EXPECT_EQ(rules.AddRule("call2", "\"a\""), "call2");
  EXPECT_EQ(rules.AddRule("call", "\"a\""), "call");
  EXPECT_EQ(rules.AddRule("call", "\"a\""), "call3");
  EXPECT_EQ(rules.AddRule("call2", "\"a\""), "call22");
  EXPECT_EQ(rules.AddSchema("{}", "call").value(), "call4");
}

// The tree of names was taken apart by a call for each character.
TEST(GrammarRules, AVeryLongNameIsRefused) {
  const std::string name(250'000, 'a');
  ExpectRefused(R"({"properties":{")" + name + R"(":{}}})", Errc::kUnsupported, "rules");
  ExpectRefused(R"({"required":[")" + name + R"("]})", Errc::kUnsupported, "rules");
}

// Each branch takes 700 bytes of memory, even an empty one.
TEST(GrammarRules, ManyBranchesAreRefused) {
  std::string list = "[{}";
  for (int i = 0; i < 80'000; ++i) list += ",{}";
  for (const std::string word : {"anyOf", "oneOf", "allOf"}) {
    ExpectRefused("{\"" + word + "\":" + list + "]}", Errc::kUnsupported, "more than 1024");
  }
  std::string properties = R"({"additionalProperties":false,"properties":{"p":{})";
  for (int i = 0; i < 21'000; ++i) properties += ",\"" + std::to_string(i) + "\":{}";
  ExpectRefused(properties + "}}", Errc::kUnsupported, "more than 20000 parts");
}

TEST(GrammarRules, AnEnumOfThousandsIsSaid) {
  std::string schema = R"({"enum":[0)";
  for (int i = 1; i < 10'000; ++i) schema += "," + std::to_string(i);
  GrammarRules rules;
  EXPECT_TRUE(rules.AddSchema(schema + "]}", "root"));
  EXPECT_TRUE(rules.Text().contains("\"9999\""));
  EXPECT_FALSE(rules.is_full());
}

TEST(GrammarRules, WhatTakesTooLongAddsNothing) {
  double now = 0.0;
  const WorkLimit limit({.processor_seconds = 5.0, .clock = [&] { return now += 1.0; }});
  std::string schema = R"({"enum":[0)";
  for (int i = 1; i < 20'000; ++i) schema += "," + std::to_string(i);
  GrammarRules rules(limit);
  const auto added = rules.AddSchema(schema + "]}", "root");
  ASSERT_FALSE(added);
  EXPECT_TRUE(added.error().message.contains("processor time")) << added.error().message;
  EXPECT_FALSE(rules.AddSchema("{}", "root")) << "there is no time for more";
  rules.AddRule("root", "\"a\"");
  EXPECT_EQ(rules.Text(), "root ::= \"a\"\n");
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
