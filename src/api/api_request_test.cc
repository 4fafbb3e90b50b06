// SPDX-License-Identifier: MIT
// Requests that result from a body of each wire format. Refused bodies: api_refusal_test.cc.
#include "api/api_request.h"

#include <gtest/gtest.h>

#include <string>

#include "api/parsed_request_testing.h"

namespace moestro {
namespace {

constexpr uint32_t kVocab = 1000;

ApiRequest Parsed(ApiKind kind, const std::string& body, ApiPurpose purpose = ApiPurpose::kAnswer) {
  auto request = ParseApiRequest(kind, body, kVocab, purpose);
  if (request) return *std::move(request);
  ADD_FAILURE() << request.error().message << " in " << body;
  return {};
}

ApiRequest Chat(const std::string& fields) {
  return Parsed(ApiKind::kChat, R"({"messages":[{"role":"user","content":"hi"}])" +
                                    (fields.empty() ? "" : "," + fields) + "}");
}

TEST(ApiRequest, WithoutFieldsDefaultsAreTheSamplersOwn) {
  const ApiRequest request = Chat("");
  const SamplingOptions defaults;
  EXPECT_EQ(request.sampling.temp, defaults.temp);
  EXPECT_EQ(request.sampling.top_k, defaults.top_k);
  EXPECT_EQ(request.sampling.top_p, defaults.top_p);
  EXPECT_EQ(request.sampling.min_p, defaults.min_p);
  EXPECT_EQ(request.sampling.dry_sequence_breakers, defaults.dry_sequence_breakers);
  EXPECT_EQ(request.max_tokens, -1);
  EXPECT_FALSE(request.seed);
  EXPECT_FALSE(request.stream);
  EXPECT_TRUE(request.cache_prompt);
  EXPECT_TRUE(request.chat.parallel_calls);
  EXPECT_TRUE(request.chat.add_assistant);
  EXPECT_EQ(request.chat.tool_use, ToolUse::kAuto);
  EXPECT_EQ(request.form.kind, OutputForm::Kind::kText);
  EXPECT_TRUE(request.ignored.empty());
}

TEST(ApiRequest, SamplingFieldsArriveUnderTheirNames) {
  const ApiRequest request = Chat(
      R"("temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"typical_p":0.8,"top_n_sigma":1.5,)"
      R"("repeat_penalty":1.1,"repeat_last_n":-1,"presence_penalty":-2,"frequency_penalty":2.0,)"
      R"("dry_multiplier":0.5,"dry_base":2,"dry_allowed_length":3,"dry_penalty_last_n":9,)"
      R"("dry_sequence_breakers":["x"],"xtc_probability":0.25,"xtc_threshold":0.2,)"
      R"("mirostat":2,"mirostat_tau":4,"mirostat_eta":0.2,"dynatemp_range":0.3,)"
      R"("dynatemp_exponent":1.2,"ignore_eos":true,"logit_bias":{"15":-100,"999":0.5})");
  const SamplingOptions& s = request.sampling;
  EXPECT_EQ(s.temp, 0.5F);
  EXPECT_EQ(s.top_p, 0.9F);
  EXPECT_EQ(s.top_k, 7);
  EXPECT_EQ(s.min_p, 0.1F);
  EXPECT_EQ(s.typical, 0.8F);
  EXPECT_EQ(s.top_n_sigma, 1.5F);
  EXPECT_EQ(s.repeat_penalty, 1.1F);
  EXPECT_EQ(s.repeat_last_n, -1);
  EXPECT_EQ(s.presence_penalty, -2.0F);
  EXPECT_EQ(s.frequency_penalty, 2.0F);
  EXPECT_EQ(s.dry_multiplier, 0.5F);
  EXPECT_EQ(s.dry_base, 2.0F);
  EXPECT_EQ(s.dry_allowed_length, 3);
  EXPECT_EQ(s.dry_penalty_last_n, 9);
  EXPECT_EQ(s.dry_sequence_breakers, std::vector<std::string>{"x"});
  EXPECT_EQ(s.xtc_probability, 0.25F);
  EXPECT_EQ(s.xtc_threshold, 0.2F);
  EXPECT_EQ(s.mirostat, 2);
  EXPECT_EQ(s.mirostat_ent, 4.0F);
  EXPECT_EQ(s.mirostat_lr, 0.2F);
  EXPECT_EQ(s.dynatemp_range, 0.3F);
  EXPECT_EQ(s.dynatemp_exp, 1.2F);
  EXPECT_TRUE(s.ignore_eos);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<Token, float>>{{15, -100.0F}, {999, 0.5F}}));
  EXPECT_TRUE(request.ignored.empty());
}

