// SPDX-License-Identifier: MIT
// What the grammars of single styles of calls let through, asked of libllama's grammar sampler, and
// that what they let through is read as it was meant.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "chat/answer_grammar.h"
#include "chat/answer_parser.h"
#include "tests/serve/grammar_matcher_testing.h"

namespace moestro {
namespace {

// A style, and the grammar of a call that is demanded.
struct Held {
  AnswerStyle style;
  AnswerGrammar grammar;
};

class CallStyleTest : public testing::Test {
 protected:
  using Call = std::pair<std::string, std::string>;

  static void SetUpTestSuite() { matcher_.emplace(); }
  static void TearDownTestSuite() { matcher_.reset(); }

  static std::vector<Tool> LookAndStop() {
    return {{.name = "look",
             .description = "",
             .parameters = R"({"type":"object","properties":{"place":{"type":"string"},
                           "days":{"type":"integer"}},"required":["place"],
                           "additionalProperties":false})"},
            {.name = "stop", .description = "", .parameters = ""}};
  }
  static Held Demanded(const CallStyle& calls, const std::vector<Tool>& tools = LookAndStop()) {
    ChatInput input;
    input.tools = tools;
    input.tool_use = ToolUse::kRequired;
    Held held;
    held.style.calls = calls;
    for (const Tool& tool : tools) held.style.tools.push_back(ShapeOfTool(tool));
    const auto grammar = MakeAnswerGrammar(held.style, input, {}, /*may_think=*/false, {});
    EXPECT_TRUE(grammar) << grammar.error().message;
    if (grammar) held.grammar = *grammar;
    return held;
  }
  static bool Allows(const Held& held, std::string_view text) {
    return matcher_->Allows(held.grammar.text, text);
  }
  static std::vector<Call> Calls(const Held& held, std::string_view text) {
    std::vector<Call> calls;
    AnswerParser parser(held.style, 1);
    auto deltas = parser.Push(text);
    for (ChatDelta& delta : parser.Finish()) deltas.push_back(std::move(delta));
    for (const ChatDelta& delta : deltas) {
      if (delta.kind == ChatDelta::Kind::kCallBegin) calls.emplace_back(delta.name, "");
      if (delta.kind == ChatDelta::Kind::kCallArguments) calls.back().second += delta.text;
    }
    return calls;
  }
  static void ExpectWritesAndReads(const CallStyle& calls, std::string_view text) {
    const Held held = Demanded(calls);
    EXPECT_TRUE(Allows(held, text)) << held.grammar.text;
    EXPECT_FALSE(Allows(held, text.substr(1)));
    EXPECT_EQ(Calls(held, text),
              (std::vector<Call>{{"look", R"({"place": "Rome", "days": 2})"}, {"stop", "{}"}}));
  }

  static inline std::optional<GrammarMatcher> matcher_;
};

