// SPDX-License-Identifier: MIT
// What the grammars of answers let through, asked of libllama's grammar sampler, and that what they
// let through is read as it was meant.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/chat_format.h"
#include "chat/templates_testing.h"
#include "tests/serve/grammar_matcher_testing.h"

namespace moestro {
namespace {

ChatInput Ask() {
  ChatInput input;
  ChatTurn turn;
  turn.role = "user";
  turn.content = "Hi";
  input.turns.push_back(turn);
  input.tools.push_back({.name = "look",
                         .description = "",
                         .parameters = R"({"type":"object","properties":{"place":{"type":"string"},
                                        "days":{"type":"integer"}},"required":["place"],
                                        "additionalProperties":false})"});
  input.tools.push_back({.name = "stop", .description = "", .parameters = ""});
  return input;
}

class AnswerGrammarTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { matcher_.emplace(); }
  static void TearDownTestSuite() { matcher_.reset(); }

  static RenderedChat Render(std::string_view text, const ChatInput& input,
                             const OutputForm& form = {}) {
    const auto chat =
        ChatFormat::Make(
            {.template_text = std::string(text), .bos = "", .eos = "", .has_chatml_marks = true})
            .Render(input, form);
    EXPECT_TRUE(chat) << chat.error().message;
    return chat.value_or(RenderedChat{});
  }
  static bool Allows(const RenderedChat& chat, std::string_view text) {
    return matcher_->Allows(chat.grammar, text);
  }
  static std::vector<std::pair<std::string, std::string>> Calls(const RenderedChat& chat,
                                                                std::string_view text) {
    std::vector<std::pair<std::string, std::string>> calls;
    AnswerParser parser(chat.style, 1);
    auto deltas = parser.Push(text);
    for (ChatDelta& delta : parser.Finish()) deltas.push_back(std::move(delta));
    for (const ChatDelta& delta : deltas) {
      if (delta.kind == ChatDelta::Kind::kCallBegin) calls.emplace_back(delta.name, "");
      if (delta.kind == ChatDelta::Kind::kCallArguments) calls.back().second += delta.text;
    }
    return calls;
  }

  static inline std::optional<GrammarMatcher> matcher_;
};

std::string FamilyTemplate(std::string_view family) {
  std::ifstream file(std::string(MOESTRO_SOURCE_DIR "/tests/chat/templates/") +
                     std::string(family) + ".jinja");
  EXPECT_TRUE(file) << family;
  return {std::istreambuf_iterator<char>(file), {}};
}

struct Written {
  std::string chat_template;
  std::string look;    // one call of look with {"place": "Rome", "days": 2}
  std::string both;    // and one of stop
  std::string broken;  // a call that the schema refuses
};

std::vector<Written> SmallFormats() {
  const std::string fence = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>";
  return {
      {std::string(kTaggedTemplate),
       "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"place\": \"Rome\", \"days\": "
       "2}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"place\": \"Rome\", \"days\": "
       "2}}\n</tool_call>"
       "\n<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>",
       "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"place\": 1}}\n</tool_call>"},
      {std::string(kListTemplate),
       "[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {\"place\": \"Rome\", \"days\": 2}}]",
       "[TOOL_CALLS][{\"name\": \"look\", \"arguments\": {\"place\": \"Rome\", \"days\": 2}}, "
       "{\"name\": \"stop\", \"arguments\": {}}]",
       "[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {}}]"},
      {std::string(kBareTemplate),
       "{\"name\": \"look\", \"parameters\": {\"place\": \"Rome\", \"days\": 2}}",
       "<|python_tag|>{\"name\": \"look\", \"parameters\": {\"place\": \"Rome\", \"days\": 2}}; "
       "{\"name\": \"stop\", \"parameters\": {}}",
       "{\"name\": \"peek\", \"parameters\": {}}"},
      {std::string(kParameterTemplate),
       "<tool_call>\n<function=look>\n<parameter=place>\nRome\n</parameter>\n<parameter=days>\n2\n"
       "</parameter>\n</function>\n</tool_call>",
       "<tool_call>\n<function=look>\n<parameter=place>\nRome\n</parameter>\n<parameter=days>\n2\n"
       "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</function>\n"
       "</tool_call>",
       "<tool_call>\n<function=look>\n<parameter=place>\nRome\n</"
       "parameter>\n<parameter=days>\ntwo\n"
       "</parameter>\n</function>\n</tool_call>"},
      {std::string(kKeyValueTemplate),
       "<tool_call>look\n<arg_key>place</arg_key>\n<arg_value>Rome</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
       "<tool_call>look\n<arg_key>place</arg_key>\n<arg_value>Rome</arg_value>\n"
       "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>\n<tool_call>stop\n</"
       "tool_call>",
       "<tool_call>look\n</tool_call>"},
      {std::string(kFencedTemplate),
       "<｜tool▁calls▁begin｜>" + fence +
           "look\n```json\n{\"place\": \"Rome\", \"days\": "
           "2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜>" + fence +
           "look\n```json\n{\"place\": \"Rome\", \"days\": 2}\n```<｜tool▁call▁end｜>\n" + fence +
           "stop\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>"},
      {std::string(kMarkedTemplate),
       "<|tool_call>call:look{place:<|\"|>Rome<|\"|>,days:2}<tool_call|>",
       "<|tool_call>call:look{place:<|\"|>Rome<|\"|>,days:2}<tool_call|>"
       "<|tool_call>call:stop{}<tool_call|>",
       "<|tool_call>call:look{days:2}<tool_call|>"},
  };
}