TEST(ApiRequest, ServerFieldsArrive) {
  const ApiRequest request =
      Chat(R"("model":"any/name","stream":true,"stream_options":{"include_usage":true},)"
           R"("cache_prompt":false,"logprobs":true,"top_logprobs":5,"n":1)");
  EXPECT_EQ(request.model, "any/name");
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.include_usage);
  EXPECT_FALSE(request.cache_prompt);
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.top_logprobs, 5U);
}

// Places are no caches here, so a place in a request has no effect.
TEST(ApiRequest, APlaceIsIgnoredAsUnknownFieldsAre) {
  EXPECT_EQ(Chat(R"("id_slot":3)").ignored, std::vector<std::string>{"id_slot"});
}

TEST(ApiRequest, NullIsTheSameAsAbsent) {
  const ApiRequest request = Chat(
      R"("temperature":null,"stop":null,"tools":null,"tool_choice":null,"stream":null,"n":null,)"
      R"("seed":null,"logit_bias":null,"response_format":null,"max_tokens":null,"logprobs":null,)"
      R"("stream_options":null,"chat_template_kwargs":null,"reasoning_effort":null,"model":null)");
  EXPECT_EQ(request.sampling.temp, SamplingOptions().temp);
  EXPECT_TRUE(request.stops.empty());
  EXPECT_TRUE(request.chat.template_arguments.empty());
  EXPECT_TRUE(request.ignored.empty());
}

TEST(ApiRequest, SeedsOfAnySizeAreTakenAndMinusOneIsRandom) {
  EXPECT_EQ(Chat(R"("seed":42)").seed, 42U);
  EXPECT_EQ(Chat(R"("seed":0)").seed, 0U);
  EXPECT_EQ(Chat(R"("seed":4294967295)").seed, 4294967295U);
  EXPECT_FALSE(Chat(R"("seed":-1)").seed);
  EXPECT_TRUE(Chat(R"("seed":9223372036854775807)").seed);
  EXPECT_NE(Chat(R"("seed":4294967296)").seed, Chat(R"("seed":4294967297)").seed);
}

TEST(ApiRequest, TheNewestNameOfTheTokenLimitWins) {
  EXPECT_EQ(Chat(R"("max_tokens":5)").max_tokens, 5);
  EXPECT_EQ(Chat(R"("n_predict":7)").max_tokens, 7);
  EXPECT_EQ(Chat(R"("max_tokens":5,"max_completion_tokens":6)").max_tokens, 6);
  EXPECT_EQ(Chat(R"("max_tokens":-1)").max_tokens, -1);
  EXPECT_EQ(Chat(R"("max_tokens":9007199254740991)").max_tokens, 9007199254740991);
}

TEST(ApiRequest, StopsAreOneOrSeveralAndEmptyOnesAreNone) {
  EXPECT_EQ(Chat(R"("stop":"###")").stops, std::vector<std::string>{"###"});
  EXPECT_EQ(Chat(R"("stop":["a","","b\u2028"])").stops,
            (std::vector<std::string>{"a", "b\xE2\x80\xA8"}));
  EXPECT_TRUE(Chat(R"("stop":"")").stops.empty());
}

TEST(ApiRequest, UnknownFieldsAreCollected) {
  const ApiRequest request = Chat(R"("frobnicate":1,"user":"me","store":true,"b\nad":{"x":1})");
  EXPECT_EQ(request.ignored, (std::vector<std::string>{"frobnicate", "b?ad"}));
}

TEST(ApiRequest, OfEqualKeysTheLastCounts) {
  EXPECT_EQ(Chat(R"("temperature":"hot","top_k":1,"temperature":0.25)").sampling.temp, 0.25F);
}

TEST(ApiRequest, MessagesKeepTextCallsAndThoughts) {
  const ApiRequest request = Parsed(ApiKind::kChat, R"({"messages":[
    {"role":"system","content":"be \"brief\""},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"}]},
    {"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[
      {"id":"call_1","type":"function","function":{"name":"f","arguments":"{\"x\": 1.50}"}},
      {"id":null,"function":{"name":"g","arguments":{"b":1,"a":[2]}}},
      {"id":"call_3","function":{"name":"h","arguments":""}}]},
    {"role":"tool","tool_call_id":"call_1","name":"f","content":"3"},
    {"role":"tool","tool_call_id":null,"content":[{"type":"text","text":"4"}]},
    {"role":"assistant","reasoning":"so","content":"7"},
    {"role":"function","name":"old","content":"5"},
    {"role":"user"}]})");
  const auto& turns = request.chat.turns;
  ASSERT_EQ(turns.size(), 8U);
  EXPECT_EQ(turns[0].role, "system");
  EXPECT_EQ(turns[0].content, "be \"brief\"");
  EXPECT_EQ(turns[1].content, "a\nb");
  EXPECT_EQ(turns[2].content, "");
  EXPECT_EQ(turns[2].reasoning, "hm");
  ASSERT_EQ(turns[2].calls.size(), 3U);
  EXPECT_EQ(turns[2].calls[0].id, "call_1");
  EXPECT_EQ(turns[2].calls[0].name, "f");
  EXPECT_EQ(turns[2].calls[0].arguments, R"({"x": 1.50})") << "as it was sent";
  EXPECT_EQ(turns[2].calls[1].id, "");
  EXPECT_EQ(turns[2].calls[1].arguments, R"({"b":1,"a":[2]})");
  EXPECT_EQ(turns[2].calls[2].arguments, "{}");
  EXPECT_EQ(turns[3].role, "tool");
  EXPECT_EQ(turns[3].call_id, "call_1");
  EXPECT_EQ(turns[3].name, "f");
  EXPECT_EQ(turns[4].call_id, "");
  EXPECT_EQ(turns[4].content, "4");
  EXPECT_EQ(turns[5].reasoning, "so");
  EXPECT_EQ(turns[6].role, "tool");
  EXPECT_EQ(turns[7].content, "");
}

