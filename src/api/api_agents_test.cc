// SPDX-License-Identifier: MIT
// Bodies of the formats that agents speak: responses and messages.
#include <gtest/gtest.h>

#include <string>

#include "api/api_request.h"

namespace moestro {
namespace {

ApiRequest ParsedAs(ApiKind kind, const std::string& body,
                    ApiPurpose purpose = ApiPurpose::kAnswer) {
  auto request = ParseApiRequest(kind, body, 1000, purpose);
  if (request) return *std::move(request);
  ADD_FAILURE() << request.error().message << " in " << body;
  return {};
}

// "role: content" of each turn, with thoughts, calls and ids in brackets.
std::vector<std::string> Lines(const ChatInput& chat) {
  std::vector<std::string> lines;
  for (const ChatTurn& turn : chat.turns) {
    std::string line = turn.role + ": " + turn.content;
    if (!turn.reasoning.empty()) line += " (" + turn.reasoning + ")";
    for (const ToolCall& call : turn.calls)
      line += " [" + call.id + " " + call.name + call.arguments + "]";
    if (turn.role == "tool") line += " <" + turn.call_id + " " + turn.name + ">";
    lines.push_back(line);
  }
  return lines;
}

using Strings = std::vector<std::string>;

TEST(ResponsesRequest, InputIsAStringWithInstructionsBeforeIt) {
  const ApiRequest request =
      ParsedAs(ApiKind::kResponses, R"({"input":"hi","instructions":"be","max_output_tokens":9,
        "stream":true,"store":true,"previous_response_id":null,"reasoning":{"effort":"low",
        "summary":"auto"},"text":{"format":{"type":"json_schema","name":"n","schema":{"b":1}},
        "verbosity":"low"},"top_logprobs":2,"include":["reasoning.encrypted_content"]})");
  EXPECT_EQ(Lines(request.chat), (Strings{"system: be", "user: hi"}));
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_TRUE(request.stream);
  EXPECT_EQ(request.chat.template_arguments, R"({"reasoning_effort":"low"})");
  EXPECT_EQ(request.form.kind, OutputForm::Kind::kJsonSchema);
  EXPECT_EQ(request.form.definition, R"({"b":1})");
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.top_logprobs, 2U);
  EXPECT_TRUE(request.ignored.empty());
}

TEST(ResponsesRequest, ItemsOfOneAnswerAreOneTurn) {
  const ApiRequest request = ParsedAs(ApiKind::kResponses, R"({"input":[
    {"role":"developer","content":"d"},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},
                                               {"type":"input_text","text":"b"}]},
    {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"short"}],
     "content":[{"type":"reasoning_text","text":"long"}],"encrypted_content":null},
    {"type":"message","role":"assistant","id":"msg_1","status":"completed",
     "content":[{"type":"output_text","text":"c","annotations":[]}]},
    {"type":"function_call","id":"fc_1","call_id":"call_1","name":"f","arguments":"{\"x\":1}"},
    {"type":"function_call","call_id":"call_2","name":"g","arguments":"{}"},
    {"type":"function_call_output","call_id":"call_2","output":"two"},
    {"type":"function_call_output","call_id":"call_1","output":[{"type":"input_text","text":"1"}]},
    {"type":"reasoning","summary":[{"type":"summary_text","text":"short"}]},
    {"type":"message","role":"assistant","content":"d"},
    {"type":"message","role":"assistant","content":"e"},
    {"type":"reasoning","summary":[],"encrypted_content":"opaque"}]})");
  EXPECT_EQ(Lines(request.chat), (Strings{"developer: d", "user: a\nb",
                                          R"(assistant: c (long) [call_1 f{"x":1}] [call_2 g{}])",
                                          "tool: two <call_2 g>", "tool: 1 <call_1 f>",
                                          "assistant: d (short)", "assistant: e"}));
}

TEST(ResponsesRequest, ToolsAreFlat) {
  const ApiRequest request = ParsedAs(ApiKind::kResponses, R"({"input":"x","tools":[
    {"type":"function","name":"f","description":"d","parameters":{"b":1,"a":2},"strict":true}],
    "tool_choice":{"type":"function","name":"f"},"parallel_tool_calls":false})");
  ASSERT_EQ(request.chat.tools.size(), 1U);
  EXPECT_EQ(request.chat.tools[0].parameters, R"({"b":1,"a":2})");
  EXPECT_EQ(request.chat.tool_use, ToolUse::kNamed);
  EXPECT_EQ(request.chat.named_tool, "f");
  EXPECT_FALSE(request.chat.parallel_calls);
}

