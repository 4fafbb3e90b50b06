// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/server_bodies.h"
#include "api/stream_reader_testing.h"

namespace moestro {
namespace {

ApiResult<ApiRequest> ParseOllama(ApiKind kind, const std::string& body) {
  return ParseApiRequest(kind, body, 1000);
}

std::string RefusedField(ApiKind kind, const std::string& body) {
  const auto request = ParseOllama(kind, body);
  return request ? "taken" : request.error().param;
}

constexpr const char* kHello = R"("messages":[{"role":"user","content":"hi"}])";

std::string ChatWith(const std::string& more) {
  return std::string("{") + kHello + (more.empty() ? "" : ",") + more + "}";
}

// A JSON value a line, each ended.
std::vector<Json> Lines(std::string_view stream) {
  std::vector<Json> lines;
  while (!stream.empty()) {
    const size_t end = stream.find('\n');
    EXPECT_NE(end, std::string_view::npos) << stream;
    auto parsed = Json::Parse(stream.substr(0, end));
    EXPECT_TRUE(parsed) << stream.substr(0, end);
    if (parsed) lines.push_back(*std::move(parsed));
    stream.remove_prefix(std::min(end, stream.size() - 1) + 1);
  }
  return lines;
}

const std::vector<ChatDelta> kEverything = {Thought("Let"),
                                            Thought(" me see"),
                                            Said("Here: "),
                                            Said(kHardText),
                                            CallBegin(0, "add"),
                                            CallArguments(0, R"({"a":1,)"),
                                            CallArguments(0, R"("b":[2,"x"]})"),
                                            CallBegin(1, "now")};

TEST(OllamaRequest, ReadsAConversation) {
  const auto request = ParseOllama(ApiKind::kOllamaChat, R"({"model":"m","messages":[
      {"role":"system","content":"be brief"},
      {"role":"user","content":"add","images":[]},
      {"role":"assistant","content":"","thinking":"hm","tool_calls":[
        {"function":{"name":"add","arguments":{"a":1}}}]},
      {"role":"tool","tool_name":"add","content":"2"}],
    "tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}],
    "options":{"temperature":0.5,"top_k":3,"top_p":0.4,"min_p":0.1,"seed":7,"num_predict":9,
      "num_ctx":100,"stop":["END"],"repeat_penalty":1.5,"num_gpu":99},
    "keep_alive":"5m"})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->stream);
  EXPECT_FALSE(request->is_load);
  EXPECT_EQ(request->model, "m");
  ASSERT_EQ(request->chat.turns.size(), 4U);
  EXPECT_EQ(request->chat.turns[2].reasoning, "hm");
  EXPECT_EQ(request->chat.turns[2].calls[0].arguments, R"({"a":1})");
  EXPECT_EQ(request->chat.turns[3].name, "add");
  EXPECT_EQ(request->chat.tools[0].name, "add");
  EXPECT_EQ(request->sampling.temp, 0.5F);
  EXPECT_EQ(request->sampling.top_k, 3);
  EXPECT_EQ(request->sampling.top_p, 0.4F);
  EXPECT_EQ(request->sampling.min_p, 0.1F);
  EXPECT_EQ(request->sampling.repeat_penalty, 1.5F);
  EXPECT_EQ(request->seed, 7U);
  EXPECT_EQ(request->max_tokens, 9);
  EXPECT_EQ(request->needed_context, 100U);
  EXPECT_EQ(request->stops, std::vector<std::string>{"END"});
  EXPECT_TRUE(request->ignored.empty());
}

TEST(OllamaRequest, StreamsUnlessToldNotTo) {
  EXPECT_TRUE(ParseOllama(ApiKind::kOllamaChat, ChatWith(""))->stream);
  EXPECT_TRUE(ParseOllama(ApiKind::kOllamaChat, ChatWith(R"("options":{"seed":1})"))->stream);
  EXPECT_FALSE(ParseOllama(ApiKind::kOllamaChat, ChatWith(R"("stream":false)"))->stream);
  EXPECT_FALSE(ParseOllama(ApiKind::kOllamaGenerate, R"({"prompt":"a","stream":false})")->stream);
}