// A conversation must go on after a call that was cut off.
TEST(ApiRequest, ArgumentsThatAreNoObjectAreKeptAsText) {
  const ApiRequest request = Parsed(ApiKind::kChat, R"({"messages":[{"role":"assistant",
    "tool_calls":[{"function":{"name":"f","arguments":"{\"x\": \"cut o"}},
                  {"function":{"name":"f","arguments":"[1]"}}]}]})");
  EXPECT_EQ(request.chat.turns[0].calls[0].arguments, R"({"input":"{\"x\": \"cut o"})");
  EXPECT_EQ(request.chat.turns[0].calls[1].arguments, R"({"input":"[1]"})");
}

TEST(ApiRequest, WholeNumbersBeyond64BitsStayAsTheyWereWritten) {
  const std::string schema =
      R"({"properties":{"a":{"maximum":18446744073709551616,"default":-9223372036854775809}}})";
  const ApiRequest request = Chat(
      R"("tools":[{"function":{"name":"f","parameters":)" + schema +
      R"(}}],"chat_template_kwargs":{"n":123456789012345678901234567890},"reasoning_effort":"low")");
  EXPECT_EQ(request.chat.tools[0].parameters, schema);
  EXPECT_EQ(request.chat.template_arguments,
            R"({"n":123456789012345678901234567890,"reasoning_effort":"low"})");
}

// A model's call comes back in a later request, however deep the call is (docs/calls.md).
TEST(ApiRequest, ArgumentsAsTextMayBeDeeperThanABody) {
  const std::string deep = std::string(500, '[') + std::string(500, ']');
  const ApiRequest request = ParsedAs(ApiKind::kChat, R"({"messages":[{"role":"assistant",
      "tool_calls":[{"function":{"name":"f","arguments":"{\"a\":)" +
                                                          deep + R"(}"}}]}]})");
  EXPECT_EQ(request.chat.turns[0].calls[0].arguments, R"({"a":)" + deep + "}");
}

TEST(ApiRequest, ToolsKeepTheirSchemasOrderOfKeys) {
  const ApiRequest request = Chat(R"("tools":[
    {"type":"function","function":{"name":"f","description":"does","strict":true,
      "parameters":{"type":"object","required":["z"],"properties":{"z":{},"a":{}}}}},
    {"function":{"name":"g"}}],"parallel_tool_calls":false,
    "tool_choice":{"type":"function","function":{"name":"g"}})");
  ASSERT_EQ(request.chat.tools.size(), 2U);
  EXPECT_EQ(request.chat.tools[0].name, "f");
  EXPECT_EQ(request.chat.tools[0].description, "does");
  EXPECT_TRUE(request.chat.tools[0].is_strict);
  EXPECT_FALSE(request.chat.tools[1].is_strict);
  EXPECT_EQ(request.chat.tools[0].parameters,
            R"({"type":"object","required":["z"],"properties":{"z":{},"a":{}}})");
  EXPECT_EQ(request.chat.tools[1].parameters, "");
  EXPECT_FALSE(request.chat.parallel_calls);
  EXPECT_EQ(request.chat.tool_use, ToolUse::kNamed);
  EXPECT_EQ(request.chat.named_tool, "g");
}

TEST(ApiRequest, ToolChoicesAreWords) {
  const std::string tools = R"("tools":[{"function":{"name":"f"}}],"tool_choice":)";
  EXPECT_EQ(Chat(tools + R"("auto")").chat.tool_use, ToolUse::kAuto);
  EXPECT_EQ(Chat(tools + R"("none")").chat.tool_use, ToolUse::kNone);
  EXPECT_EQ(Chat(tools + R"("required")").chat.tool_use, ToolUse::kRequired);
}

