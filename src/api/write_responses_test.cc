// SPDX-License-Identifier: MIT
// Responses on the wire.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <string>

#include "api/stream_reader_testing.h"

namespace moestro {
namespace {

std::unique_ptr<ReplyWriter> ResponsesWriterFor(const std::string& fields) {
  return WriterFor(ApiKind::kResponses,
                   R"({"input":"hi")" + (fields.empty() ? "" : "," + fields) + "}");
}

std::vector<ReadEvent> StreamedResponse(const std::vector<ChatDelta>& deltas, FinishReason reason) {
  return ReadStream(Written(*ResponsesWriterFor(R"("stream":true)"), deltas, Ended(reason)));
}

std::vector<ChatDelta> AllDeltas() {
  return {Thought("h"),
          Thought("m"),
          Said("a"),
          Said("b"),
          CallBegin(0, "f"),
          CallArguments(0, R"({"x":)"),
          CallArguments(0, "1}"),
          CallBegin(1, "g"),
          CallArguments(1, "{}")};
}

TEST(ResponsesStream, EventsComeInTheOrderOfTheirItems) {
  const auto events = StreamedResponse(AllDeltas(), FinishReason::kToolCalls);
  std::vector<std::string> names;
  for (size_t i = 0; i < events.size(); ++i) {
    const Json json = events[i].json();
    EXPECT_EQ(At(json, "type"), '"' + events[i].name + '"');
    EXPECT_EQ(At(json, "sequence_number"), std::to_string(i));
    names.push_back(events[i].name);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"response.created",
                                             "response.in_progress",
                                             "response.output_item.added",
                                             "response.content_part.added",
                                             "response.reasoning_text.delta",
                                             "response.reasoning_text.delta",
                                             "response.reasoning_text.done",
                                             "response.content_part.done",
                                             "response.output_item.done",
                                             "response.output_item.added",
                                             "response.content_part.added",
                                             "response.output_text.delta",
                                             "response.output_text.delta",
                                             "response.output_text.done",
                                             "response.content_part.done",
                                             "response.output_item.done",
                                             "response.output_item.added",
                                             "response.function_call_arguments.delta",
                                             "response.function_call_arguments.delta",
                                             "response.function_call_arguments.done",
                                             "response.output_item.done",
                                             "response.output_item.added",
                                             "response.function_call_arguments.delta",
                                             "response.function_call_arguments.done",
                                             "response.output_item.done",
                                             "response.completed"}));
}

// An answer is stored as a request for its id gets it, and its items without log-probabilities.
TEST(ResponsesWhole, AnAnswerIsStoredAsItWasSent) {
  const RecallItems recall = [](const std::string&) -> ApiResult<Json> { return Json::Array(); };
  const auto write = [&](const std::string& fields, const std::function<void(ReplyWriter&)>& look) {
    const auto request = ParseApiRequest(ApiKind::kResponses, R"({"input":"hi")" + fields + "}",
                                         1000, ApiPurpose::kAnswer, {}, recall);
    const auto writer = MakeReplyWriter(*request, {.id = "x1", .model = "tiny", .fingerprint = {}});
    writer->Begin();
    writer->Part({.deltas = {Said("a")}, .logprobs = {Logprob("a", -1.0F)}}, 0);
    writer->EndChoice(Ended(FinishReason::kStop), 0);
    look(*writer);
    return writer->End();
  };
  std::optional<StoredAnswer> stored;
  const auto store = [&](ReplyWriter& writer) { stored = writer.ToStore(); };
  const std::string sent = write(R"(,"top_logprobs":1,"previous_response_id":"resp_0")", store);
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->id, "resp_x1");
  EXPECT_EQ(stored->reply, sent);
  EXPECT_TRUE(sent.contains(R"("store":true)") && sent.contains(R"("logprob":)")) << sent;
  EXPECT_TRUE(sent.contains(R"("previous_response_id":"resp_0")")) << sent;
  EXPECT_FALSE(stored->items.contains(R"("logprob":)")) << stored->items;
  EXPECT_TRUE(stored->items.starts_with(R"([{"id":"msg_x1_0")")) << stored->items;
  const std::string failed = write("", [](ReplyWriter& writer) { writer.NotStored(); });
  EXPECT_TRUE(failed.contains(R"("store":false)")) << failed;
  write(R"(,"store":false)", store);
  EXPECT_FALSE(stored);
}

