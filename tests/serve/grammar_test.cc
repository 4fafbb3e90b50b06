// SPDX-License-Identifier: MIT
// What grammars of JSON schemas let through, asked of libllama's grammar sampler.
#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "schema/schema_grammar.h"
#include "tests/serve/grammar_matcher_testing.h"

namespace moestro {
namespace {

using Texts = std::initializer_list<std::string_view>;

class GrammarTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { matcher_.emplace(); }
  static void TearDownTestSuite() { matcher_.reset(); }

  static void Expect(std::string_view schema, Texts allowed, Texts refused) {
    GrammarRules rules;
    const auto root = rules.AddSchema(schema, "root");
    ASSERT_TRUE(root) << schema.substr(0, 300) << ": " << root.error().message;
    for (const std::string_view text : allowed) {
      EXPECT_TRUE(matcher_->Allows(rules.Text(), text)) << text << " of " << schema.substr(0, 300);
    }
    for (const std::string_view text : refused) {
      EXPECT_FALSE(matcher_->Allows(rules.Text(), text)) << text << " of " << schema.substr(0, 300);
    }
  }

  static inline std::optional<GrammarMatcher> matcher_;
};

TEST_F(GrammarTest, AnyValueIsJson) {
  Expect("{}",
         {"0", "-1.5e+22", "1e-07", "null", "true", R"("a\n\u00e9\ud83d\ude00")", "[]", "{}",
          R"({"a":[1,{"b":[]}],"c":"x"})", "{\n  \"a\": 1,\n  \"b\": [\n    1\n  ]\n}"},
         {"", "01", "+1", "1.", ".5", "nul", "'a'", R"("\ud83d")", "\"a\nb\"", R"("\x")", "[1,]",
          R"({"a":1,})", R"({a:1})", "1e999", " 1", "1 ", "[ \n1]", "{}{}"});
}

TEST_F(GrammarTest, BlanksAreBounded) {
  const std::string blanks(33, ' ');
  Expect(R"({"type":"array"})", {"[ 1, 2 ]", "[\n\t1\n]"},
         {"[  1]", "[\n" + blanks + "1]", "[1 ,2]", "[\n\n1]"});
}

TEST_F(GrammarTest, PropertiesComeInAnyOrderEachOnceAndOptionalOnesMayBeLeftOut) {
  constexpr std::string_view kSchema = R"({"type":"object","properties":{
      "a":{"type":"integer"},"b":{"type":"string"},"c":{"type":"boolean"}},
      "required":["b"],"additionalProperties":false})";
  Expect(kSchema,
         {R"({"b":"x"})", R"({"a":1,"b":"x"})", R"({"b":"x","c":true})",
          R"({"a":1,"b":"x","c":false})", R"({"a": 1, "b": "x"})", R"({"b":"x","a":1})",
          R"({"c":true,"b":"x","a":1})", R"({"c":true,"a":1,"b":"x"})"},
         {"{}", R"({"a":1})", R"({"c":true,"a":1})", R"({"b":1})", R"({"b":"x","b":"y"})",
          R"({"b":"x","a":1,"b":"y"})", R"({"a":1,"b":"x","a":1})", R"({"b":"x","d":1})",
          R"({"a":1"b":"x"})", R"({,"b":"x"})", R"({"b":"x",})"});
  Expect(R"({"type":"object","properties":{"a":{},"b":{}},"additionalProperties":false})",
         {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})", R"({"b":1,"a":2})"},
         {R"({"a":1,"a":2})", R"({"b":1,"a":2,"b":3})"});
}

// An object of `n` properties "p0", "p1", ..., of which the first `n_required` are required.
std::string SchemaOf(int n, int n_required, bool is_closed) {
  std::string properties;
  std::string required;
  for (int i = 0; i < n; ++i) {
    const std::string name = "\"p" + std::to_string(i) + "\"";
    properties += (i > 0 ? "," : "") + name + R"(:{"type":"integer"})";
    if (i < n_required) required += (i > 0 ? "," : "") + name;
  }
  return R"({"type":"object","properties":{)" + properties + R"(},"required":[)" + required +
         R"(],"additionalProperties":)" + (is_closed ? "false" : R"({"type":"null"})") + "}";
}