// Of whole families, as tests/chat/templates has them.
std::vector<Written> FamilyFormats() {
  const std::string look =
      "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"place\": \"Rome\", \"days\": "
      "2}}\n</tool_call>";
  const std::string stop = "\n<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>";
  const std::string broken = "<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>";
  const std::string keys =
      "<tool_call>look\n<arg_key>place</arg_key>\n<arg_value>Rome</arg_value>\n"
      "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>";
  const std::string joined =
      "<tool_call>look<arg_key>place</arg_key><arg_value>Rome</arg_value>"
      "<arg_key>days</arg_key><arg_value>2</arg_value></tool_call>";
  const std::string invoke =
      "<invoke name=\"look\">\n<parameter name=\"place\">Rome</parameter>\n"
      "<parameter name=\"days\">2</parameter>\n</invoke>\n";
  const std::string invokes = "<minimax:tool_call>\n";
  const std::string invoked = "</minimax:tool_call>";
  const std::string entry =
      "{\"name\": \"look\", \"arguments\": {\"place\": \"Rome\", \"days\": 2}}";
  return {
      {FamilyTemplate("ernie4_5_moe"), look, look + stop, broken},
      {FamilyTemplate("bailingmoe2"), look, look + stop, broken},
      {FamilyTemplate("exaone_moe"), look, look + stop, broken},
      {FamilyTemplate("glm4_moe"), keys, keys + "\n<tool_call>stop\n</tool_call>",
       "<tool_call>look\n</tool_call>"},
      {FamilyTemplate("glm4_7"), joined, joined + "<tool_call>stop</tool_call>",
       "<tool_call>look</tool_call>"},
      {FamilyTemplate("minimax_m2"), invokes + invoke + invoked,
       invokes + invoke + "<invoke name=\"stop\">\n</invoke>\n" + invoked,
       invokes + "<invoke name=\"look\">\n</invoke>\n" + invoked},
      {FamilyTemplate("hunyuan_moe"), "<tool_calls>[" + entry + "]</tool_calls>",
       "<tool_calls>[" + entry + ", {\"name\": \"stop\", \"arguments\": {}}]</tool_calls>",
       "<tool_calls>[{\"name\": \"look\", \"arguments\": {}}]</tool_calls>"},
  };
}

std::vector<Written> AllFormats() {
  std::vector<Written> all = SmallFormats();
  for (Written& written : FamilyFormats()) all.push_back(std::move(written));
  return all;
}

// Some prompts have opened the thoughts.
std::string Before(const RenderedChat& chat) {
  return chat.style.begins_in_reasoning ? "Hm.\n</think>\n\n" : "";
}

TEST_F(AnswerGrammarTest, ARequiredCallIsAllThereMayBe) {
  for (const Written& written : AllFormats()) {
    ChatInput input = Ask();
    input.tool_use = ToolUse::kRequired;
    const RenderedChat chat = Render(written.chat_template, input);
    EXPECT_TRUE(chat.grammar_triggers.empty());
    EXPECT_TRUE(Allows(chat, Before(chat) + written.look)) << written.look;
    EXPECT_TRUE(Allows(chat, Before(chat) + written.both)) << written.both;
    EXPECT_FALSE(Allows(chat, Before(chat) + written.broken)) << written.broken;
    EXPECT_FALSE(Allows(chat, Before(chat))) << written.look;
    EXPECT_FALSE(Allows(chat, Before(chat) + "Hello"));
    const auto calls = Calls(chat, Before(chat) + written.both);
    ASSERT_EQ(calls.size(), 2U) << written.both;
    EXPECT_EQ(calls[0].first, "look");
    EXPECT_EQ(calls[0].second, R"({"place": "Rome", "days": 2})");
    EXPECT_EQ(calls[1].first, "stop");
    EXPECT_EQ(calls[1].second, "{}");
  }
}