TEST(ApiRequest, SomeToolsMayBeAllowed) {
  const std::string head = R"("tools":[{"function":{"name":"f"}},{"function":{"name":"g"}}],)"
                           R"("tool_choice":{"type":"allowed_tools",)";
  const ApiRequest nested = Chat(head + R"("allowed_tools":{"mode":"required","tools":[)"
                                        R"({"type":"function","function":{"name":"g"}}]}})");
  EXPECT_EQ(nested.chat.tool_use, ToolUse::kRequired);
  EXPECT_EQ(nested.chat.allowed_tools, std::vector<std::string>{"g"});
  EXPECT_EQ(nested.chat.tools.size(), 2U);
  const ApiRequest flat = Chat(head + R"("mode":"auto","tools":[{"type":"function","name":"f"}]})");
  EXPECT_EQ(flat.chat.tool_use, ToolUse::kAuto);
  EXPECT_EQ(flat.chat.allowed_tools, std::vector<std::string>{"f"});
}

TEST(ApiRequest, FormsOfTheAnswer) {
  using Kind = OutputForm::Kind;
  const auto form = [](const std::string& fields) { return Chat(fields).form; };
  EXPECT_EQ(form(R"("response_format":{"type":"text"})").kind, Kind::kText);
  EXPECT_EQ(form(R"("response_format":{"type":"json_object"})").kind, Kind::kJsonObject);
  const OutputForm schema =
      form(R"("response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,)"
           R"("schema":{"type":"object","b":1,"a":2}}})");
  EXPECT_EQ(schema.kind, Kind::kJsonSchema);
  EXPECT_TRUE(schema.is_strict);
  EXPECT_EQ(schema.definition, R"({"type":"object","b":1,"a":2})");
  EXPECT_EQ(form(R"("response_format":{"type":"json_object","schema":{"x":1}})").definition,
            R"({"x":1})");
  EXPECT_EQ(form(R"("json_schema":{"x":1})").kind, Kind::kJsonSchema);
  EXPECT_EQ(form(R"("grammar":"root ::= \"a\"")").kind, Kind::kGrammar);
  EXPECT_EQ(form(R"("grammar":"root ::= \"a\"")").definition, R"(root ::= "a")");
  EXPECT_EQ(form(R"("grammar":"")").kind, Kind::kText);
}

TEST(ApiRequest, TemplateArgumentsAreKeptAndEffortJoinsThem) {
  EXPECT_EQ(
      Chat(R"("chat_template_kwargs":{"z":1,"enable_thinking":true})").chat.template_arguments,
      R"({"z":1,"enable_thinking":true})");
  EXPECT_EQ(Chat(R"("reasoning_effort":"high")").chat.template_arguments,
            R"({"reasoning_effort":"high"})");
  EXPECT_EQ(Chat(R"("reasoning_effort":"none")").chat.template_arguments,
            R"({"enable_thinking":false,"reasoning_effort":"none"})");
  EXPECT_EQ(Chat(R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"x"})")
                .chat.template_arguments,
            R"({"reasoning_effort":"x"})");
}

TEST(ApiRequest, PromptsAreTextsOrTokens) {
  const auto prompts = [](const std::string& prompt) {
    return Parsed(ApiKind::kCompletion, R"({"prompt":)" + prompt + "}").prompts;
  };
  using Tokens = std::vector<Token>;
  EXPECT_EQ(prompts(R"("a\u0000b")"), (std::vector<ApiPrompt>{std::string("a\0b", 3)}));
  EXPECT_EQ(prompts(R"("")"), (std::vector<ApiPrompt>{""}));
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<ApiPrompt>{"a", "b"}));
  EXPECT_EQ(prompts("[1,999]"), (std::vector<ApiPrompt>{Tokens{1, 999}}));
  EXPECT_EQ(prompts(R"([[1],"b",[2,3]])"), (std::vector<ApiPrompt>{Tokens{1}, "b", Tokens{2, 3}}));
}

TEST(ApiRequest, CompletionsHaveFieldsOfTheirOwn) {
  const ApiRequest request =
      Parsed(ApiKind::kCompletion,
             R"({"prompt":"a","suffix":"","echo":true,"logprobs":3,"max_tokens":0,"best_of":1,)"
             R"("stream":true,"stream_options":{"include_usage":true},"stop":["x"],"n":1})");
  EXPECT_TRUE(request.echo);
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.top_logprobs, 3U);
  EXPECT_EQ(request.max_tokens, 0);
  EXPECT_TRUE(request.include_usage);
  EXPECT_EQ(request.stops.size(), 1U);
  EXPECT_TRUE(Parsed(ApiKind::kCompletion, R"({"prompt":"a","logprobs":0})").logprobs);
  EXPECT_FALSE(Parsed(ApiKind::kCompletion, R"({"prompt":"a"})").logprobs);
}

}  // namespace
}  // namespace moestro