std::string ObjectOf(const std::vector<int>& properties) {
  std::string text;
  for (const int i : properties) text += (text.empty() ? "" : ",") + Format("\"p{}\":{}", i, i);
  return "{" + text + "}";
}

TEST_F(GrammarTest, EveryOrderOfSevenPropertiesIsExact) {
  std::mt19937 random(1);
  for (const bool is_closed : {false, true}) {
    GrammarRules rules({}, GrammarRules::Unsaid::kLeftOut);
    ASSERT_EQ(rules.AddSchema(SchemaOf(7, 3, is_closed), "root").value(), "root");
    EXPECT_TRUE(rules.left_out().empty());
    std::vector<int> all{0, 1, 2, 3, 4, 5, 6};
    for (int trial = 0; trial < 20; ++trial) {
      std::ranges::shuffle(all, random);
      EXPECT_TRUE(matcher_->Allows(rules.Text(), ObjectOf(all))) << ObjectOf(all);
      std::vector<int> some = all;
      std::erase(some, trial % 7);
      EXPECT_EQ(matcher_->Allows(rules.Text(), ObjectOf(some)), trial % 7 >= 3) << ObjectOf(some);
      some = all;
      some.push_back(trial % 7);
      EXPECT_FALSE(matcher_->Allows(rules.Text(), ObjectOf(some))) << ObjectOf(some);
    }
    std::string with_others = ObjectOf(all);
    with_others.insert(with_others.find(',', 8), R"(,"q":null,"r":null)");
    EXPECT_EQ(matcher_->Allows(rules.Text(), with_others), !is_closed) << with_others;
  }
}

// More than can be counted: nothing that the schema accepts is lost, and what is not held is said.
TEST_F(GrammarTest, ManyPropertiesComeInAnyOrder) {
  std::mt19937 random(1);
  std::vector<int> all;
  for (int i = 0; i < 12; ++i) all.push_back(i);
  for (const int n_required : {0, 1, 7, 9, 12}) {
    GrammarRules rules({}, GrammarRules::Unsaid::kLeftOut);
    ASSERT_TRUE(rules.AddSchema(SchemaOf(12, n_required, true), "root"));
    const auto left_out = n_required == 12 ? std::vector<std::string>()
                                           : std::vector<std::string>{
                                                 "#: that each of its 12 "
                                                 "properties comes once"};
    EXPECT_EQ(rules.left_out(), left_out);
    const std::string grammar = rules.Text();
    for (int trial = 0; trial < 20; ++trial) {
      std::vector<int> order = all;
      std::ranges::shuffle(order, random);
      if (n_required > 7) {  // these keep their order
        std::vector<int> next = all;
        for (int& i : order) {
          if (i >= n_required) continue;
          i = next.front();
          next.erase(next.begin());
        }
      }
      EXPECT_TRUE(matcher_->Allows(grammar, ObjectOf(order))) << ObjectOf(order);
      if (n_required == 0) continue;
      std::vector<int> some = order;
      std::erase(some, trial % n_required);
      EXPECT_FALSE(matcher_->Allows(grammar, ObjectOf(some))) << ObjectOf(some);
      order.push_back(trial % n_required);
      EXPECT_FALSE(matcher_->Allows(grammar, ObjectOf(order))) << ObjectOf(order);
    }
  }
  // What may leave nothing out keeps their order.
  Expect(SchemaOf(12, 0, true), {"{}", R"({"p0":1,"p11":2})", R"({"p3":1})"},
         {R"({"p11":1,"p0":2})", R"({"p3":1,"p3":1})"});
}

TEST_F(GrammarTest, OtherPropertiesHaveOtherNames) {
  constexpr std::string_view kSchema = R"({"type":"object",
      "properties":{"ab":{"type":"integer"},"a":{"type":"integer"},"é\"":{"type":"integer"}},
      "additionalProperties":{"type":"string"}})";
  Expect(kSchema,
         {R"({"x":"y"})", R"({"abc":"y"})", R"({"":"y"})", R"({"ab":1,"a":2,"b":"y","c":"z"})",
          R"({"é":"x"})", R"({"é\"":1,"a\nb":"x"})"},
         {R"({"a":"y"})", R"({"ab":"y"})", R"({"\u0061":"y"})", R"({"é\"":"y"})",
          R"({"ab":1,"ab":"y"})", R"({"x":1})", R"({"\u00e9\"":"y"})"});
  Expect(kSchema, {R"({"x":"y","a":1})", R"({"x":"y","a":1,"z":"y","ab":2})"},
         {R"({"a":1,"x":"y","a":1})"});
}