// Calls of look and stop as models write them whose templates are told from these words.
TEST_F(CallStyleTest, StylesOfPublishedTemplatesAreHeldAndRead) {
  const std::string ns = "]<]minimax[>[";
  const std::string arguments = R"({"place": "Rome", "days": 2})";
  const std::string dsml =
      "<｜DSML｜invoke name=\"look\">\n<｜DSML｜parameter name=\"place\" string=\"true\">Rome"
      "</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
      "string=\"false\">2</｜DSML｜parameter>\n"
      "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"stop\">\n</｜DSML｜invoke>\n";
  const std::vector<std::pair<std::string, std::string>> styles = {
      {"<|tool_calls_section_begin|>",
       "<|tool_calls_section_begin|><|tool_call_begin|>functions.look:0<|tool_call_argument_begin|"
       ">" +
           arguments +
           "<|tool_call_end|><|tool_call_begin|>functions.stop:1<|tool_call_argument_begin|>{}"
           "<|tool_call_end|><|tool_calls_section_end|>"},
      {"'｜DSML｜' 'function_calls>'",
       "<｜DSML｜function_calls>\n" + dsml + "</｜DSML｜function_calls>"},
      {"'｜DSML｜' 'tool_calls>'", "<｜DSML｜tool_calls>\n" + dsml + "</｜DSML｜tool_calls>"},
      {"<|open|><|close|>",
       "<|open|>tools<|sep|><|open|>call tool=\"look\" index=\"0\"<|sep|><|open|>argument "
       "key=\"place\" type=\"string\"<|sep|>Rome<|close|>argument<|sep|><|open|>argument "
       "key=\"days\" "
       "type=\"integer\"<|sep|>2<|close|>argument<|sep|><|close|>call<|sep|><|open|>call "
       "tool=\"stop\" index=\"1\"<|sep|><|close|>call<|sep|><|close|>tools<|sep|>"},
      {"']<]minimax[>[' '<invoke name=\"'",
       ns + "<tool_call>\n" + ns + "<invoke name=\"look\">" + ns + "<place>Rome" + ns + "</place>" +
           ns + "<days>2" + ns + "</days>" + ns + "</invoke>\n" + ns + "<invoke name=\"stop\">" +
           ns + "</invoke>\n" + ns + "</tool_call>"},
      {"List of tools: [",
       "<|tool_call_start|>[look(place=\"Rome\", days=2), stop()]<|tool_call_end|>"},
      {"<|START_ACTION|>[{\"tool_name\"",
       "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"look\", "
       "\"parameters\": " +
           arguments +
           "},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"stop\", \"parameters\": "
           "{}}\n]<|END_ACTION|>"},
      {"<|tool_call:begin|><|tool_call:name|>",
       "<|tool_calls|><|tool_call:begin|>a1<|tool_call:name|>look<|tool_call:args|>" + arguments +
           "<|tool_call:end|><|tool_call:begin|>a2<|tool_call:name|>stop<|tool_call:args|>{}"
           "<|tool_call:end|><|calls|>"},
      {"':opensource' '<tool_calls{}>'.format",
       "<tool_calls:opensource>\n<tool_call:opensource>look<tool_sep:opensource>\n"
       "<arg_key:opensource>place</arg_key:opensource>\n<arg_value:opensource>Rome"
       "</arg_value:opensource>\n<arg_key:opensource>days</arg_key:opensource>\n"
       "<arg_value:opensource>2</arg_value:opensource>\n</tool_call:opensource>\n"
       "<tool_call:opensource>stop<tool_sep:opensource>\n</tool_call:opensource>\n"
       "</tool_calls:opensource>"},
      {"<|tool_call|>", "<|tool_call|>[{\"name\": \"look\", \"arguments\": " + arguments +
                            "}, {\"name\": \"stop\", \"arguments\": {}}]"},
  };
  for (const auto& [words, text] : styles) {
    const auto style = FindCallStyle(words);
    ASSERT_TRUE(style) << words;
    ExpectWritesAndReads(*style, text);
  }
}

std::string LeftOut(const Held& held) {
  std::string all;
  for (const std::string& what : held.grammar.left_out) all += (all.empty() ? "" : "; ") + what;
  return all;
}

// What of tools is not held is named, behind the tool's name.
TEST_F(CallStyleTest, WhatIsLeftOutOfToolsIsNamed) {
  const CallStyle json = *FindCallStyle("<tool_call>");
  const CallStyle tags = *FindCallStyle("<function=<parameter=");
  const CallStyle marked = *FindCallStyle("<|tool_call>call:");
  const auto of = [](const CallStyle& style, const std::string& schema) {
    return LeftOut(Demanded(style, {{.name = "f", .description = "", .parameters = schema}}));
  };
  const auto with = [](const std::string& property) {
    return R"({"type":"object","properties":{"a":)" + property + "}}";
  };
  const std::string properties = "properties";
  const auto at = [&](const std::string& what) { return "f #/" + properties + "/a: " + what; };
  EXPECT_EQ(of(json, with(R"({"type":"string","pattern":"^a+$","maxLength":3})")), "");
  EXPECT_EQ(of(json, with(R"({"multipleOf":2})")), at("\"multipleOf\""));
  EXPECT_EQ(of(json, R"({"type":"object","patternProperties":{"^a":{}}})"),
            R"(f #: all of it (#: a grammar cannot say "patternProperties"))");
  EXPECT_EQ(of(tags, with(R"({"type":"string","pattern":"^a+$","maxLength":3})")),
            at("\"maxLength\"") + "; " + at("\"pattern\""));
  EXPECT_EQ(of(tags, with(R"({"type":"string","enum":["a","b"],"maxLength":3})")), "");
  EXPECT_EQ(of(tags, R"({"type":"object","properties":{},"required":["z"]})"),
            R"(f #: "required" of "z", which it does not describe)");
  EXPECT_EQ(of(tags, R"({"type":"object","anyOf":[{}]})"),
            R"(f #: all of it (it has no "properties"))");
  EXPECT_EQ(of(marked, with(R"({"type":"array","items":{"type":"integer"}})")),
            at("what lies in its objects and arrays"));
  EXPECT_EQ(of(marked, with(R"({"type":"string","format":"date"})")), at("\"format\": \"date\""));
}