TEST_F(AnswerGrammarTest, ToolsThatAreNotAllowedAreNotCalled) {
  for (const Written& written : AllFormats()) {
    ChatInput input = Ask();
    input.tool_use = ToolUse::kRequired;
    const std::string prompt = Render(written.chat_template, input).prompt;
    input.allowed_tools = {"look"};
    const RenderedChat chat = Render(written.chat_template, input);
    EXPECT_EQ(chat.prompt, prompt);
    EXPECT_TRUE(Allows(chat, Before(chat) + written.look)) << written.look;
    EXPECT_FALSE(Allows(chat, Before(chat) + written.both)) << written.both;
  }
}

TEST_F(AnswerGrammarTest, WithoutParallelCallsThereIsOne) {
  for (const Written& written : AllFormats()) {
    ChatInput input = Ask();
    input.tool_use = ToolUse::kRequired;
    input.parallel_calls = false;
    const RenderedChat chat = Render(written.chat_template, input);
    EXPECT_TRUE(Allows(chat, Before(chat) + written.look)) << written.look;
    EXPECT_FALSE(Allows(chat, Before(chat) + written.both)) << written.both;
  }
}

TEST_F(AnswerGrammarTest, ANamedToolIsTheOnlyOne) {
  for (const Written& written : AllFormats()) {
    ChatInput input = Ask();
    input.tool_use = ToolUse::kNamed;
    input.named_tool = "look";
    const RenderedChat chat = Render(written.chat_template, input);
    EXPECT_TRUE(Allows(chat, Before(chat) + written.look)) << written.look;
    EXPECT_FALSE(Allows(chat, Before(chat) + written.both)) << written.both;
  }
}

TEST_F(AnswerGrammarTest, ANamedToolIsCalledOnce) {
  ChatInput input = Ask();
  input.tool_use = ToolUse::kNamed;
  input.named_tool = "look";
  for (const Written& written : AllFormats()) {
    const RenderedChat chat = Render(written.chat_template, input);
    const size_t n_calls = Calls(chat, Before(chat) + written.look).size();
    EXPECT_EQ(n_calls, 1U) << written.look;
    for (const char* between : {"", "\n", ", "}) {
      const std::string twice = written.look + between + written.look;
      EXPECT_FALSE(Allows(chat, Before(chat) + twice)) << twice;
    }
  }
}

TEST_F(AnswerGrammarTest, WhenTheModelDecidesTheGrammarBeginsWithTheCall) {
  for (const Written& written : AllFormats()) {
    const RenderedChat chat = Render(written.chat_template, Ask());
    EXPECT_TRUE(Allows(chat, written.look)) << written.look;
    EXPECT_FALSE(Allows(chat, written.broken)) << written.broken;
    bool is_triggered = false;
    for (const std::string& trigger : chat.grammar_triggers) {
      is_triggered = is_triggered || written.look.starts_with(trigger);
    }
    EXPECT_TRUE(is_triggered) << written.look;
    EXPECT_TRUE(chat.style.calls_are_certain);
  }
}

TEST_F(AnswerGrammarTest, Channels) {
  ChatInput input = Ask();
  input.tool_use = ToolUse::kRequired;
  const RenderedChat chat = Render(kChannelTemplate, input);
  const std::string thoughts = "<|channel|>analysis<|message|>a <b> c<|end|><|start|>assistant";
  const std::string call =
      "<|channel|>commentary to=functions.look <|constrain|>json<|message|>{\"place\": \"Rome\"}";
  EXPECT_TRUE(Allows(chat, thoughts + call));
  EXPECT_TRUE(Allows(chat, call));
  EXPECT_FALSE(Allows(chat, thoughts + "<|channel|>final<|message|>Hi"));
  EXPECT_EQ(Calls(chat, thoughts + call).size(), 1U);
  const OutputForm form{.kind = OutputForm::Kind::kJsonObject, .definition = ""};
  input.tool_use = ToolUse::kNone;
  const RenderedChat object = Render(kChannelTemplate, input, form);
  EXPECT_TRUE(Allows(object, thoughts + "<|channel|>final<|message|>{\"a\": 1}"));
  EXPECT_FALSE(Allows(object, "{\"a\": 1}"));
}