TEST_F(GrammarTest, RequiredNamesNeedNoDescription) {
  Expect(R"({"type":"object","required":["z"]})", {R"({"z":1})", R"({"z":1,"a":2})"},
         {"{}", R"({"a":2})"});
  Expect(R"({"type":"object","properties":{"a":{}},"minProperties":1})",
         {R"({"a":1})", R"({"b":1})"}, {"{}"});
  Expect(R"({"type":"object","properties":{"a":{},"b":{}},"required":["b"],"maxProperties":1})",
         {R"({"b":1})"}, {R"({"a":1,"b":2})", R"({"b":1,"c":2})"});
}

TEST_F(GrammarTest, NestedStrictObjectsAsOpenAiWritesThem) {
  constexpr std::string_view kSchema = R"({"$schema":"draft 2020-12",
    "title":"t","description":"d","type":"object","additionalProperties":false,
    "properties":{"steps":{"type":"array","items":{"$ref":"#/$defs/step"}},
                  "unit":{"type":["string","null"],"enum":["c","f",null]}},
    "required":["steps","unit"],
    "$defs":{"step":{"type":"object","properties":{"n":{"type":"number"},
      "next":{"anyOf":[{"$ref":"#/$defs/step"},{"type":"null"}]}},
      "required":["n","next"],"additionalProperties":false}}})";
  Expect(kSchema,
         {R"({"steps":[],"unit":null})",
          R"({"steps":[{"n":1.5,"next":{"n":2,"next":null}}],"unit":"c"})"},
         {R"({"steps":[{"n":1,"next":{}}],"unit":"c"})", R"({"steps":[],"unit":"k"})",
          R"({"steps":[{"n":1}],"unit":"c"})"});
}

TEST_F(GrammarTest, FixedValuesMustFitWhatStandsBesideThem) {
  Expect(R"({"type":"integer","enum":[1,"a",2.5,30],"maximum":10})", {"1"}, {"30", "2.5", "\"a\""});
  Expect(R"({"const":{"a":[1,"x\"é"],"b":{}}})",
         {R"({"a":[1,"x\"é"],"b":{}})", R"({"a": [1, "x\"é"], "b": {}})"}, {R"({"a":[1]})", "{}"});
  Expect(R"({"enum":[[1],["a"]],"items":{"type":"string"}})", {R"(["a"])"}, {"[1]"});
}