TEST(OllamaRequest, NoLimitIsNone) {
  for (const char* n : {"-1", "-2", "0"}) {
    const auto request = ParseOllama(
        ApiKind::kOllamaChat, ChatWith(R"("options":{"num_predict":)" + std::string(n) + "}"));
    EXPECT_LT(request->max_tokens, 0) << n;
  }
}

TEST(OllamaRequest, FormsAndThoughts) {
  const auto kind = [](const std::string& more) {
    return ParseOllama(ApiKind::kOllamaChat, ChatWith(more))->form.kind;
  };
  EXPECT_EQ(kind(""), OutputForm::Kind::kText);
  EXPECT_EQ(kind(R"("format":"")"), OutputForm::Kind::kText);
  EXPECT_EQ(kind(R"("format":"json")"), OutputForm::Kind::kJsonObject);
  EXPECT_EQ(kind(R"("format":{"type":"object"})"), OutputForm::Kind::kJsonSchema);
  const auto arguments = [](const std::string& more) {
    return ParseOllama(ApiKind::kOllamaChat, ChatWith(more))->chat.template_arguments;
  };
  EXPECT_EQ(arguments(R"("think":false)"), R"({"enable_thinking":false})");
  EXPECT_EQ(arguments(R"("think":"high")"),
            R"({"enable_thinking":true,"reasoning_effort":"high"})");
}

TEST(OllamaRequest, GenerateIsAConversationUnlessItIsRaw) {
  const auto request =
      ParseOllama(ApiKind::kOllamaGenerate, R"({"prompt":"hi","system":"be brief"})");
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->prompts.empty());
  ASSERT_EQ(request->chat.turns.size(), 2U);
  EXPECT_EQ(request->chat.turns[0].role, "system");
  const auto raw = ParseOllama(ApiKind::kOllamaGenerate, R"({"prompt":"hi","raw":true})");
  ASSERT_TRUE(raw);
  ASSERT_EQ(raw->prompts.size(), 1U);
  EXPECT_TRUE(raw->chat.turns.empty());
}

TEST(OllamaRequest, WithoutAPromptTheModelIsOnlyWanted) {
  for (const char* body : {"{}", R"({"messages":[]})", R"({"messages":null,"keep_alive":0})"}) {
    EXPECT_TRUE(ParseOllama(ApiKind::kOllamaChat, body)->is_load) << body;
  }
  for (const char* body : {"{}", R"({"prompt":""})", R"({"prompt":"","raw":true})"}) {
    EXPECT_TRUE(ParseOllama(ApiKind::kOllamaGenerate, body)->is_load) << body;
  }
}

TEST(OllamaRequest, WhatIsNotOfferedIsNamed) {
  using enum ApiKind;
  EXPECT_EQ(RefusedField(kOllamaGenerate, R"({"prompt":"a","suffix":"b"})"), "suffix");
  EXPECT_EQ(RefusedField(kOllamaGenerate, R"({"prompt":"a","template":"{{ .Prompt }}"})"),
            "template");
  EXPECT_EQ(RefusedField(kOllamaGenerate, R"({"prompt":"a","context":[1]})"), "context");
  EXPECT_EQ(RefusedField(kOllamaGenerate, R"({"prompt":"a","images":["aGk="]})"), "images");
  EXPECT_EQ(RefusedField(kOllamaChat, R"({"messages":[{"role":"user","images":["aGk="]}]})"),
            "messages[0].images");
  EXPECT_EQ(RefusedField(kOllamaChat, R"({"messages":[{"role":"robot"}]})"), "messages[0].role");
  EXPECT_EQ(RefusedField(kOllamaChat, R"({"messages":"hi"})"), "messages");
  EXPECT_EQ(RefusedField(kOllamaChat, ChatWith(R"("format":"yaml")")), "format");
  EXPECT_EQ(RefusedField(kOllamaChat, ChatWith(R"("think":"some")")), "think");
  EXPECT_EQ(RefusedField(kOllamaChat, ChatWith(R"("options":[])")), "options");
  EXPECT_EQ(RefusedField(kOllamaChat, ChatWith(R"("options":{"temperature":"hot"})")),
            "options.temperature");
  EXPECT_EQ(RefusedField(kOllamaChat, ChatWith(R"("options":{"num_ctx":-1})")), "options.num_ctx");
}

