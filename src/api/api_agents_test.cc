// SPDX-License-Identifier: MIT
// Bodies of the formats that agents speak: responses and messages.
#include <gtest/gtest.h>

#include <string>

#include "api/api_request.h"
#include "api/parsed_request_testing.h"

namespace moestro {
namespace {

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
  ASSERT_EQ(request.warnings.size(), 1U);
  EXPECT_TRUE(request.warnings[0].starts_with("store is left out")) << request.warnings[0];
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

// Tools that Codex and Claude Code send beside functions.
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
      {"type":"web_search_tool_result","tool_use_id":"s","content":[]},{"type":"of_tomorrow"},
      {"type":"text","text":"b"}]},{"role":"user","content":"c"}]})");
  ASSERT_EQ(claude.chat.tools.size(), 1U);
  EXPECT_EQ(claude.warnings.size(), 4U);
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

// Codex puts the functions of each MCP server into a namespace.
TEST(AgentRequest, FunctionsOfNamespacesAreTools) {
  const ApiRequest request = ParsedAs(ApiKind::kResponses, R"({"tools":[
    {"type":"function","name":"shell","parameters":{}},
    {"type":"namespace","name":"mcp__notes__","description":"Notes","tools":[
      {"type":"function","name":"find","parameters":{"a":1}},
      {"type":"function","name":"add","description":"Adds one"},{"type":"custom","name":"c"}]},
    {"type":"namespace","name":"mcp__mail","tools":[{"type":"function","name":"find"},
      {"type":"namespace","name":"inner","tools":[]}]}],
    "tool_choice":{"type":"function","namespace":"mcp__mail","name":"find"},"input":[
    {"role":"user","content":"a"},
    {"type":"function_call","call_id":"1","namespace":"mcp__notes__","name":"add",
     "arguments":"{}"},
    {"type":"function_call_output","call_id":"1","output":"one"},
    {"type":"function_call","call_id":"2","namespace":"mcp__mail","name":"find","arguments":"{}"},
    {"type":"function_call_output","call_id":"2","output":"two"},
    {"type":"function_call","call_id":"3","namespace":"gone","name":"f","arguments":"{}"}]})");
  Strings names;
  for (const Tool& tool : request.chat.tools) names.push_back(tool.name);
  EXPECT_EQ(names, (Strings{"shell", "mcp__notes__find", "add", "mcp__mail__find"}));
  EXPECT_EQ(request.chat.tools[1].description, "Notes") << "it has none of its own";
  EXPECT_EQ(request.chat.tools[1].parameters, R"({"a":1})");
  EXPECT_EQ(request.chat.tools[2].description, "Adds one");
  EXPECT_EQ(request.chat.named_tool, "mcp__mail__find");
  EXPECT_EQ(Lines(request.chat), (Strings{"user: a", "assistant:  [1 add{}]", "tool: one <1 add>",
                                          "assistant:  [2 mcp__mail__find{}]",
                                          "tool: two <2 mcp__mail__find>", "assistant:  [3 f{}]"}));
  EXPECT_EQ(request.warnings.size(), 2U) << "custom, and a namespace in a namespace";
}

TEST(AgentRequest, NamesThatCollideInEverySpellingDiffer) {
  const ApiRequest request = ParsedAs(ApiKind::kResponses, R"({"input":"x","tools":[
    {"type":"function","name":"a__f"},{"type":"function","name":"f"},{"type":"function","name":"f_2"},
    {"type":"namespace","name":"a","tools":[{"type":"function","name":"f"}]},
    {"type":"namespace","name":"a__","tools":[{"type":"function","name":"f"}]},
    {"type":"namespace","name":"<b>","tools":[{"type":"function","name":"f"}]}],
    "tool_choice":{"type":"allowed_tools","mode":"auto","tools":[
      {"type":"function","namespace":"a__","name":"f"},{"type":"function","name":"f"}]}})");
  Strings names;
  for (const Tool& tool : request.chat.tools) names.push_back(tool.name);
  EXPECT_EQ(names, (Strings{"a__f", "f", "f_2", "f_3", "f_4", "f_5"}));
  EXPECT_EQ(request.chat.allowed_tools, (Strings{"f_4", "f"}));
}

TEST(AgentRequest, ANamespaceHasEachNameOnce) {
  const auto twice = ParseApiRequest(ApiKind::kResponses, R"({"input":"x","tools":[
    {"type":"namespace","name":"a","tools":[{"type":"function","name":"f"},
                                            {"type":"function","name":"f"}]}]})",
                                     1000);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().status, 400);
  EXPECT_TRUE(twice.error().message.contains("namespace \"a\"")) << twice.error().message;
}

TEST(AgentRequest, ManyNamespacesWithOneNameAreReadAtOnce) {
  constexpr size_t kMany = 20000;
  std::string tools;
  for (size_t i = 0; i < kMany; ++i) {
    tools += R"({"type":"namespace","name":"n)" + std::to_string(i) +
             R"(","tools":[{"type":"function","name":"f"}]},)";
  }
  tools.pop_back();
  const ApiRequest request =
      ParsedAs(ApiKind::kResponses, R"({"input":"x","tools":[)" + tools + "]}");
  EXPECT_EQ(request.chat.tools.size(), kMany);
  EXPECT_EQ(request.chat.tools.back().name, "n19999__f");
}