TEST_F(GrammarTest, IntegersKeepTheirBounds) {
  Expect(R"({"type":"integer"})", {"0", "-12", "9007199254740993"}, {"1.5", "01", "1e3", "-"});
  Expect(R"({"type":"integer","minimum":0})", {"0", "7", "120"}, {"-1", "007"});
  Expect(R"({"type":"integer","minimum":-3,"maximum":120})", {"-3", "0", "9", "99", "120"},
         {"-4", "-30", "121", "200", "1200"});
  Expect(R"({"type":"integer","exclusiveMinimum":9,"exclusiveMaximum":101})", {"10", "99", "100"},
         {"9", "101", "8", "1000"});
  Expect(R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4"});
  Expect(R"({"type":"integer","maximum":-5})", {"-5", "-60"}, {"-4", "0", "5"});
  Expect(R"({"type":"integer","minimum":9007199254740993})", {"9007199254740993"},
         {"9007199254740992"});
}

// Every integer in and around the bounds, for all pairs of bounds that differ in some way.
TEST_F(GrammarTest, IntegersOfAllBoundsAreExact) {
  for (const int low : {-120, -100, -99, -10, -1, 0, 1, 9, 10, 95}) {
    for (const int high : {-99, -10, -2, 0, 1, 10, 99, 100, 109, 123}) {
      if (low > high) continue;
      GrammarRules rules;
      const std::string schema = R"({"type":"integer","minimum":)" + std::to_string(low) +
                                 R"(,"maximum":)" + std::to_string(high) + "}";
      ASSERT_TRUE(rules.AddSchema(schema, "root"));
      const std::string grammar = rules.Text();
      for (int n = -130; n <= 130; n += n % 5 == 0 ? 1 : 2) {
        EXPECT_EQ(matcher_->Allows(grammar, std::to_string(n)), n >= low && n <= high)
            << n << " of " << schema;
      }
    }
  }
}

TEST_F(GrammarTest, NumbersKeepTheirBounds) {
  Expect(R"({"type":"number","minimum":0,"maximum":2})", {"0", "0.0", "1.999", "2", "2.00"},
         {"2.001", "-0.1", "3", "20"});
  Expect(R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
         {"0.5", "0.001", "0.999"}, {"0", "0.0", "1", "1.0", "-0.5"});
  Expect(R"({"type":"number","minimum":-1.25,"maximum":12.5})",
         {"-1.25", "-1", "-1.2", "0", "12.5", "12.49", "12.500", "9.99"},
         {"-1.26", "-2", "12.51", "13", "120"});
  Expect(R"({"type":"number","exclusiveMinimum":1.1})", {"1.11", "1.2", "1.1001", "2", "100"},
         {"1.1", "1.10", "1", "0.9", "1.09", "-2"});
  Expect(R"({"minimum":3,"exclusiveMinimum":true})", {"3.1", "\"x\""}, {"3", "3.0"});
}

TEST_F(GrammarTest, StringsKeepTheirLength) {
  Expect(R"({"type":"string","minLength":2,"maxLength":3})",
         {R"("ab")", R"("abc")", R"("éé")", R"("\n\u0041\"")", R"("\ud83d\ude00a")"},
         {R"("a")", R"("abcd")", R"("é")", R"("\ud83d\ude00")"});
  const auto quoted = [](size_t n) { return "\"" + std::string(n, 'a') + "\""; };
  Expect(R"({"type":"string","minLength":90,"maxLength":5000})",
         {quoted(90), quoted(91), quoted(4969), quoted(4970), quoted(4999), quoted(5000)},
         {quoted(89), quoted(5001), quoted(5070)});
  Expect(R"({"type":"string","maxLength":100})",
         {quoted(0), quoted(9), quoted(10), quoted(90), quoted(99), quoted(100)},
         {quoted(101), quoted(110)});
  Expect(R"({"type":"string","minLength":1000})", {quoted(1000), quoted(1234)}, {quoted(999)});
}

TEST_F(GrammarTest, PatternsAreSearchedUnlessTheyAreAnchored) {
  Expect(R"({"type":"string","pattern":"b+c"})", {R"("bc")", R"("abbcd")"}, {R"("ac")", R"("b")"});
  Expect(R"({"type":"string","pattern":"^a|z$"})", {R"("ab")", R"("yz")"}, {R"("ba")", R"("zy")"});
  Expect(R"({"type":"string","pattern":"^[^a-c\"]{2}\\d?(?:x|yy)*$"})",
         {R"("de")", R"("de7xyyx")", R"("\n\\")", R"("éé")"},
         {R"("ad")", R"("de77")", R"("dey")", R"("\"d")", "\"\n\n\""});
  Expect(R"({"type":"string","pattern":"^\\+?[1-9]\\d{1,14}$","maxLength":16})",
         {R"("12")", R"("+1234")"}, {R"("1")", R"("01")", R"("1234567890123456")"});
  Expect(R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":4})",
         {R"("ab")", R"("abcd")"}, {R"("a")", R"("abcde")", R"("AB")"});
  Expect(R"({"type":"string","pattern":"^\\w+\\s\\.$"})", {R"("a_1 .")", R"("a\t.")"},
         {R"("a..")", R"("é .")"});
}

TEST_F(GrammarTest, FormatsAreWritten) {
  Expect(R"({"type":"string","format":"date"})", {R"("2024-02-29")", R"("2023-12-31")"},
         {R"("2023-02-29")", R"("1900-02-29")", R"("2023-04-31")", R"("2023-13-01")",
          R"("23-01-01")"});
  Expect(R"({"type":"string","format":"date-time"})",
         {R"("2024-01-31T23:59:59Z")", R"("2024-01-31T00:00:00.5+02:00")"},
         {R"("2024-01-31 23:59:59Z")", R"("2024-01-31T24:00:00Z")", R"("2024-01-31T23:59:59")"});
  Expect(R"({"type":"string","format":"uuid"})", {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567e89b12d3a456426614174000")"});
  Expect(R"({"type":"string","format":"int32"})", {R"("anything")"}, {"1"});
}

