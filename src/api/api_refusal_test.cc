// SPDX-License-Identifier: MIT
// Bodies that cannot be served: each is a 400 that names the field and the value.
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "api/api_request.h"

namespace moestro {
namespace {

constexpr uint32_t kSmallVocab = 1000;

// A valid body of a kind with `fields` behind: these add or override, since the last key counts.
std::string BodyWith(ApiKind kind, const std::string& fields) {
  const char* fine = nullptr;
  switch (kind) {
    case ApiKind::kChat:
      fine = R"("messages":[{"role":"user","content":"hi"}])";
      break;
    case ApiKind::kCompletion:
      fine = R"("prompt":"hi")";
      break;
    case ApiKind::kResponses:
      fine = R"("input":"hi")";
      break;
    case ApiKind::kMessages:
      fine = R"("max_tokens":5,"messages":[{"role":"user","content":"hi"}])";
      break;
    case ApiKind::kOllamaChat:
      fine = R"("messages":[{"role":"user","content":"hi"}])";
      break;
    case ApiKind::kOllamaGenerate:
      fine = R"("prompt":"hi")";
      break;
  }
  return std::string("{") + fine + "," + fields + "}";
}

ApiError Refused(ApiKind kind, const std::string& body) {
  const auto request = ParseApiRequest(kind, body, kSmallVocab);
  if (request) {
    ADD_FAILURE() << "accepted: " << body.substr(0, 200);
    return {};
  }
  const ApiError& error = request.error();
  EXPECT_EQ(error.status, 400) << body.substr(0, 200);
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_FALSE(error.message.empty());
  EXPECT_EQ(error.message.find('\n'), std::string::npos) << error.message;
  EXPECT_LT(error.message.size(), 400U);
  return error;
}

struct FieldKind {
  const char* field;
  const char* fits;  // which of b(oolean), n(umber), t(ext), a(rray), o(bject) may come
};

// Whatever kind is not named must be refused, with the field's name.
void ExpectKinds(ApiKind kind, const FieldKind& field) {
  struct Value {
    char kind;
    const char* text;
  };
  constexpr std::array<Value, 5> kValues = {
      {{'b', "true"}, {'n', "3.25"}, {'t', R"("hot \" stuff\n")"}, {'a', "[[]]"}, {'o', "{}"}}};
  for (const Value& value : kValues) {
    if (std::string(field.fits).find(value.kind) != std::string::npos) continue;
    const std::string body = BodyWith(kind, '"' + std::string(field.field) + "\":" + value.text);
    const ApiError error = Refused(kind, body);
    EXPECT_TRUE(error.param.starts_with(field.field)) << body << ": " << error.param;
    EXPECT_NE(error.message.find(field.field), std::string::npos) << error.message;
  }
}

TEST(ApiRefusal, SamplingFieldsOfWrongKindsInAllFormats) {
  for (const ApiKind kind :
       {ApiKind::kChat, ApiKind::kCompletion, ApiKind::kResponses, ApiKind::kMessages}) {
    for (const char* field :
         {"temperature", "top_p", "min_p", "typical_p", "top_n_sigma", "xtc_probability",
          "xtc_threshold", "dynatemp_range", "dynatemp_exponent", "repeat_penalty",
          "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "mirostat_tau",
          "mirostat_eta"}) {
      ExpectKinds(kind, {field, "n"});
    }
    // 3.25 is no whole number, and so of a wrong kind, too.
    for (const char* field : {"top_k", "repeat_last_n", "dry_allowed_length", "dry_penalty_last_n",
                              "mirostat", "seed"}) {
      ExpectKinds(kind, {field, ""});
    }
    for (const char* field : {"ignore_eos", "cache_prompt", "stream"})
      ExpectKinds(kind, {field, "b"});
    ExpectKinds(kind, {"model", "t"});
    ExpectKinds(kind, {"logit_bias", "o"});
    ExpectKinds(kind, {"chat_template_kwargs", "o"});
    ExpectKinds(kind, {"dry_sequence_breakers", ""});
  }
}

TEST(ApiRefusal, ChatFieldsOfWrongKinds) {
  for (const FieldKind& field : std::initializer_list<FieldKind>{{"messages", ""},
                                                                 {"tools", ""},
                                                                 {"tool_choice", ""},
                                                                 {"parallel_tool_calls", "b"},
                                                                 {"add_generation_prompt", "b"},
                                                                 {"response_format", ""},
                                                                 {"json_schema", "o"},
                                                                 {"grammar", "t"},
                                                                 {"logprobs", "b"},
                                                                 {"top_logprobs", ""},
                                                                 {"stream_options", "o"},
                                                                 {"reasoning_effort", ""},
                                                                 {"max_tokens", ""},
                                                                 {"max_completion_tokens", ""},
                                                                 {"n_predict", ""},
                                                                 {"stop", "t"},
                                                                 {"n", ""}}) {
    ExpectKinds(ApiKind::kChat, field);
  }
}

TEST(ApiRefusal, FieldsOfOtherFormatsOfWrongKinds) {
  for (const FieldKind& field : std::initializer_list<FieldKind>{{"prompt", "t"},
                                                                 {"suffix", "t"},
                                                                 {"echo", "b"},
                                                                 {"logprobs", ""},
                                                                 {"stream_options", "o"},
                                                                 {"max_tokens", ""},
                                                                 {"stop", "t"},
                                                                 {"best_of", ""},
                                                                 {"n", ""}}) {
    ExpectKinds(ApiKind::kCompletion, field);
  }
  for (const FieldKind& field : std::initializer_list<FieldKind>{{"input", "t"},
                                                                 {"instructions", "t"},
                                                                 {"tools", ""},
                                                                 {"tool_choice", ""},
                                                                 {"text", "o"},
                                                                 {"reasoning", "o"},
                                                                 {"background", ""},
                                                                 {"previous_response_id", ""},
                                                                 {"conversation", ""},
                                                                 {"top_logprobs", ""},
                                                                 {"include", "a"},
                                                                 {"max_output_tokens", ""}}) {
    ExpectKinds(ApiKind::kResponses, field);
  }
  for (const FieldKind& field : std::initializer_list<FieldKind>{{"messages", ""},
                                                                 {"system", "t"},
                                                                 {"max_tokens", ""},
                                                                 {"stop_sequences", "t"},
                                                                 {"tools", ""},
                                                                 {"tool_choice", ""},
                                                                 {"thinking", ""},
                                                                 {"output_config", "o"}}) {
    ExpectKinds(ApiKind::kMessages, field);
  }
}

struct Wrong {
  const char* fields;
  const char* param;
  const char* said;  // part of the message
};

void ExpectRefused(ApiKind kind, std::initializer_list<Wrong> cases) {
  for (const Wrong& wrong : cases) {
    const ApiError error = Refused(kind, BodyWith(kind, wrong.fields));
    EXPECT_EQ(error.param, wrong.param) << wrong.fields;
    EXPECT_NE(error.message.find(wrong.said), std::string::npos) << error.message;
  }
}

TEST(ApiRefusal, ValuesOutOfRange) {
  ExpectRefused(
      ApiKind::kChat,
      {{R"("temperature":2.5)", "temperature", "from 0 to 2, not 2.5"},
       {R"("temperature":-0.1)", "temperature", "not -0.1"},
       {R"("top_p":1.01)", "top_p", "from 0 to 1"},
       {R"("presence_penalty":-2.1)", "presence_penalty", "from -2 to 2"},
       {R"("repeat_penalty":0)", "repeat_penalty", "from 0.01 to 100"},
       {R"("mirostat":3)", "mirostat", "0 to 2"},
       {R"("repeat_last_n":2000000000)", "repeat_last_n", "1048576"},
       {R"("top_k":3000000000)", "top_k", "whole number"},
       {R"("seed":18446744073709551615)", "seed", "whole number"},
       {R"("max_tokens":-2)", "max_tokens", "not -2"},
       {R"("n":129)", "n", "1 to 128"},
       {R"("n":0)", "n", "1 to 128"},
       {R"("logprobs":true,"top_logprobs":21)", "top_logprobs", "0 to 20"},
       {R"("top_logprobs":2)", "top_logprobs", "logprobs"},
       {R"("reasoning_effort":"huge")", "reasoning_effort", "low, medium"},
       {R"("logit_bias":{"1000":1})", "logit_bias", "\"0\" to \"999\""},
       {R"("logit_bias":{"-1":1})", "logit_bias", "-1"},
       {R"("logit_bias":{" 1":1})", "logit_bias", "keys"},
       {R"("logit_bias":{"1":101})", "logit_bias.1", "-100 to 100"},
       {R"("stop":["a",1])", "stop[1]", "not 1"},
       {R"("dry_sequence_breakers":["a",{}])", "dry_sequence_breakers[1]", "an object"},
       {R"("ignore_eos":true,"grammar":"root ::= [a]")", "ignore_eos", "must be able to end"}});
  ExpectRefused(ApiKind::kCompletion,
                {{R"("prompt":[])", "prompt", "an array of 0"},
                 {R"("suffix":"z")", "suffix", "not offered"},
                 {R"("prompt":[1000])", "prompt[0]", "0 to 999, not 1000"},
                 {R"("prompt":[1,-1])", "prompt[1]", "not -1"},
                 {R"("prompt":[1,"a"])", "prompt[1]", "a token's id"},
                 {R"("prompt":["a",1])", "prompt[1]", "array of tokens"},
                 {R"("prompt":[[1],[]])", "prompt[1]", "a token"},
                 {R"("prompt":[[1],[1.5]])", "prompt[1][0]", "not 1.5"},
                 {R"("prompt":null)", "prompt", "missing"},
                 {R"("prompt":"a","n":2,"best_of":3)", "best_of", "as many as"},
                 {R"("prompt":["a","b","c"],"n":86)", "n", "at most 85"},
                 {R"("logprobs":-1)", "logprobs", "0 to 20"}});
}

TEST(ApiRefusal, MessagesThatAreNone) {
  ExpectRefused(
      ApiKind::kChat,
      {{R"("messages":null)", "messages", "missing"},
       {R"("messages":[])", "messages", "at least one"},
       {R"("messages":["hi"])", "messages[0]", "an object, not \"hi\""},
       {R"("messages":[{"content":"x"}])", "messages[0].role", "missing"},
       {R"("messages":[{"role":7}])", "messages[0].role", "a string, not 7"},
       {R"("messages":[{"role":"bot","content":"x"}])", "messages[0].role", "\"bot\""},
       {R"("messages":[{"role":"user","content":5}])", "messages[0].content", "text parts"},
       {R"("messages":[{"role":"user","content":["x"]}])", "messages[0].content[0]", "an object"},
       {R"("messages":[{"role":"user","content":[{"text":"x"}]}])", "messages[0].content[0].type",
        "missing"},
       {R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},)"
        R"({"type":"image_url","image_url":{"url":"data:"}}]}])",
        "messages[0].content[1].type", "\"image_url\" is not offered: the model reads text only"},
       {R"("messages":[{"role":"assistant","tool_calls":{}}])", "messages[0].tool_calls", "array"},
       {R"("messages":[{"role":"assistant","tool_calls":[{}]}])",
        "messages[0].tool_calls[0].function", "missing"},
       {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":""}}]}])",
        "messages[0].tool_calls[0].function.name", "empty"},
       {R"("messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":1}}]}])",
        "messages[0].tool_calls[0].function.arguments", "not 1"},
       {R"("messages":[{"role":"assistant","reasoning_content":[]}])",
        "messages[0].reasoning_content", "a string"},
       {R"("messages":[{"role":"tool","tool_call_id":3,"content":""}])", "messages[0].tool_call_id",
        "a string"}});
}

TEST(ApiRefusal, NamesThatNoCallCanHave) {
  for (const std::string name :
       {"", " pad", "x{y", "a\\\"b", "x<y", "a\\nb", "a\\u001bb", "a\\u0085"}) {
    const std::string tools = R"("tools":[{"function":{"name":")" + name + R"("}}])";
    const ApiError error = Refused(ApiKind::kChat, BodyWith(ApiKind::kChat, tools));
    EXPECT_EQ(error.status, 400) << name;
    EXPECT_EQ(error.param, "tools[0].function.name") << name << ": " << error.message;
  }
}

TEST(ApiRefusal, ToolsAndChoicesThatDoNotFit) {
  ExpectRefused(
      ApiKind::kChat,
      {{R"("tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"})",
        "tool_choice.type", "\"web_search\""},
       {R"("tools":[{"type":"web_search"}],"tool_choice":"required")", "tool_choice",
        "none to call"},
       {R"("tools":[{"type":"function"}])", "tools[0].function", "missing"},
       {R"("tools":[{"function":{}}])", "tools[0].function.name", "missing"},
       {R"("tools":[{"function":{"name":"f","parameters":[]}}])", "tools[0].function.parameters",
        "an object"},
       {R"("tools":[{"function":{"name":"f"}},{"function":{"name":"f"}}])", "tools", "two"},
       {R"("tool_choice":"required")", "tool_choice", "none to call"},
       {R"("tool_choice":"any")", "tool_choice", "\"any\""},
       {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.tools", "missing"},
       {R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[]}})",
        "tool_choice.allowed_tools.tools", "must name a tool"},
       {R"("tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"some","tools":[]}})",
        "tool_choice.allowed_tools.mode", "\"some\""},
       {R"("tool_choice":{"type":"allowed_tools","tools":[{"type":"function","name":"g"}]})",
        "tool_choice", "\"g\""},
       {R"("tool_choice":{"type":"allowed_tools","tools":[{"type":"mcp","name":"g"}]})",
        "tool_choice.tools[0].type", "\"mcp\""},
       {R"("tools":[{"function":{"name":"f"}}],"tool_choice":{"type":"function","function":)"
        R"({"name":"g"}})",
        "tool_choice", "\"g\""}});
  ExpectRefused(
      ApiKind::kResponses,
      {{R"("tools":[{"type":"web_search_preview"}],"tool_choice":{"type":"web_search_preview"})",
        "tool_choice.type", "\"web_search_preview\""},
       {R"("tools":[{"type":"function"}])", "tools[0].name", "missing"}});
  ExpectRefused(
      ApiKind::kMessages,
      {{R"("tools":[{"type":"bash_20250124","name":"bash"}],)"
        R"("tool_choice":{"type":"tool","name":"bash"})",
        "tool_choice", "\"bash\""},
       {R"("tools":[{"name":"f","input_schema":"x"}])", "tools[0].input_schema", "an object"},
       {R"("tool_choice":{"type":"some"})", "tool_choice.type", "auto, any, tool or none"},
       {R"("tool_choice":{"type":"tool"})", "tool_choice.name", "missing"},
       {R"("tool_choice":{"type":"any"})", "tool_choice", "none to call"}});
}

