// SPDX-License-Identifier: MIT
#include "chat/chat_format.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/format.h"
#include "chat/test_templates.h"

namespace moestro {
namespace {

constexpr std::string_view kSchema =
    R"({"type":"object","properties":{"place":{"type":"string"},"days":{"type":"integer"}},)"
    R"("required":["place"]})";

ChatFormat MakeFormat(std::string_view text, bool has_chatml_marks = false) {
  return ChatFormat::Make({.template_text = std::string(text),
                           .bos = "<s>",
                           .eos = "</s>",
                           .has_chatml_marks = has_chatml_marks});
}

ChatTurn Turn(std::string role, std::string content) {
  ChatTurn turn;
  turn.role = std::move(role);
  turn.content = std::move(content);
  return turn;
}

ChatInput Ask(std::vector<ChatTurn> turns = {Turn("user", "Rain?")}) {
  ChatInput input;
  input.turns = std::move(turns);
  return input;
}

ChatInput WithTool(ChatInput input) {
  input.tools.push_back(
      {.name = "look", .description = "Looks.", .parameters = std::string(kSchema)});
  return input;
}

// A question, a call, its result.
ChatInput WithCall() {
  ChatTurn call = Turn("assistant", "");
  call.reasoning = "Hm.";
  call.calls.push_back(
      {.id = "abcdefghi", .name = "look", .arguments = R"({"place":"Rome","days": 2})"});
  ChatTurn result = Turn("tool", "sun");
  result.call_id = "abcdefghi";
  result.name = "look";
  return WithTool(Ask({Turn("system", "Be kind."), Turn("user", "Rain?"), call, result}));
}

std::string Prompt(const ChatFormat& format, const ChatInput& input) {
  const auto chat = format.Render(input, {});
  return chat ? chat->prompt : chat.error().message;
}

TEST(ChatFormat, WithoutATemplateItIsChatMl) {
  const ChatFormat format = MakeFormat("", true);
  EXPECT_TRUE(format.description().starts_with("ChatML")) << format.description();
  EXPECT_EQ(Prompt(format, Ask({Turn("developer", "Be kind."), Turn("user", "Hi")})),
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
}

TEST(ChatFormat, WithoutMarksItIsLines) {
  const ChatFormat format = MakeFormat("");
  const auto chat = format.Render(Ask(), {});
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->prompt, "user: Rain?\nassistant:");
  EXPECT_EQ(chat->stops.front(), "\nuser:");
}

TEST(ChatFormat, ATemplateThatCannotBeParsedIsLikeNone) {
  const ChatFormat format = MakeFormat("{% for %}", true);
  EXPECT_TRUE(format.description().starts_with("ChatML (the model's chat template cannot be used"))
      << format.description();
  EXPECT_FALSE(format.description().contains('\n'));
}

TEST(ChatFormat, ToolsAreDescribedWhereATemplateCannot) {
  const std::string prompt = Prompt(MakeFormat("", true), WithCall());
  EXPECT_TRUE(prompt.starts_with("<|im_start|>system\nBe kind.\n\nYou can call")) << prompt;
  EXPECT_TRUE(prompt.contains(Format(R"("parameters": {}}})", kSchema))) << prompt;
  EXPECT_TRUE(
      prompt.contains("<tool_call>\n{\"name\": \"look\", \"arguments\": "
                      "{\"place\":\"Rome\",\"days\": 2}}\n</tool_call>"))
      << prompt;
  EXPECT_TRUE(prompt.contains("<|im_start|>user\n<tool_response>\nsun\n</tool_response>"))
      << prompt;
}

TEST(ChatFormat, ATemplateSaysCallsInItsOwnWay) {
  EXPECT_TRUE(
      Prompt(MakeFormat(kTaggedTemplate), WithCall())
          .contains("<think>\nHm.\n</think>\n\n<tool_call>{\"name\": \"look\", \"arguments\": "
                    "{\"place\":\"Rome\",\"days\": 2}}</tool_call><|im_end|>"));
  EXPECT_TRUE(
      Prompt(MakeFormat(kBareTemplate), WithCall())
          .contains("{\"name\": \"look\", \"parameters\": {\"place\": \"Rome\", \"days\": 2}}"));
  EXPECT_TRUE(
      Prompt(MakeFormat(kParameterTemplate), WithCall())
          .contains("<function=look>\n<parameter=place>\nRome\n</parameter>\n<parameter=days>\n2"
                    "\n</parameter>\n</function>"));
  EXPECT_TRUE(
      Prompt(MakeFormat(kKeyValueTemplate), WithCall())
          .contains("<tool_call>look\n<arg_key>place</arg_key>\n<arg_value>Rome</arg_value>\n"
                    "<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"));
  EXPECT_TRUE(
      Prompt(MakeFormat(kChannelTemplate), WithCall())
          .contains("analysis<|message|>Hm.<|end|><|start|>assistant to=functions.look"
                    "<|channel|>commentary json<|message|>{\"place\": \"Rome\", \"days\": 2}"));
}

// The list's template has no system; its words come before the first question.
TEST(ChatFormat, SystemIsSaidByTheUserWhereATemplateHasNone) {
  const std::string prompt = Prompt(MakeFormat(kListTemplate), WithCall());
  EXPECT_TRUE(prompt.contains("[INST] Be kind.\n\nRain?[/INST]")) << prompt;
  EXPECT_TRUE(
      prompt.contains("[TOOL_CALLS] [{\"name\": \"look\", \"arguments\": {\"place\": \"Rome\""))
      << prompt;
}

TEST(ChatFormat, ATemplateThatOnlyKnowsCallsGetsToolsInWordsOfOurs) {
  const auto chat = MakeFormat(kFencedTemplate).Render(WithCall(), {});
  ASSERT_TRUE(chat) << chat.error().message;
  EXPECT_TRUE(chat->prompt.starts_with("<s>Be kind.\n\nYou can call")) << chat->prompt;
  EXPECT_TRUE(
      chat->prompt.contains("<｜tool▁sep｜>look\n```json\n{\"place\":\"Rome\",\"days\": 2}"))
      << chat->prompt;
  EXPECT_TRUE(chat->style.begins_in_reasoning);
  EXPECT_EQ(chat->style.calls, CallFormat::kFenced);
  EXPECT_TRUE(chat->style.fences_calls);
}

TEST(ChatFormat, FindsHowCallsAreWritten) {
  const std::vector<std::pair<std::string_view, CallFormat>> formats{
      {kTaggedTemplate, CallFormat::kTaggedJson},
      {kListTemplate, CallFormat::kList},
      {kBareTemplate, CallFormat::kBareJson},
      {kParameterTemplate, CallFormat::kParameterTags},
      {kKeyValueTemplate, CallFormat::kKeyValueTags},
      {kFencedTemplate, CallFormat::kFenced},
      {kChannelTemplate, CallFormat::kChannels},
      {"", CallFormat::kTaggedJson}};
  for (const auto& [text, calls] : formats) {
    const auto chat = MakeFormat(text).Render(WithTool(Ask()), {});
    ASSERT_TRUE(chat) << chat.error().message;
    EXPECT_EQ(chat->style.calls, calls) << text.substr(0, 200);
    ASSERT_EQ(chat->style.tools.size(), 1U);
    EXPECT_EQ(chat->style.tools[0].text_parameters, std::vector<std::string>{"place"});
  }
}

TEST(ChatFormat, TheTemplateIsToldWhetherToThink) {
  const ChatFormat format = MakeFormat(kTaggedTemplate);
  ChatInput input = Ask();
  EXPECT_FALSE(format.Render(input, {})->style.begins_in_reasoning);
  input.template_arguments = R"({"opens_thoughts": true})";
  EXPECT_TRUE(format.Render(input, {})->style.begins_in_reasoning);
  input.template_arguments = R"({"enable_thinking": false})";
  const auto chat = format.Render(input, {});
  EXPECT_FALSE(chat->style.begins_in_reasoning);
  EXPECT_TRUE(chat->prompt.ends_with("<think>\n\n</think>\n\n"));
}

TEST(ChatFormat, ThoughtsStayInContentWhereATemplateReadsThemThere) {
  ChatTurn turn = Turn("assistant", "Yes.");
  turn.reasoning = "Hm.";
  const ChatFormat format =
      MakeFormat("{% for m in messages %}{{ m.content }}{% endfor %}</think>");
  EXPECT_EQ(Prompt(format, Ask({turn})), "<think>\nHm.\n</think>\n\nYes.</think>");
}

TEST(ChatFormat, WithoutCallsAllowedToolsStayInThePrompt) {
  ChatInput input = WithTool(Ask());
  const ChatFormat format = MakeFormat(kTaggedTemplate);
  const auto before = format.Render(input, {});
  input.tool_use = ToolUse::kNone;
  const auto chat = format.Render(input, {});
  EXPECT_EQ(chat->prompt, before->prompt);
  EXPECT_EQ(chat->style.calls, CallFormat::kNone);
  EXPECT_TRUE(chat->grammar.empty());
}

TEST(ChatFormat, RefusalsAreTheTemplatesOwnWords) {
  const auto refused = MakeFormat(kListTemplate).Render(Ask({Turn("nobody", "Hi")}), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(refused.error().message.contains("No role \"nobody\" here"));
}

TEST(ChatFormat, WordsBesideACallAreThoughtsWhereATemplateRefusesBoth) {
  ChatInput input = WithCall();
  input.turns[2].content = "I look.";
  EXPECT_TRUE(
      Prompt(MakeFormat(kChannelTemplate), input).contains("<|message|>Hm.\n\nI look.<|end|>"));
}

// What an agent sends with each request must not cost what a token costs.
TEST(ChatFormat, RendersManyToolsFast) {
  ChatInput input = Ask();
  for (int i = 0; i < 40; ++i) {
    std::string properties;
    for (int p = 0; p < 10; ++p) {
      properties += Format(R"({}"p{}":{{"type":"string","description":"{}"}})", p > 0 ? "," : "", p,
                           std::string(80, 'd'));
    }
    input.tools.push_back(
        {.name = Format("tool{}", i),
         .description = std::string(100, 'e'),
         .parameters = Format(R"({{"type":"object","properties":{{{}}}}})", properties)});
  }
  const ChatFormat format = MakeFormat(kTaggedTemplate);
  const auto begin = std::chrono::steady_clock::now();
  const auto chat = format.Render(input, {});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(chat);
  EXPECT_GT(chat->prompt.size(), 50'000U);
  RecordProperty("milliseconds", static_cast<int>(took.count() * 1000));
  EXPECT_LT(took.count(), 1.0);
}

}  // namespace
}  // namespace moestro