TEST_F(CallStyleTest, AStrictSchemaThatCannotBeHeldIsRefused) {
  AnswerStyle style;
  style.calls = *FindCallStyle("<tool_call>");
  ChatInput input;
  const auto refused = [&](const OutputForm& form) {
    const auto grammar = MakeAnswerGrammar(style, input, form, /*may_think=*/false, {});
    return grammar ? "" : grammar.error().message;
  };
  OutputForm form{.kind = OutputForm::Kind::kJsonSchema,
                  .definition = R"({"type":"object","properties":{"a":{"multipleOf":2}}})"};
  EXPECT_EQ(refused(form), "");
  form.is_strict = true;
  EXPECT_EQ(refused(form),
            "#/" + std::string("properties") + R"(/a: a grammar cannot say "multipleOf")");
  input.tools = {{.name = "f", .description = "", .parameters = form.definition}};
  input.tool_use = ToolUse::kRequired;
  EXPECT_EQ(refused({}), "");
  input.tools[0].is_strict = true;
  EXPECT_TRUE(refused({}).starts_with("tool f is strict")) << refused({});
}

// As libraries write parameters that may be left out, and types that stand elsewhere.
TEST_F(CallStyleTest, ValuesThatMayBeTextAreReadByTheirKinds) {
  const std::vector<Tool> tools = {
      {.name = "f", .description = "", .parameters = R"({"type":"object","properties":{
           "text":{"anyOf":[{"type":"string"},{"type":"null"}]},
           "either":{"type":["string","integer"]},"free":{},
           "size":{"$ref":"#/$defs/size"},"of":{"type":"array"}},
           "$defs":{"size":{"type":"string","enum":["5","big"]}}})"}};
  const auto body = [](std::string_view key, std::string_view value) {
    return "<tool_call>\n<function=f>\n<parameter=" + std::string(key) + ">\n" +
           std::string(value) + "\n</parameter>\n</function>\n</tool_call>";
  };
  const Held held = Demanded(*FindCallStyle("<function=<parameter="), tools);
  for (const auto& [key, value, read] :
       std::vector<std::tuple<std::string, std::string, std::string>>{
           {"text", "5", R"("5")"},
           {"text", "null", "null"},
           {"text", "a b", R"("a b")"},
           {"text", "[1]", R"("[1]")"},
           {"either", "5", "5"},
           {"either", "true", R"("true")"},
           {"free", "5", "5"},
           {"free", "a", R"("a")"},
           {"size", "5", R"("5")"},
           {"of", "[1, 2]", "[1, 2]"}}) {
    const std::string text = body(key, value);
    EXPECT_TRUE(Allows(held, text)) << text;
    EXPECT_EQ(Calls(held, text), (std::vector<Call>{{"f", "{\"" + key + "\": " + read + "}"}}))
        << text;
  }
  EXPECT_FALSE(Allows(held, body("size", "6")));
  EXPECT_FALSE(Allows(held, body("of", "a")));
}