TEST(ApiRefusal, FormsThatAreUnknownOrTwo) {
  ExpectRefused(ApiKind::kChat,
                {{R"("response_format":{"type":"xml"})", "response_format.type", "\"xml\""},
                 {R"("response_format":{"type":"json_schema"})",
                  "response_format.json_schema.schema", "missing"},
                 {R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})",
                  "response_format.json_schema.schema", "an object"},
                 {R"("response_format":{"type":"json_object"},"grammar":"root ::= [a]")",
                  "response_format", "second"},
                 {R"("json_schema":{},"grammar":"root ::= [a]")", "grammar", "second"}});
}

TEST(ApiRefusal, ContinuationsThatCannotBe) {
  ExpectRefused(
      ApiKind::kChat,
      {{R"("continue_final_message":true)", "continue_final_message", "last message"},
       {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message",
        "exclude each other"},
       {R"("messages":[{"role":"assistant","content":"a"}],"response_format":{"type":"json_object"})",
        "messages", "gone on with"}});
}

TEST(ApiRefusal, EndsThatCannotBe) {
  ExpectRefused(ApiKind::kChat, {{R"("min_tokens":-1)", "min_tokens", "not -1"},
                                 {R"("min_tokens":"2")", "min_tokens", "whole number"},
                                 {R"("stop_token_ids":5)", "stop_token_ids", "an array"},
                                 {R"("stop_token_ids":[1000])", "stop_token_ids[0]", "0 to 999"},
                                 {R"("timeout_ms":1.5)", "timeout_ms", "whole number"},
                                 {R"("t_max_predict_ms":[])", "t_max_predict_ms", "whole number"},
                                 {R"("return_progress":1)", "return_progress", "true or false"}});
}

