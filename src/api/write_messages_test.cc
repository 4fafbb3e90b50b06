// SPDX-License-Identifier: MIT
// Anthropic's messages on the wire.
#include <gtest/gtest.h>

#include <string>

#include "api/stream_reader_testing.h"

namespace moestro {
namespace {

std::unique_ptr<ReplyWriter> MessagesWriterFor(bool is_stream) {
  return WriterFor(ApiKind::kMessages,
                   std::string(R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}],)") +
                       (is_stream ? R"("stream":true})" : R"("stream":false})"));
}

std::string StreamedMessage(const std::vector<ChatDelta>& deltas, const ReplyEnd& end) {
  return Written(*MessagesWriterFor(true), deltas, end);
}

TEST(MessagesStream, GoldenExchange) {
  EXPECT_EQ(StreamedMessage({Thought("hm"), Said("a"), Said("b"), CallBegin(0, "f"),
                             CallArguments(0, R"({"x":)"), CallArguments(0, "1}")},
                            Ended(FinishReason::kToolCalls)),
            R"(event: message_start
data: {"type":"message_start","message":{"id":"msg_x1","type":"message","role":"assistant","model":"tiny","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":0}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"moestro-08ba5b07b55ebd0e"}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"b"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: content_block_start
data: {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"call_0","name":"f","input":{}}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"x\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"1}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":2}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":8,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

)");
}

TEST(MessagesStream, ReasonsToStop) {
  const auto delta = [](const ReplyEnd& end) {
    const auto events = ReadStream(StreamedMessage({Said("a")}, end));
    return At(events[events.size() - 2].json(), "delta");
  };
  EXPECT_EQ(delta(Ended(FinishReason::kStop)),
            R"({"stop_reason":"end_turn","stop_sequence":null})");
  EXPECT_EQ(delta(Ended(FinishReason::kLength)),
            R"({"stop_reason":"max_tokens","stop_sequence":null})");
  ReplyEnd stopped = Ended(FinishReason::kStop);
  stopped.stop = "END";
  EXPECT_EQ(delta(stopped), R"({"stop_reason":"stop_sequence","stop_sequence":"END"})");
}

TEST(MessagesStream, PingsAndErrorsAreEvents) {
  const auto writer = MessagesWriterFor(true);
  EXPECT_EQ(writer->Ping(), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  EXPECT_EQ(writer->Failed({.message = "disk gone"}),
            "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"api_error\","
            "\"message\":\"disk gone\"},\"request_id\":\"req_1\"}\n\n");
  EXPECT_EQ(
      MessagesWriterFor(false)->Failed({.message = "disk gone"}),
      R"({"type":"error","error":{"type":"api_error","message":"disk gone"},"request_id":"req_1"})");
}

TEST(MessagesStream, HardTextComesThrough) {
  const auto events = ReadStream(StreamedMessage({Said(kHardText)}, Ended(FinishReason::kStop)));
  EXPECT_EQ(events[2].json().Find("delta")->Find("text")->text(), kHardText);
}

TEST(MessagesBody, GoldenExchange) {
  EXPECT_EQ(
      Written(*MessagesWriterFor(false),
              {Thought("hm"), Said("a"), CallBegin(0, "f"), CallArguments(0, R"({"x":{"b":1,)"),
               CallArguments(0, R"("a":2}})")},
              Ended(FinishReason::kToolCalls)),
      R"({"id":"msg_x1","type":"message","role":"assistant","model":"tiny","content":[)"
      R"({"type":"thinking","thinking":"hm","signature":"moestro-08ba5b07b55ebd0e"},{"type":"text","text":"a"},)"
      R"({"type":"tool_use","id":"call_0","name":"f","input":{"x":{"b":1,"a":2}}}],)"
      R"("stop_reason":"tool_use","stop_sequence":null,"usage":{"input_tokens":8,)"
      R"("cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":9}})");
}

// Deeper than a body is read; whole numbers stay whole.
TEST(MessagesBody, ACallsInputIsWhatTheModelWrote) {
  const std::string deep = std::string(500, '[') + std::string(500, ']');
  const std::string body = Written(
      *MessagesWriterFor(false),
      {CallBegin(0, "f"), CallArguments(0, "{\"x\": " + deep + ",\n \"y\": 18446744073709551616}")},
      Ended(FinishReason::kToolCalls));
  EXPECT_TRUE(body.contains(R"("input":{"x":)" + deep + R"(,"y":18446744073709551616}})")) << body;
}

TEST(MessagesBody, ACallThatALimitCutHasItsTextAsInput) {
  const auto body = Json::Parse(Written(*MessagesWriterFor(false),
                                        {CallBegin(0, "f"), CallArguments(0, R"({"x":)")},
                                        Ended(FinishReason::kLength)));
  ASSERT_TRUE(body);
  EXPECT_EQ(At(*body, "content.0.input"), R"({"input":"{\"x\":"})");
  EXPECT_EQ(At(*body, "stop_reason"), R"("max_tokens")");
}

}  // namespace
}  // namespace moestro