TEST(AgentRequest, ItemsThatAreNotKnownArePassedOver) {
  const ApiRequest request = ParsedAs(ApiKind::kResponses, R"({"input":[
    {"type":"additional_tools","role":"developer","tools":[]},{"role":"user","content":"a"},
    {"type":"tool_search_call","call_id":"c","arguments":{}},
    {"type":"tool_search_output","call_id":"c","tools":[]},
    {"type":"context_compaction","encrypted_content":"x"},
    {"type":"compaction_summary","encrypted_content":"x"},{"type":"of_tomorrow"}]})");
  EXPECT_EQ(Lines(request.chat), Strings{"user: a"});
  EXPECT_EQ(request.warnings.size(), 6U);
  // A message is never dropped, even with a misspelt type.
  EXPECT_FALSE(ParseApiRequest(ApiKind::kResponses,
                               R"({"input":[{"role":"user","content":"a"},
                                  {"type":"mesage","role":"user","content":"b"}]})",
                               1000));
}

TEST(AgentRequest, AToolChoiceMayBeAnObjectWithAWord) {
  const auto use = [](ApiKind kind, const std::string& word) {
    const std::string text = kind == ApiKind::kChat
                                 ? R"("messages":[{"role":"user","content":"x"}],"tools":[
                                      {"type":"function","function":{"name":"f"}}])"
                                 : R"("input":"x","tools":[{"type":"function","name":"f"}])";
    return ParsedAs(kind, "{" + text + R"(,"tool_choice":{"type":")" + word + "\"}}").chat.tool_use;
  };
  for (const ApiKind kind : {ApiKind::kChat, ApiKind::kResponses}) {
    EXPECT_EQ(use(kind, "auto"), ToolUse::kAuto);
    EXPECT_EQ(use(kind, "none"), ToolUse::kNone);
    EXPECT_EQ(use(kind, "required"), ToolUse::kRequired);
  }
}

TEST(AgentRequest, AToolsAnswerIsReadAsFarAsItIsText) {
  const ApiRequest request = ParsedAs(ApiKind::kMessages, R"({"max_tokens":9,"messages":[
    {"role":"user","content":[
      {"type":"tool_result","tool_use_id":"t","content":[
        {"type":"text","text":"a"},{"type":"tool_reference","tool_name":"read_mail"},
        {"type":"document","title":"T","source":{"type":"text","media_type":"text/plain",
         "data":"b"}},
        {"type":"document","source":{"type":"content","content":[{"type":"text","text":"c"}]}},
        {"type":"search_result","source":"http://x/","title":"S",
         "content":[{"type":"text","text":"d"}]},
        {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JQ"}},
        {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},
        {"type":"of_tomorrow"}]},
      {"type":"document","source":{"type":"text","media_type":"text/plain","data":"e"}}]}]})");
  EXPECT_EQ(Lines(request.chat),
            (Strings{"tool: a\nThe tool read_mail can be called.\nT\nb\nc\nS\nhttp://x/\nd\n"
                     "[Something of type \"document\" was left out here: it is no text.]\n"
                     "[Something of type \"image\" was left out here: it is no text.]\n"
                     "[Something of type \"of_tomorrow\" was left out here: it is no text.] <t >",
                     "user: e"}));
  EXPECT_EQ(request.warnings.size(), 3U);
  // A document that cannot be read is refused, so that the user learns of it.
  EXPECT_FALSE(ParseApiRequest(ApiKind::kMessages, R"({"max_tokens":9,"messages":[{"role":"user",
    "content":[{"type":"document","source":{"type":"url","url":"x"}}]}]})",
                               1000));
  const ApiRequest codex = ParsedAs(ApiKind::kResponses, R"({"input":[
    {"type":"function_call_output","call_id":"1","output":[{"type":"input_text","text":"a"},
     {"type":"input_file","file_id":"f"}]}]})");
  EXPECT_EQ(codex.warnings.size(), 1U);
}

TEST(AgentRequest, AsManyStopStringsAsAgentsSend) {
  const auto with = [](size_t n, const std::string& each) {
    std::string stops;
    for (size_t i = 0; i < n; ++i) stops += "\"" + each + std::to_string(i) + "\",";
    stops.pop_back();
    return R"({"messages":[{"role":"user","content":"a"}],"stop":[)" + stops + "]}";
  };
  EXPECT_EQ(ParsedAs(ApiKind::kChat, with(256, "s")).stops.size(), 256U);
  const auto many = ParseApiRequest(ApiKind::kChat, with(257, "s"), 1000);
  ASSERT_FALSE(many);
  EXPECT_TRUE(many.error().message.contains("at most 256")) << many.error().message;
  const auto long_ones = ParseApiRequest(ApiKind::kChat, with(256, std::string(1000, 's')), 1000);
  ASSERT_FALSE(long_ones);
  EXPECT_EQ(long_ones.error().param, "stop");
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

// A last message of the assistant is gone on with: always with Anthropic's clients; with OpenAI's
// unless add_generation_prompt begins a new turn.
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