TEST(ApiRefusal, WhatNeedsTheServersMemory) {
  ExpectRefused(
      ApiKind::kResponses,
      {{R"("previous_response_id":"resp_1")", "previous_response_id", "keeps nothing"},
       {R"("conversation":{"id":"c"})", "conversation", "keeps no such thing"},
       {R"("prompt":{"id":"p"})", "prompt", "keeps no such thing"},
       {R"("store":"yes")", "store", "true or false"},
       {R"("background":true)", "background", "not offered"},
       {R"("input":[{"type":"item_reference","id":"x"}])", "input", "nothing that can be read"}});
}

TEST(ApiRefusal, AgentsItemsAndBlocks) {
  ExpectRefused(
      ApiKind::kResponses,
      {{R"("input":[])", "input", "an array of 0"},
       {R"("input":[5])", "input[0]", "an object, not 5"},
       {R"("input":[{"role":"tool","content":"x"}])", "input[0].role", "\"tool\""},
       {R"("input":[{"role":"user","content":[{"type":"input_image"}]}])",
        "input[0].content[0].type", "\"input_image\""},
       {R"("input":[{"type":"mesage"}])", "input", "nothing that can be read"},
       {R"("input":[{"type":"mesage","role":"user","content":"x"}])", "input[0].type",
        "\"mesage\""},
       {R"("input":[{"type":"function_call","call_id":"c"}])", "input[0].name", "missing"},
       {R"("input":[{"type":"function_call_output","call_id":"c","output":3}])", "input[0].output",
        "not 3"},
       {R"("text":{"format":{"type":"json_schema","name":"n"}})", "text.format.schema", "missing"},
       {R"("reasoning":{"effort":3})", "reasoning.effort", "a string"}});
  ExpectRefused(
      ApiKind::kMessages,
      {{R"("max_tokens":0)", "max_tokens", "from 1"},
       {R"("max_tokens":null)", "max_tokens", "missing"},
       {R"("messages":[{"role":"tool","content":"x"}])", "messages[0].role", "user or assistant"},
       {R"("messages":[{"role":"user","content":[{"type":"image","source":{}}]}])",
        "messages[0].content[0].type", "\"image\""},
       {R"("messages":[{"role":"user","content":[{"type":"tool_use","name":"f"}]}])",
        "messages[0].content[0].type", "role user"},
       {R"("messages":[{"role":"assistant","content":[{"type":"tool_result"}]}])",
        "messages[0].content[0].type", "role assistant"},
       {R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t"}]}])",
        "messages[0].content[0].name", "missing"},
       {R"("messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"a",
         "signature":7}]}])",
        "messages[0].content[0].signature", "a string"},
       {R"("thinking":{"type":"maybe"})", "thinking.type", "enabled, disabled or adaptive"}});
}