TEST(MessagesRequest, SystemAndContentAreStringsOrBlocks) {
  const ApiRequest request = ParsedAs(ApiKind::kMessages, R"({"max_tokens":9,"model":"m",
    "system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
              {"type":"text","text":"b"}],
    "messages":[{"role":"user","content":"hi"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},
        {"type":"redacted_thinking","data":"?"},{"type":"text","text":"c"},
        {"type":"tool_use","id":"t1","name":"f","input":{"b":1,"a":2}},
        {"type":"tool_use","id":"t2","name":"g","input":{}}]},
      {"role":"user","content":[
        {"type":"tool_result","tool_use_id":"t1","content":"one","is_error":false},
        {"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"two"}]},
        {"type":"text","text":"and"},{"type":"text","text":"now"}]},
      {"role":"assistant","content":"yes"},
      {"role":"user","content":[{"type":"text","text":"before"},
        {"type":"tool_result","tool_use_id":"t9"}]}],
    "metadata":{"user_id":"u"},"stop_sequences":["X"],"top_k":5,"temperature":1})");
  EXPECT_EQ(Lines(request.chat), (Strings{"system: a\nb", "user: hi",
                                          R"(assistant: c (hm) [t1 f{"b":1,"a":2}] [t2 g{}])",
                                          "tool: one <t1 f>", "tool: two <t2 g>", "user: and\nnow",
                                          "assistant: yes", "user: before", "tool:  <t9 >"}));
  EXPECT_EQ(request.stops, Strings{"X"});
  EXPECT_EQ(request.max_tokens, 9);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.temp, 1.0F);
  EXPECT_TRUE(request.ignored.empty());
}

TEST(MessagesRequest, ToolsAndChoices) {
  const auto chat = [](const std::string& choice) {
    return ParsedAs(ApiKind::kMessages, R"({"max_tokens":1,"messages":[{"role":"user",
      "content":"x"}],"tools":[{"name":"f","description":"d","input_schema":{"b":1,"a":2}},
      {"type":"custom","name":"g","input_schema":{}}],"tool_choice":)" +
                                            choice + "}")
        .chat;
  };
  const ChatInput automatic = chat(R"({"type":"auto"})");
  ASSERT_EQ(automatic.tools.size(), 2U);
  EXPECT_EQ(automatic.tools[0].parameters, R"({"b":1,"a":2})");
  EXPECT_EQ(automatic.tool_use, ToolUse::kAuto);
  EXPECT_TRUE(automatic.parallel_calls);
  EXPECT_EQ(chat(R"({"type":"none"})").tool_use, ToolUse::kNone);
  const ChatInput any = chat(R"({"type":"any","disable_parallel_tool_use":true})");
  EXPECT_EQ(any.tool_use, ToolUse::kRequired);
  EXPECT_FALSE(any.parallel_calls);
  EXPECT_EQ(chat(R"({"type":"tool","name":"g"})").named_tool, "g");
}

TEST(MessagesRequest, ThinkingBecomesATemplateArgument) {
  const auto arguments = [](const std::string& fields) {
    return ParsedAs(ApiKind::kMessages,
                    R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],)" + fields + "}")
        .chat.template_arguments;
  };
  EXPECT_EQ(arguments(R"("thinking":{"type":"enabled","budget_tokens":1024})"),
            R"({"enable_thinking":true})");
  EXPECT_EQ(arguments(R"("thinking":{"type":"disabled"})"), R"({"enable_thinking":false})");
  EXPECT_EQ(arguments(R"("thinking":{"type":"adaptive"})"), "");
  EXPECT_EQ(arguments(R"("output_config":{"effort":"max"})"), R"({"reasoning_effort":"max"})");
}

TEST(MessagesRequest, AFormMayBeAskedFor) {
  const ApiRequest request = ParsedAs(
      ApiKind::kMessages,
      R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"output_config":{"format":
         {"type":"json_schema","schema":{"type":"object"}}}})");
  EXPECT_EQ(request.form.kind, OutputForm::Kind::kJsonSchema);
  EXPECT_EQ(request.form.definition, R"({"type":"object"})");
}

TEST(MessagesRequest, CountingNeedsNoTokenLimit) {
  const std::string body = R"({"messages":[{"role":"user","content":"x"}]})";
  EXPECT_FALSE(ParseApiRequest(ApiKind::kMessages, body, 10));
  EXPECT_EQ(ParsedAs(ApiKind::kMessages, body, ApiPurpose::kInput).chat.turns.size(), 1U);
}