TEST_F(AnswerGrammarTest, ARecipientMayStandBeforeTheChannel) {
  const std::string text = FamilyTemplate("gpt_oss");
  ChatInput input = Ask();
  input.tool_use = ToolUse::kRequired;
  RenderedChat chat = Render(text, input);
  const std::string thoughts = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const std::string call =
      " to=functions.look<|channel|>commentary json<|message|>{\"place\": \"Rome\"}";
  EXPECT_TRUE(Allows(chat, call));
  EXPECT_TRUE(Allows(chat, thoughts + call));
  EXPECT_FALSE(Allows(chat, " to=functions.peek<|channel|>commentary json<|message|>{}"));
  EXPECT_EQ(Calls(chat, thoughts + call).size(), 1U);
  input.tool_use = ToolUse::kAuto;
  chat = Render(text, input);
  const std::string begun = "<|start|>assistant" + call;
  EXPECT_TRUE(Allows(chat, begun));
  EXPECT_FALSE(Allows(chat, begun.substr(0, begun.size() - 1) + ", \"far\": 1}"));
  EXPECT_TRUE(begun.starts_with(chat.grammar_triggers.back())) << chat.grammar_triggers.back();
}

TEST_F(AnswerGrammarTest, AFormMayStandBetweenTheModelsMarks) {
  ChatInput input = Ask();
  input.tools.clear();
  const OutputForm form{.kind = OutputForm::Kind::kJsonObject, .definition = ""};
  const RenderedChat chat = Render(FamilyTemplate("ernie4_5_moe"), input, form);
  EXPECT_TRUE(Allows(chat, "Hm.\n</think>\n\n<response>\n{\"a\": 1}\n</response>"));
  EXPECT_TRUE(Allows(chat, "Hm.\n</think>\n\n{\"a\": 1}"));
  EXPECT_FALSE(Allows(chat, "Hm.\n</think>\n\n<response>\nHi"));
}

TEST_F(AnswerGrammarTest, FormsHoldTheContentBehindThoughts) {
  ChatInput input = Ask();
  input.tools.clear();
  const OutputForm schema{.kind = OutputForm::Kind::kJsonSchema,
                          .definition = R"({"type":"integer"})"};
  RenderedChat chat = Render(kTaggedTemplate, input, schema);
  EXPECT_TRUE(chat.grammar_triggers.empty());
  EXPECT_TRUE(Allows(chat, "12"));
  EXPECT_TRUE(Allows(chat, "<think>\n<</think <b></think>\n\n12"));
  EXPECT_FALSE(Allows(chat, "<think>\n12"));
  EXPECT_FALSE(Allows(chat, "\"a\""));
  input.template_arguments = R"({"opens_thoughts": true})";
  chat = Render(kTaggedTemplate, input, schema);
  EXPECT_TRUE(Allows(chat, "Hm.</think>12"));
  EXPECT_FALSE(Allows(chat, "12"));
  input.template_arguments = R"({"enable_thinking": false})";
  chat = Render(kTaggedTemplate, input, schema);
  EXPECT_FALSE(Allows(chat, "<think>a</think>12"));
  EXPECT_TRUE(Allows(chat, "12"));
}

TEST_F(AnswerGrammarTest, AFormLeavesRoomForCalls) {
  const OutputForm form{.kind = OutputForm::Kind::kJsonObject, .definition = ""};
  const RenderedChat chat = Render(kTaggedTemplate, Ask(), form);
  EXPECT_TRUE(chat.grammar_triggers.empty());
  EXPECT_TRUE(Allows(chat, "{\"a\": 1}"));
  EXPECT_TRUE(Allows(chat, AllFormats()[0].look));
  EXPECT_FALSE(Allows(chat, "Hi"));
}

TEST_F(AnswerGrammarTest, AClientsGrammarStandsBehindThoughts) {
  ChatInput input = Ask();
  input.tools.clear();
  const OutputForm form{
      .kind = OutputForm::Kind::kGrammar,
      .definition =
          "# the root\nroot ::= \"root\" [root]? tail-root\ntail-root ::= \"!\" | \"?\" root"};
  const RenderedChat chat = Render(kTaggedTemplate, input, form);
  EXPECT_TRUE(Allows(chat, "root!"));
  EXPECT_TRUE(Allows(chat, "<think>a</think>\nroott?root!"));
  EXPECT_FALSE(Allows(chat, "client-root!"));
}