TEST(ApiRefusal, BodiesThatAreNoJsonObject) {
  for (const ApiKind kind :
       {ApiKind::kChat, ApiKind::kCompletion, ApiKind::kResponses, ApiKind::kMessages}) {
    for (const char* body : {"", "{", "[]", "null", "7", "\"x\"", "{\"a\":1e999}",
                             "{\"a\":\"\xFF\"}", "{\"\xC3\":1}", "{} x", "{\"a\":\"\\ud800\"}"}) {
      Refused(kind, body);
    }
    EXPECT_NE(Refused(kind, "{\"a\":\"\xFF\"}").message.find("not UTF-8: byte 6"),
              std::string::npos);
    Refused(kind, std::string(1 << 20, '['));
  }
}

// 32 MB of small values would be gigabytes of memory.
TEST(ApiRefusal, MoreValuesThanAnyContextHasTokens) {
  std::string body = R"({"prompt":[0)";
  for (int i = 0; i < (1 << 18); ++i) body += ",0";
  const ApiError error = Refused(ApiKind::kCompletion, body + "]}");
  EXPECT_NE(error.message.find("262144 values"), std::string::npos) << error.message;
}

// A message never repeats a value of megabytes, nor characters that a terminal would obey.
TEST(ApiRefusal, MessagesAreShortAndPrintable) {
  const std::string huge(1 << 22, 'x');
  Refused(ApiKind::kChat, BodyWith(ApiKind::kChat, R"("temperature":")" + huge + '"'));
  Refused(ApiKind::kChat, BodyWith(ApiKind::kChat, R"("tool_choice":{"type":")" + huge + R"("})"));
  Refused(ApiKind::kChat, BodyWith(ApiKind::kChat, R"("logit_bias":{")" + huge + R"(":1})"));
  const ApiError error =
      Refused(ApiKind::kChat, BodyWith(ApiKind::kChat, R"("temperature":"\u001b[2J\u2028")"));
  for (const char c : error.message) EXPECT_TRUE(c >= ' ' && c <= '~') << error.message;
}

}  // namespace
}  // namespace moestro