TEST(ResponsesWhole, ACallOfANamespacesFunctionFindsBack) {
  const std::string body =
      Written(*ResponsesWriterFor(R"("tools":[{"type":"function","name":"find"},
        {"type":"namespace","name":"mcp__mail","tools":[{"type":"function","name":"find"},
        {"type":"function","name":"send"}]}],
        "tool_choice":{"type":"function","namespace":"mcp__mail","name":"send"})"),
              {CallBegin(0, "mcp__mail__find"), CallArguments(0, "{}"), CallBegin(1, "send"),
               CallArguments(1, "{}"), CallBegin(2, "find"), CallArguments(2, "{}")},
              Ended(FinishReason::kToolCalls));
  const auto json = Json::Parse(body);
  ASSERT_TRUE(json) << body;
  EXPECT_EQ(At(*json, "output.0.name"), R"("find")");
  EXPECT_EQ(At(*json, "output.0.namespace"), R"("mcp__mail")");
  EXPECT_EQ(At(*json, "output.1.name"), R"("send")");
  EXPECT_EQ(At(*json, "output.1.namespace"), R"("mcp__mail")");
  EXPECT_EQ(At(*json, "output.2.name"), R"("find")");
  EXPECT_FALSE(json->Find("output")->At(2)->Find("namespace"));
  EXPECT_EQ(At(*json, "tools.0.name"), R"("find")");
  EXPECT_EQ(At(*json, "tools.1.type"), R"("namespace")");
  EXPECT_EQ(At(*json, "tools.1.tools.1.name"), R"("send")");
  EXPECT_EQ(At(*json, "tool_choice.namespace"), R"("mcp__mail")");
}

TEST(ResponsesStream, TextEvents) {
  const auto events = StreamedResponse({Said("a"), Said(kHardText)}, FinishReason::kStop);
  ASSERT_EQ(events.size(), 10U);
  EXPECT_EQ(At(events[0].json(), "response.status"), R"("in_progress")");
  EXPECT_EQ(At(events[0].json(), "response.id"), R"("resp_x1")");
  EXPECT_EQ(At(events[0].json(), "response.output"), "[]");
  EXPECT_EQ(events[2].data,
            R"({"type":"response.output_item.added","sequence_number":2,"output_index":0,"item":)"
            R"({"id":"msg_x1_0","type":"message","role":"assistant","content":[],)"
            R"("status":"in_progress"}})");
  EXPECT_EQ(events[3].data,
            R"({"type":"response.content_part.added","sequence_number":3,"item_id":"msg_x1_0",)"
            R"("output_index":0,"content_index":0,"part":{"type":"output_text","text":"",)"
            R"("annotations":[],"logprobs":[]}})");
  EXPECT_EQ(events[4].data,
            R"({"type":"response.output_text.delta","sequence_number":4,"item_id":"msg_x1_0",)"
            R"("output_index":0,"content_index":0,"delta":"a","logprobs":[]})");
  const std::string all = std::string("a") + kHardText;
  EXPECT_EQ(events[6].json().Find("text")->text(), all);
  EXPECT_EQ(events[7].json().Find("part")->Find("text")->text(), all);
  EXPECT_EQ(At(events[8].json(), "item.status"), R"("completed")");
  const Json last = events[9].json();
  EXPECT_EQ(At(last, "response.output.0"), At(events[8].json(), "item"));
  EXPECT_EQ(At(last, "response.usage"),
            R"({"input_tokens":12,"input_tokens_details":{"cached_tokens":4},"output_tokens":9,)"
            R"("output_tokens_details":{"reasoning_tokens":3},"total_tokens":21})");
}