TEST_F(AnswerGrammarTest, ASchemaThatNoGrammarCanSayBecomesAnyObject) {
  ChatInput input = Ask();
  input.tools[0].parameters = R"({"type":"object","not":{"required":["a"]}})";
  input.tool_use = ToolUse::kRequired;
  const RenderedChat chat = Render(kTaggedTemplate, input);
  EXPECT_TRUE(
      Allows(chat, "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"a\": []}}\n</tool_call>"));
  EXPECT_FALSE(Allows(chat, "<tool_call>\n{\"name\": \"look\", \"arguments\": [1]}\n</tool_call>"));
}

// Clients send whatever they like as a schema: none of it may end the process.
TEST_F(AnswerGrammarTest, SchemasOfAnyShapeMakeSomeGrammar) {
  ChatInput input = Ask();
  input.tool_use = ToolUse::kRequired;
  input.tools.resize(1);
  for (
      const char* schema :
      {R"({"type":"object","properties":{"a":{"enum":{"x":1}}}})",
       R"({"type":"object","properties":{"a":{"type":"string","enum":{"x":1}}},"required":{"a":1}})",
       R"({"type":"object","properties":{"a":{"type":"string","enum":[]}},"required":[1,"b"]})",
       R"({"type":"object","properties":{"a":{"type":"string","enum":[1,null]}}})",
       R"({"type":"object","properties":{"a:b":{},"":{}," c":{},"d{":{},"e\nf":{}}})",
       R"({"type":"object","properties":[1]})", R"({"properties":7})"}) {
    input.tools[0].parameters = schema;
    size_t rendered = 0;
    for (const Written& written : AllFormats()) {
      const auto chat = ChatFormat::Make({.template_text = written.chat_template,
                                          .bos = "",
                                          .eos = "",
                                          .has_chatml_marks = true})
                            .Render(input, {});
      if (!chat) continue;  // a sentence
      ++rendered;
      EXPECT_FALSE(Allows(*chat, "no call")) << schema;
    }
    EXPECT_GT(rendered, 0U) << schema;
  }
}

TEST_F(AnswerGrammarTest, WhatIsHeldWithMarkedStringsIsRead) {
  ChatInput input = Ask();
  input.tool_use = ToolUse::kRequired;
  input.tools.resize(1);
  input.tools[0].parameters =
      R"({"type":"object","properties":{"a b":{"type":"string","enum":["x","p<|\"|>q"]},
          "n":{"type":"number"},"of":{"type":"array"},"a:b":{"type":"string"}},"required":["n"]})";
  const RenderedChat chat = Render(kMarkedTemplate, input);
  for (const auto& [text, arguments] :
       {std::pair{"{a b:<|\"|>x<|\"|>,n:1.5e3,of:[<|\"|>y<|\"|>,{z:null}]}",
                  R"({"a b": "x", "n": 1.5e3, "of": ["y", {"z": null}]})"},
        {"{n:-2}", R"({"n": -2})"},
        {"{of:[],n:1}", R"({"of": [], "n": 1})"}}) {
    const std::string call = "<|tool_call>call:look" + std::string(text) + "<tool_call|>";
    EXPECT_TRUE(Allows(chat, call)) << call;
    const auto calls = Calls(chat, call);
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(calls[0].second, arguments);
  }
  for (const char* text : {"{}", "{n:<|\"|>1<|\"|>}", "{n:1,a:b:<|\"|>c<|\"|>}", "{n:1,n:1}",
                           "{a b:<|\"|>p<|\"|>,n:1}", "{of:[],n:1,of:[]}"}) {
    EXPECT_FALSE(Allows(chat, "<|tool_call>call:look" + std::string(text) + "<tool_call|>"))
        << text;
  }
}

TEST_F(AnswerGrammarTest, ContradictionsAreRefused) {
  const ChatFormat format = ChatFormat::Make({.template_text = "", .bos = "", .eos = ""});
  ChatInput input = Ask();
  const OutputForm grammar{.kind = OutputForm::Kind::kGrammar, .definition = "root ::= \"a\""};
  const auto expect_refused = [&](const OutputForm& form) {
    const auto chat = format.Render(input, form);
    ASSERT_FALSE(chat);
    EXPECT_EQ(chat.error().code, Errc::kInvalidRequest) << chat.error().message;
  };
  expect_refused(grammar);
  input.tool_use = ToolUse::kNamed;
  input.named_tool = "peek";
  expect_refused({});
  input.tools.clear();
  input.tool_use = ToolUse::kRequired;
  expect_refused({});
  input.tool_use = ToolUse::kAuto;
  expect_refused({.kind = OutputForm::Kind::kJsonSchema, .definition = "false"});
}

}  // namespace
}  // namespace moestro