TEST(OllamaWriter, AStreamIsALineForEachPart) {
  const auto writer = WriterFor(ApiKind::kOllamaChat, ChatWith(""));
  const auto lines = Lines(Written(*writer, {Said("Hel"), Said("lo")}, Ended(FinishReason::kStop)));
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_EQ(lines[0].Dump(), R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z",)"
                             R"("message":{"role":"assistant","content":"Hel"},"done":false})");
  EXPECT_EQ(lines[2].Dump(),
            R"({"model":"tiny","created_at":"2023-11-14T22:13:20Z",)"
            R"("message":{"role":"assistant","content":""},"done":true,"done_reason":"stop",)"
            R"("total_duration":2000000000,"load_duration":0,"prompt_eval_count":12,)"
            R"("prompt_eval_duration":500000000,"eval_count":9,"eval_duration":1500000000})");
}

TEST(OllamaWriter, ACallComesWholeWithItsArgumentsAsAnObject) {
  const auto writer = WriterFor(ApiKind::kOllamaChat, ChatWith(""));
  const auto lines = Lines(Written(*writer, kEverything, Ended(FinishReason::kToolCalls)));
  ASSERT_EQ(lines.size(), 7U);
  EXPECT_EQ(At(lines[0], "message.thinking"), R"("Let")");
  EXPECT_EQ(At(lines[4], "message.tool_calls"),
            R"([{"id":"call_0","function":{"index":0,"name":"add",)"
            R"("arguments":{"a":1,"b":[2,"x"]}}}])");
  EXPECT_EQ(At(lines[5], "message.tool_calls.0.function"),
            R"({"index":1,"name":"now","arguments":{}})");
  EXPECT_EQ(At(lines[6], "done_reason"), R"("stop")");
}

// Deeper than a body is read, and on one line.
TEST(OllamaWriter, ACallsArgumentsAreWhatTheModelWrote) {
  const std::string deep = std::string(500, '[') + std::string(500, ']');
  for (const char* stream : {"true", "false"}) {
    const auto writer =
        WriterFor(ApiKind::kOllamaChat, ChatWith(R"("stream":)" + std::string(stream)));
    const std::string all =
        Written(*writer, {CallBegin(0, "add"), CallArguments(0, "{\n\"a\": " + deep + "\n}")},
                Ended(FinishReason::kToolCalls));
    EXPECT_TRUE(all.contains(R"("arguments":{"a":)" + deep + "}")) << all;
  }
}

TEST(OllamaWriter, ACallThatIsCutIsNone) {
  for (const char* stream : {"true", "false"}) {
    const auto writer =
        WriterFor(ApiKind::kOllamaChat, ChatWith(R"("stream":)" + std::string(stream)));
    const std::string all =
        Written(*writer, {Said("x"), CallBegin(0, "add"), CallArguments(0, R"({"a":)")},
                Ended(FinishReason::kLength));
    EXPECT_FALSE(all.contains("tool_calls")) << all;
    EXPECT_TRUE(all.contains(R"("done_reason":"length")")) << all;
  }
}