// With "days" before "place", without "place", with "days" twice.
TEST_F(CallStyleTest, ArgumentsComeInAnyOrderEachOnce) {
  struct Spelled {
    std::string words;
    std::string begin;
    std::string place;
    std::string days;
    std::string between;
    std::string end;
  };
  const std::string ns = "]<]minimax[>[";
  const std::vector<Spelled> styles = {
      {"<tool_call>", "<tool_call>\n{\"name\": \"look\", \"arguments\": {", "\"place\": \"Rome\"",
       "\"days\": 2", ", ", "}}\n</tool_call>"},
      {"<function=<parameter=", "<tool_call>\n<function=look>\n",
       "<parameter=place>\nRome\n</parameter>\n", "<parameter=days>\n2\n</parameter>\n", "",
       "</function>\n</tool_call>"},
      {"<arg_key><arg_value>", "<tool_call>look\n",
       "<arg_key>place</arg_key>\n<arg_value>Rome</arg_value>\n",
       "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n", "", "</tool_call>"},
      {"<|tool_call>call:", "<|tool_call>call:look{", "place:<|\"|>Rome<|\"|>", "days:2", ",",
       "}<tool_call|>"},
      {"List of tools: [", "<|tool_call_start|>[look(", "place=\"Rome\"", "days=2", ", ",
       ")]<|tool_call_end|>"},
      {"']<]minimax[>[' '<invoke name=\"'", ns + "<tool_call>\n" + ns + "<invoke name=\"look\">",
       ns + "<place>Rome" + ns + "</place>", ns + "<days>2" + ns + "</days>", "",
       ns + "</invoke>\n" + ns + "</tool_call>"},
  };
  for (const Spelled& s : styles) {
    const auto style = FindCallStyle(s.words);
    ASSERT_TRUE(style) << s.words;
    const Held held = Demanded(*style);
    const std::string turned = s.begin + s.days + s.between + s.place + s.end;
    EXPECT_TRUE(Allows(held, turned)) << turned;
    const auto calls = Calls(held, turned);
    ASSERT_EQ(calls.size(), 1U) << turned;
    EXPECT_TRUE(calls[0].second.contains("Rome") && calls[0].second.contains("days")) << turned;
    EXPECT_FALSE(Allows(held, s.begin + s.days + s.end)) << turned;
    const std::string twice = s.days + s.between + s.days + s.between + s.place;
    EXPECT_FALSE(Allows(held, s.begin + twice + s.end)) << turned;
  }
}

TEST_F(CallStyleTest, ANameAndAnObjectBetweenMarks) {
  ExpectWritesAndReads({.shape = CallShape::kObject,
                        .begin = "<<",
                        .end = ">>",
                        .call_begin = "call ",
                        .name_end = " with "},
                       "<<call look with {\"place\": \"Rome\", \"days\": 2}>>\n"
                       "<<call stop with {}>>");
}

TEST_F(CallStyleTest, TagsWithinTags) {
  ExpectWritesAndReads(
      {.shape = CallShape::kTags,
       .begin = "<calls>",
       .end = "</calls>",
       .is_around_all = true,
       .call_begin = "<invoke name=\"",
       .name_end = "\">",
       .call_end = "</invoke>",
       .key_begin = "<argument name=\"",
       .key_end = "\">",
       .value_end = "</argument>",
       .before_value_end = "\n"},
      "<calls><invoke name=\"look\">\n<argument name=\"place\">\nRome\n</argument>\n"
      "<argument name=\"days\">\n2\n</argument>\n</invoke>\n"
      "<invoke name=\"stop\">\n</invoke></calls>");
}

TEST_F(CallStyleTest, AnEnvelopeInAnotherList) {
  ExpectWritesAndReads(
      {.shape = CallShape::kEnvelope,
       .begin = "CALLS:",
       .end = "END",
       .is_around_all = true,
       .list_begin = "(",
       .list_end = ")",
       .separator = ";",
       .between = R"(";" " "?)",
       .arguments_key = "arguments"},
      "CALLS: ({\"name\": \"look\", \"arguments\": {\"place\": \"Rome\", \"days\": 2}}; "
      "{\"name\": \"stop\", \"arguments\": {}})END");
}

}  // namespace
}  // namespace moestro