TEST_F(GrammarTest, ArraysKeepItemsAndCounts) {
  Expect(R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
         {"[1]", "[1,2]", "[1, 2, 3]", "[\n  1\n]"}, {"[]", "[1,2,3,4]", "[\"a\"]", "[1 2]"});
  Expect(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false})",
         {"[]", "[1]", R"([1,"a"])"}, {R"(["a"])", R"([1,"a",2])"});
  Expect(R"({"type":"array","prefixItems":[{"type":"integer"}],"items":{"type":"null"},
             "minItems":2,"maxItems":3})",
         {"[1,null]", "[1,null,null]"}, {"[1]", "[1,1]", "[1,null,null,null]"});
  Expect(R"({"type":"array","maxItems":0})", {"[]", "[ ]"}, {"[1]"});
}

TEST_F(GrammarTest, CombinedSchemasAreMerged) {
  Expect(R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},
                      {"properties":{"a":{"minimum":5},"b":{"type":"null"}}}]})",
         {R"({"a":5})", R"({"a":6,"b":null})"}, {R"({"a":4})", R"({"a":5,"b":1})", "{}"});
  Expect(R"({"anyOf":[{"type":"string","maxLength":1},{"type":"integer"}],"minimum":3})",
         {"\"a\"", "3"}, {"2", "\"ab\"", "null"});
  Expect(R"({"type":"string","nullable":true})", {"null", "\"a\""}, {"1"});
  Expect(R"({"$ref":"#/$defs/a~1b%25","maxLength":1,"$defs":{"a/b%":{"type":"string"}}})",
         {"\"a\""}, {"\"ab\"", "1"});
}

TEST_F(GrammarTest, OneOfIsAnyOfWhereNoValueFitsTwo) {
  Expect(R"({"type":"object","required":["k"],"oneOf":[
           {"properties":{"next":{"$ref":"#"},"k":{"const":"a"}},"required":["next"]},
           {"properties":{"k":{"enum":["b","c"]}}}]})",
         {R"({"k":"b"})", R"({"next":{"k":"c"},"k":"a"})"}, {R"({"k":"a"})", R"({"k":"d"})"});
  Expect(R"({"oneOf":[{"type":"integer"},{"type":"string"},{"type":"null"}]})",
         {"1", "\"a\"", "null"}, {"1.5", "[]"});
  Expect(R"({"additionalProperties":false,"type":"object","oneOf":[
           {"properties":{"a":{}},"required":["a"],"additionalProperties":false},
           {"properties":{"b":{}},"required":["b"],"additionalProperties":false}],
           "properties":{"a":{},"b":{}}})",
         {R"({"a":1})", R"({"b":1})"}, {R"({"a":1,"b":1})", "{}"});
}

// What a branch alone would allow, but never ends, is left out.
TEST_F(GrammarTest, EndlessBranchesAreLeftOut) {
  Expect(R"({"type":"object","properties":{"a":{"$ref":"#/$defs/a"},"b":{"type":"null"}},
           "$defs":{"a":{"type":"object","required":["x"],"properties":{"x":{"$ref":"#/$defs/a"}}}}})",
         {"{}", R"({"b":null})"}, {R"({"a":{}})"});
}

TEST_F(GrammarTest, RulesFromSeveralSchemasStandBesideEachOther) {
  GrammarRules rules;
  const auto a = rules.AddSchema(R"({"type":"integer","maximum":5})", "tool");
  const auto b = rules.AddSchema(R"({"type":"array","items":{"type":"null"}})", "tool");
  ASSERT_TRUE(a && b);
  EXPECT_NE(*a, *b);
  const std::string body =
      GrammarRules::Literal("<a>\"\\\n") + " " + *a + " | " + *b + " | " + rules.AddAnyObject();
  EXPECT_EQ(rules.AddRule("root", body), "root");
  const std::string grammar = rules.Text();
  EXPECT_TRUE(matcher_->Allows(grammar, "<a>\"\\\n4"));
  EXPECT_TRUE(matcher_->Allows(grammar, "[null]"));
  EXPECT_TRUE(matcher_->Allows(grammar, "{\"a\":[]}"));
  EXPECT_FALSE(matcher_->Allows(grammar, "<a>\"\\\n6"));
}

}  // namespace
}  // namespace moestro