TEST(ResponsesStream, CallAndReasoningItems) {
  const auto events = StreamedResponse(AllDeltas(), FinishReason::kToolCalls);
  EXPECT_EQ(At(events[8].json(), "item"),
            R"({"id":"rs_x1_0","type":"reasoning","summary":[],"content":)"
            R"([{"type":"reasoning_text","text":"hm"}],"status":"completed"})");
  EXPECT_EQ(At(events[16].json(), "item"),
            R"({"id":"fc_x1_2","type":"function_call","call_id":"call_0","name":"f",)"
            R"("arguments":"","status":"in_progress"})");
  EXPECT_EQ(At(events[17].json(), "item_id"), R"("fc_x1_2")");
  EXPECT_EQ(At(events[17].json(), "output_index"), "2");
  EXPECT_EQ(At(events[17].json(), "delta"), R"("{\"x\":")");
  EXPECT_EQ(At(events[19].json(), "arguments"), R"("{\"x\":1}")");
  EXPECT_EQ(At(events[20].json(), "item.arguments"), R"("{\"x\":1}")");
  EXPECT_EQ(At(events[21].json(), "output_index"), "3");
}

TEST(ResponsesStream, WhatALimitCutIsIncomplete) {
  const auto events = StreamedResponse({Thought("t"), Said("a")}, FinishReason::kLength);
  const Json last = events.back().json();
  EXPECT_EQ(events.back().name, "response.incomplete");
  EXPECT_EQ(At(last, "response.status"), R"("incomplete")");
  EXPECT_EQ(At(last, "response.incomplete_details"), R"({"reason":"max_output_tokens"})");
  EXPECT_EQ(At(last, "response.output.0.status"), R"("completed")");
  EXPECT_EQ(At(last, "response.output.1.status"), R"("incomplete")");
}

TEST(ResponsesStream, AFailureIsAResponseThatFailed) {
  const auto writer = ResponsesWriterFor(R"("stream":true)");
  std::string bytes = writer->Begin();
  bytes += writer->Part({.deltas = {Said("a")}, .logprobs = {}}, 0);
  bytes += writer->Failed({.message = "disk gone"});
  const auto events = ReadStream(bytes);
  EXPECT_EQ(events.back().name, "response.failed");
  EXPECT_EQ(At(events.back().json(), "response.error"),
            R"({"code":"server_error","message":"disk gone"})");
  EXPECT_EQ(At(events.back().json(), "response.status"), R"("failed")");
  EXPECT_EQ(At(events.back().json(), "response.output.0.content.0.text"), R"("a")");
}

TEST(ResponsesStream, NothingSaidIsAnEmptyOutput) {
  const auto events = StreamedResponse({Said("")}, FinishReason::kStop);
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(At(events[2].json(), "response.output"), "[]");
}

TEST(ResponsesStream, LogprobsComeWithText) {
  const auto writer = ResponsesWriterFor(R"("stream":true,"top_logprobs":2)");
  writer->Begin();
  const auto events =
      ReadStream(writer->Part({.deltas = {Said("a")}, .logprobs = {Logprob("a", -0.5F)}}, 0));
  EXPECT_EQ(At(events.back().json(), "logprobs.0.token"), R"("a")");
  EXPECT_EQ(At(events.back().json(), "logprobs.0.top_logprobs.1.logprob"), "-3.5");
  const auto closed = ReadStream(writer->EndChoice(Ended(FinishReason::kStop), 0));
  EXPECT_EQ(At(closed[1].json(), "part.logprobs.0.logprob"), "-0.5");
}

TEST(ResponsesBody, HasTheItemsOfTheStream) {
  const auto body =
      Json::Parse(Written(*ResponsesWriterFor(""), AllDeltas(), Ended(FinishReason::kToolCalls)));
  ASSERT_TRUE(body);
  const Json streamed = StreamedResponse(AllDeltas(), FinishReason::kToolCalls).back().json();
  EXPECT_EQ(body->Dump(), At(streamed, "response"));
  EXPECT_EQ(At(*body, "object"), R"("response")");
  EXPECT_EQ(At(*body, "created_at"), "1700000000");
  EXPECT_EQ(At(*body, "model"), R"("tiny")");
  EXPECT_EQ(At(*body, "status"), R"("completed")");
}

TEST(ResponsesBody, RepeatsWhatWasAskedFor) {
  const auto writer = ResponsesWriterFor(
      R"("tools":[{"type":"function","name":"f","parameters":{"b":1,"a":2}}],)"
      R"("tool_choice":{"type":"function","name":"f"},"temperature":0.3,"max_output_tokens":7,)"
      R"("text":{"format":{"type":"json_object"}},"parallel_tool_calls":false)");
  const auto body = Json::Parse(Written(*writer, {}, Ended(FinishReason::kStop)));
  ASSERT_TRUE(body);
  EXPECT_EQ(At(*body, "tools"), R"([{"type":"function","name":"f","description":null,)"
                                R"("parameters":{"b":1,"a":2},"strict":false}])");
  EXPECT_EQ(At(*body, "tool_choice"), R"({"type":"function","name":"f"})");
  EXPECT_EQ(At(*body, "temperature"), "0.3");
  EXPECT_EQ(At(*body, "top_p"), "0.95");
  EXPECT_EQ(At(*body, "max_output_tokens"), "7");
  EXPECT_EQ(At(*body, "text.format.type"), R"("json_object")");
  EXPECT_EQ(At(*body, "parallel_tool_calls"), "false");
}

}  // namespace
}  // namespace moestro