// What Codex and Claude Code send beside functions.
TEST(AgentRequest, ToolsThatAreNoFunctionsAreLeftOutWithAWarning) {
  const ApiRequest codex = ParsedAs(ApiKind::kResponses, R"({"input":"x","tools":[
    {"type":"function","name":"shell","parameters":{}},{"type":"local_shell"},
    {"type":"web_search","external_web_access":false},
    {"type":"custom","name":"apply_patch","format":{"type":"grammar"}}],"tool_choice":"auto"})");
  ASSERT_EQ(codex.chat.tools.size(), 1U);
  EXPECT_EQ(codex.chat.tools[0].name, "shell");
  ASSERT_EQ(codex.warnings.size(), 3U);
  EXPECT_EQ(codex.warnings[1],
            "tools[2] of type \"web_search\" is left out; only functions can be called");
  const ApiRequest claude = ParsedAs(ApiKind::kMessages, R"({"max_tokens":9,"tools":[
    {"name":"f","input_schema":{}},{"type":"web_search_20250305","name":"web_search"}],
    "messages":[{"role":"user","content":"a"},{"role":"assistant","content":[
      {"type":"server_tool_use","id":"s","name":"web_search","input":{}},
      {"type":"web_search_tool_result","tool_use_id":"s","content":[]},
      {"type":"text","text":"b"}]},{"role":"user","content":"c"}]})");
  ASSERT_EQ(claude.chat.tools.size(), 1U);
  EXPECT_EQ(claude.warnings.size(), 3U);
  EXPECT_EQ(Lines(claude.chat), (Strings{"user: a", "assistant: b", "user: c"}));
  const ApiRequest chat = ParsedAs(ApiKind::kChat, R"({"messages":[{"role":"user","content":"a"}],
    "tools":[{"type":"web_search_preview"}]})");
  EXPECT_TRUE(chat.chat.tools.empty());
  EXPECT_EQ(chat.warnings.size(), 1U);
}

TEST(AgentRequest, ItemsOfOtherToolsAreCallsOrLeftOut) {
  const ApiRequest request = ParsedAs(ApiKind::kResponses, R"({"input":[
    {"role":"user","content":"a"},{"type":"item_reference","id":"r"},
    {"type":"web_search_call","id":"w","status":"completed"},
    {"type":"custom_tool_call","call_id":"c1","name":"apply_patch","input":"*** Begin"},
    {"type":"custom_tool_call_output","call_id":"c1","output":"done"},
    {"type":"local_shell_call","call_id":"c2","action":{"type":"exec","command":["ls"]}},
    {"type":"local_shell_call_output","call_id":"c2","output":"file"}]})");
  EXPECT_EQ(Lines(request.chat),
            (Strings{"user: a", R"(assistant:  [c1 apply_patch{"input":"*** Begin"}])",
                     "tool: done <c1 apply_patch>",
                     R"(assistant:  [c2 local_shell{"type":"exec","command":["ls"]}])",
                     "tool: file <c2 local_shell>"}));
  EXPECT_EQ(request.warnings.size(), 2U);
}

TEST(AgentRequest, WarningsAreFewAndPrintable) {
  std::string tools;
  for (int i = 0; i < 1000; ++i) tools += R"({"type":"a\n\u0000b"},)";
  tools.pop_back();
  const ApiRequest request = ParsedAs(
      ApiKind::kChat, R"({"messages":[{"role":"user","content":"a"}],"tools":[)" + tools + "]}");
  EXPECT_LE(request.warnings.size(), 16U);
  for (const std::string& warning : request.warnings) EXPECT_FALSE(warning.contains('\n'));
}

// A last message of the assistant is gone on with: always with Anthropic's clients, with OpenAI's
// unless they say that a new turn begins.
TEST(AgentRequest, ALastMessageOfTheAssistantIsGoneOnWith) {
  const std::string turns =
      R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}])";
  const auto continues = [](const ApiRequest& request) { return request.chat.continues_last; };
  EXPECT_TRUE(continues(ParsedAs(ApiKind::kMessages, "{\"max_tokens\":9," + turns + "}")));
  EXPECT_TRUE(continues(ParsedAs(ApiKind::kChat, "{" + turns + "}")));
  EXPECT_TRUE(continues(ParsedAs(ApiKind::kChat, "{" + turns + R"(,"add_generation_prompt":false,
    "continue_final_message":true})")));
  EXPECT_FALSE(
      continues(ParsedAs(ApiKind::kChat, "{" + turns + R"(,"add_generation_prompt":true})")));
  EXPECT_FALSE(
      continues(ParsedAs(ApiKind::kChat, "{" + turns + R"(,"add_generation_prompt":false})")));
  EXPECT_FALSE(
      continues(ParsedAs(ApiKind::kChat, "{" + turns + R"(,"continue_final_message":false})")));
  EXPECT_FALSE(continues(ParsedAs(ApiKind::kMessages, R"({"max_tokens":9,"messages":[
    {"role":"user","content":"a"},{"role":"assistant","content":[
    {"type":"tool_use","id":"t","name":"f","input":{}}]}]})")));
}

TEST(AgentRequest, EndsOfATextAreRead) {
  const ApiRequest request = ParsedAs(ApiKind::kChat, R"({"messages":[{"role":"user",
    "content":"a"}],"min_tokens":3,"stop_token_ids":[7,9],"timeout_ms":1500,
    "t_max_predict_ms":250,"return_progress":true,"stream":true})");
  EXPECT_EQ(request.min_tokens, 3U);
  EXPECT_EQ(request.stop_tokens, (std::vector<Token>{7, 9}));
  EXPECT_EQ(request.seconds, 1.5);
  EXPECT_EQ(request.writing_seconds, 0.25);
  EXPECT_TRUE(request.return_progress);
  EXPECT_TRUE(request.ignored.empty());
}

}  // namespace
}  // namespace moestro