// The stream's parts, joined, are the whole answer.
TEST(OllamaWriter, AStreamSaysWhatAWholeAnswerSays) {
  for (const bool is_chat : {true, false}) {
    const ApiKind kind = is_chat ? ApiKind::kOllamaChat : ApiKind::kOllamaGenerate;
    const std::string begin = is_chat ? std::string("{") + kHello : R"({"prompt":"hi")";
    const auto whole_writer = WriterFor(kind, begin + R"(,"stream":false})");
    const auto stream_writer = WriterFor(kind, begin + "}");
    const auto end = Ended(FinishReason::kToolCalls);
    const auto whole = Json::Parse(Written(*whole_writer, kEverything, end));
    ASSERT_TRUE(whole);
    const std::string text = is_chat ? "message.content" : "response";
    const std::string thought = is_chat ? "message.thinking" : "thinking";
    std::string content;
    std::string thinking;
    std::vector<std::string> calls;
    std::optional<Json> last;
    for (Json& line : Lines(Written(*stream_writer, kEverything, end))) {
      const auto said = [&](const std::string& path) {
        const auto parsed = Json::Parse(At(line, path));
        return parsed ? parsed->text().value_or("") : "";
      };
      content += said(text);
      thinking += said(thought);
      if (const std::string call = At(line, "message.tool_calls.0"); !call.empty())
        calls.push_back(call);
      last = std::move(line);
    }
    EXPECT_EQ(At(*whole, text), Json(content).Dump());
    EXPECT_EQ(At(*whole, thought), Json(thinking).Dump());
    for (size_t i = 0; i < calls.size(); ++i) {
      EXPECT_EQ(At(*whole, "message.tool_calls." + std::to_string(i)), calls[i]);
    }
    EXPECT_EQ(calls.size(), is_chat ? 2U : 0U);
    for (const char* count : {"done", "done_reason", "total_duration", "eval_count",
                              "prompt_eval_count", "eval_duration", "model", "created_at"}) {
      EXPECT_EQ(At(*whole, count), At(*last, count)) << count;
    }
  }
}

TEST(OllamaWriter, ErrorsAreTexts) {
  const ApiError error{.status = 400, .message = "no \"x\""};
  EXPECT_EQ(OllamaErrorBody(error), R"({"error":"no \"x\""})");
  const auto writer = WriterFor(ApiKind::kOllamaChat, ChatWith(""));
  EXPECT_EQ(writer->Failed(error), "{\"error\":\"no \\\"x\\\"\"}\n");
}

// Clients take each line for a part of the answer.
TEST(OllamaWriter, APingIsAPartWithoutText) {
  const auto writer = WriterFor(ApiKind::kOllamaChat, ChatWith(""));
  const auto lines = Lines(writer->Ping());
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(At(lines[0], "message.content"), R"("")");
  EXPECT_EQ(At(lines[0], "done"), "false");
}

TEST(OllamaBodies, TellOfTheModel) {
  ServedModel model{.id = "tiny",
                    .created = 1700000000,
                    .n_ctx = 4096,
                    .n_params = 30500000000,
                    .size_bytes = 17};
  model.architecture = "qwen3moe";
  model.quantization = "Q4_K";
  model.chat_template = "{{ x }}";
  model.capabilities = {"completion", "tools"};
  const auto tags = Json::Parse(OllamaTagsBody(model));
  EXPECT_EQ(At(*tags, "models.0.name"), R"("tiny")");
  EXPECT_EQ(At(*tags, "models.0.details.parameter_size"), R"("30.5B")");
  EXPECT_EQ(At(*tags, "models.0.modified_at"), R"("2023-11-14T22:13:20Z")");
  const auto running = Json::Parse(OllamaRunningBody(model));
  EXPECT_EQ(At(*running, "models.0.context_length"), "4096");
  const auto shown = Json::Parse(OllamaShowBody(model));
  EXPECT_EQ(At(*shown, "capabilities"), R"(["completion","tools"])");
  EXPECT_EQ(At(*shown, "template"), R"("{{ x }}")");
  EXPECT_EQ(shown->Find("model_info")->Find("qwen3moe.context_length")->Dump(), "4096");
  const auto request = ParseOllama(ApiKind::kOllamaChat, "{}");
  ReplyHead head;
  head.model = "tiny";
  const auto loaded = Json::Parse(OllamaLoadedBody(*request, head));
  EXPECT_EQ(At(*loaded, "done_reason"), R"("load")");
  EXPECT_EQ(At(*loaded, "message.content"), R"("")");
}

}  // namespace
}  // namespace moestro
