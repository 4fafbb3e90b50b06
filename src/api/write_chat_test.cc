// SPDX-License-Identifier: MIT
// Chat completions on the wire, rule by rule as clients hold servers to them.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "api/stream_reader_testing.h"

namespace moestro {
namespace {

std::unique_ptr<ReplyWriter> ChatWriterFor(const std::string& fields) {
  return WriterFor(ApiKind::kChat, R"({"messages":[{"role":"user","content":"hi"}])" +
                                       (fields.empty() ? "" : "," + fields) + "}");
}

std::vector<ReadEvent> Streamed(const std::vector<ChatDelta>& deltas, FinishReason reason,
                                const std::string& fields = "") {
  const auto writer = ChatWriterFor(R"("stream":true)" + (fields.empty() ? "" : "," + fields));
  return ReadStream(Written(*writer, deltas, Ended(reason)));
}

TEST(ChatStream, GoldenExchange) {
  const auto writer = ChatWriterFor(R"("stream":true)");
  const std::string head =
      R"(data: {"id":"chatcmpl-x1","object":"chat.completion.chunk","created":1700000000,)"
      R"("model":"tiny","system_fingerprint":"fp","choices":[{"index":0,"delta":)";
  const std::string open = R"(,"logprobs":null,"finish_reason":null}]})"
                           "\n\n";
  EXPECT_EQ(writer->Begin(), head + R"({"role":"assistant","content":""})" + open);
  EXPECT_EQ(writer->Ping(), ": ping\n\n");
  EXPECT_EQ(writer->Part({.deltas = {Said("a")}, .logprobs = {}}, 0),
            head + R"({"content":"a"})" + open);
  EXPECT_EQ(writer->EndChoice(Ended(FinishReason::kStop), 0),
            head + R"({},"logprobs":null,"finish_reason":"stop"}],"timings":{"cache_n":4,)"
                   R"("prompt_n":8,"prompt_ms":500.0,"prompt_per_second":16.0,"predicted_n":9,)"
                   R"("predicted_ms":1500.0,"predicted_per_second":6.0}})"
                   "\n\n");
  EXPECT_EQ(writer->End(), "data: [DONE]\n\n");
}

// Earlier versions allowed one answer only.
TEST(ChatStream, EachOfSeveralAnswersIsAChoiceAndUsageCountsAll) {
  const auto writer =
      ChatWriterFor(R"("stream":true,"n":2,"stream_options":{"include_usage":true})");
  std::string bytes = writer->Begin();
  bytes += writer->Part({.deltas = {Said("b")}, .logprobs = {}}, 1);
  bytes += writer->Part({.deltas = {Said("a"), CallBegin(0, "f")}, .logprobs = {}}, 0);
  bytes += writer->EndChoice(Ended(FinishReason::kLength), 1);
  bytes += writer->EndChoice(Ended(FinishReason::kToolCalls), 0);
  bytes += writer->End();
  const auto events = ReadStream(bytes);
  ASSERT_EQ(events.size(), 9U);
  const char* const indexes[] = {"0", "1", "1", "0", "0", "1", "0"};
  for (size_t i = 0; i < std::size(indexes); ++i)
    EXPECT_EQ(At(events[i].json(), "choices.0.index"), indexes[i]) << i;
  EXPECT_EQ(At(events[5].json(), "choices.0.finish_reason"), R"("length")");
  EXPECT_EQ(At(events[6].json(), "choices.0.finish_reason"), R"("tool_calls")");
  EXPECT_EQ(At(events[7].json(), "usage.completion_tokens"), "18");
}

TEST(ChatBody, EachOfSeveralAnswersHasItsOwnTextAndLogprobs) {
  const auto writer = ChatWriterFor(R"("n":2,"logprobs":true)");
  EXPECT_EQ(writer->Begin(), "");
  EXPECT_EQ(writer->Part({.deltas = {Said("b")}, .logprobs = {Logprob("b", -1.0F)}}, 1), "");
  EXPECT_EQ(writer->Part({.deltas = {CallBegin(0, "f")}, .logprobs = {Logprob("a", -2.0F)}}, 0),
            "");
  writer->EndChoice(Ended(FinishReason::kToolCalls), 0);
  writer->EndChoice(Ended(FinishReason::kStop), 1);
  const auto body = Json::Parse(writer->End());
  ASSERT_TRUE(body);
  EXPECT_EQ(At(*body, "choices.0.message.tool_calls.0.function.name"), R"("f")");
  EXPECT_EQ(At(*body, "choices.0.logprobs.content.0.token"), R"("a")");
  EXPECT_EQ(At(*body, "choices.1.index"), "1");
  EXPECT_EQ(At(*body, "choices.1.message.content"), R"("b")");
  EXPECT_EQ(At(*body, "choices.1.message.tool_calls"), "");
  EXPECT_EQ(At(*body, "choices.1.logprobs.content.0.token"), R"("b")");
  EXPECT_EQ(At(*body, "choices.1.finish_reason"), R"("stop")");
}

TEST(ChatStream, BeginsWithTheRoleAndEndsWithAReasonAndDone) {
  const auto events = Streamed({Said("a"), Said("b")}, FinishReason::kLength);
  ASSERT_EQ(events.size(), 5U);
  EXPECT_EQ(At(events[0].json(), "choices.0.delta.role"), R"("assistant")");
  EXPECT_EQ(At(events[0].json(), "choices.0.delta.content"), R"("")");
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(At(events[i].json(), "choices.0.finish_reason"), "null") << i;
  EXPECT_EQ(At(events[3].json(), "choices.0.delta"), "{}");
  EXPECT_EQ(At(events[3].json(), "choices.0.finish_reason"), R"("length")");
  EXPECT_EQ(events[4].data, "[DONE]");
}

TEST(ChatStream, EveryChunkHasTheSameHeadAndAnIndex) {
  const auto events =
      Streamed({Thought("t"), Said("a"), CallBegin(0, "f"), CallArguments(0, "{}")},
               FinishReason::kToolCalls, R"("stream_options":{"include_usage":true})");
  std::set<std::string> heads;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = events[i].json();
    heads.insert(At(chunk, "id") + At(chunk, "object") + At(chunk, "created") + At(chunk, "model") +
                 At(chunk, "system_fingerprint"));
    const bool has_choice = i + 2 < events.size();
    EXPECT_EQ(At(chunk, "choices.0.index"), has_choice ? "0" : "") << i;
    EXPECT_EQ(At(chunk, "error"), "") << "clients take it for a failure";
    EXPECT_EQ(events[i].name, "");
  }
  EXPECT_EQ(heads.size(), 1U);
}

TEST(ChatStream, UsageIsOneMoreChunkAndOnlyWhenAskedFor) {
  const auto silent = Streamed({Said("a")}, FinishReason::kStop);
  for (size_t i = 0; i + 1 < silent.size(); ++i) EXPECT_EQ(At(silent[i].json(), "usage"), "");

  const auto events =
      Streamed({Said("a")}, FinishReason::kStop, R"("stream_options":{"include_usage":true})");
  ASSERT_EQ(events.size(), silent.size() + 1);
  const Json stop = events[events.size() - 3].json();
  EXPECT_EQ(At(stop, "choices.0.finish_reason"), R"("stop")");
  EXPECT_EQ(At(stop, "usage"), "");
  EXPECT_EQ(At(stop, "timings"), "") << "they are in the last chunk";
  const Json usage = events[events.size() - 2].json();
  EXPECT_EQ(At(usage, "choices"), "[]");
  EXPECT_EQ(At(usage, "usage"), R"({"prompt_tokens":12,"completion_tokens":9,"total_tokens":21,)"
                                R"("prompt_tokens_details":{"cached_tokens":4},)"
                                R"("completion_tokens_details":{"reasoning_tokens":3}})");
  EXPECT_EQ(At(usage, "timings.prompt_n"), "8");
}

TEST(ChatStream, CallsNameThemselvesOnceWithoutArgumentsAndCountUp) {
  const auto events =
      Streamed({CallBegin(0, "add"), CallArguments(0, R"({"a":)"), CallArguments(0, "1}"),
                CallBegin(1, "sub"), CallArguments(1, R"({"s":"\""})")},
               FinishReason::kToolCalls);
  ASSERT_EQ(events.size(), 8U);
  const auto call = [&](size_t i) { return At(events[i].json(), "choices.0.delta.tool_calls.0"); };
  EXPECT_EQ(call(1), R"({"index":0,"id":"call_0","type":"function",)"
                     R"("function":{"name":"add","arguments":""}})");
  EXPECT_EQ(call(2), R"({"index":0,"function":{"arguments":"{\"a\":"}})");
  EXPECT_EQ(call(3), R"({"index":0,"function":{"arguments":"1}"}})");
  EXPECT_EQ(call(4), R"({"index":1,"id":"call_1","type":"function",)"
                     R"("function":{"name":"sub","arguments":""}})");
  EXPECT_EQ(call(5), R"({"index":1,"function":{"arguments":"{\"s\":\"\\\"\"}"}})");
  EXPECT_EQ(At(events[6].json(), "choices.0.finish_reason"), R"("tool_calls")");
  EXPECT_EQ(At(events[6].json(), "choices.0.delta"), "{}");
}

TEST(ChatStream, ThoughtsAreNoContent) {
  const auto events = Streamed({Thought("hm"), Said("a")}, FinishReason::kStop);
  EXPECT_EQ(At(events[1].json(), "choices.0.delta"), R"({"reasoning_content":"hm"})");
  EXPECT_EQ(At(events[2].json(), "choices.0.delta"), R"({"content":"a"})");
}

TEST(ChatStream, HardTextComesThroughInOneLine) {
  const auto events = Streamed({Said(kHardText)}, FinishReason::kStop);
  EXPECT_EQ(events[1].json().Find("choices")->At(0)->Find("delta")->Find("content")->text(),
            kHardText);
}

TEST(ChatStream, NothingToSayIsNoChunk) {
  const auto writer = ChatWriterFor(R"("stream":true)");
  EXPECT_EQ(writer->Part({}, 0), "");
  EXPECT_EQ(writer->Part({.deltas = {Said("")}, .logprobs = {}}, 0), "");
}

TEST(ChatStream, LogprobsComeWithTextOrAtTheEnd) {
  const auto writer = ChatWriterFor(R"("stream":true,"logprobs":true,"top_logprobs":2)");
  EXPECT_EQ(writer->Part({.deltas = {}, .logprobs = {Logprob("a", -0.1F)}}, 0), "") << "held back";
  const auto said =
      ReadStream(writer->Part({.deltas = {Said("ab")}, .logprobs = {Logprob("b", -0.25F)}}, 0));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(At(said[0].json(), "choices.0.logprobs"),
            R"({"content":[{"token":"a","logprob":-0.1,"bytes":[97],"top_logprobs":[)"
            R"({"token":"a","logprob":-0.1,"bytes":[97]},)"
            "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-3.5,\"bytes\":[240,159]}]},"
            R"({"token":"b","logprob":-0.25,"bytes":[98],"top_logprobs":[)"
            R"({"token":"b","logprob":-0.25,"bytes":[98]},)"
            "{\"token\":\"\xEF\xBF\xBD\",\"logprob\":-3.5,\"bytes\":[240,159]}]}],"
            R"("refusal":null})");
  writer->Part({.deltas = {}, .logprobs = {Logprob("z", -1e30F)}}, 0);
  const auto end = ReadStream(writer->EndChoice(Ended(FinishReason::kStop), 0));
  EXPECT_EQ(At(end[0].json(), "choices.0.logprobs.content.0.logprob"), "-9999.0");
}

TEST(ChatStream, LogprobsAreLeftOutUnlessAskedFor) {
  const auto writer = ChatWriterFor(R"("stream":true)");
  const auto events =
      ReadStream(writer->Part({.deltas = {Said("a")}, .logprobs = {Logprob("a", -0.5F)}}, 0));
  EXPECT_EQ(At(events[0].json(), "choices.0.logprobs"), "null");
}

TEST(ChatStream, AFailureIsAnErrorEventAndNothingMore) {
  const auto writer = ChatWriterFor(R"("stream":true)");
  writer->Begin();
  const auto events = ReadStream(writer->Failed({.message = "disk gone", .code = "io"}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].data,
            R"({"error":{"message":"disk gone","type":"server_error","param":null,"code":"io"}})");
}

Json Whole(const std::vector<ChatDelta>& deltas, FinishReason reason,
           const std::string& fields = "") {
  auto body = Json::Parse(Written(*ChatWriterFor(fields), deltas, Ended(reason)));
  EXPECT_TRUE(body);
  return body ? *std::move(body) : Json();
}

TEST(ChatBody, GoldenExchange) {
  EXPECT_EQ(Whole({Said("a"), Said("b")}, FinishReason::kStop).Dump(),
            R"({"id":"chatcmpl-x1","object":"chat.completion","created":1700000000,)"
            R"("model":"tiny","system_fingerprint":"fp","choices":[{"index":0,"message":)"
            R"({"role":"assistant","content":"ab","refusal":null},"logprobs":null,)"
            R"("finish_reason":"stop"}],"usage":{"prompt_tokens":12,"completion_tokens":9,)"
            R"("total_tokens":21,"prompt_tokens_details":{"cached_tokens":4},)"
            R"("completion_tokens_details":{"reasoning_tokens":3}},"timings":{"cache_n":4,)"
            R"("prompt_n":8,"prompt_ms":500.0,"prompt_per_second":16.0,"predicted_n":9,)"
            R"("predicted_ms":1500.0,"predicted_per_second":6.0}})");
}

TEST(ChatBody, ContentIsNullBesideCallsAlone) {
  const Json body = Whole({Thought("hm"), CallBegin(0, "f"), CallArguments(0, R"({"a")"),
                           CallArguments(0, ":1}"), CallBegin(1, "g"), CallArguments(1, "{}")},
                          FinishReason::kToolCalls);
  EXPECT_EQ(At(body, "choices.0.message"),
            R"({"role":"assistant","content":null,"reasoning_content":"hm","refusal":null,)"
            R"("tool_calls":[{"id":"call_0","type":"function","function":{"name":"f",)"
            R"("arguments":"{\"a\":1}"}},{"id":"call_1","type":"function","function":{)"
            R"("name":"g","arguments":"{}"}}]})");
  EXPECT_EQ(At(body, "choices.0.finish_reason"), R"("tool_calls")");
  EXPECT_EQ(At(Whole({Said("a"), CallBegin(0, "f")}, FinishReason::kToolCalls),
               "choices.0.message.content"),
            R"("a")");
  EXPECT_EQ(At(Whole({}, FinishReason::kStop), "choices.0.message.content"), R"("")");
}

TEST(ChatBody, LogprobsAreTogether) {
  const auto writer = ChatWriterFor(R"("logprobs":true)");
  EXPECT_EQ(writer->Begin(), "");
  EXPECT_EQ(writer->Part({.deltas = {Said("a")}, .logprobs = {Logprob("a", -0.5F)}}, 0), "");
  EXPECT_EQ(writer->Part({.deltas = {Said("b")}, .logprobs = {Logprob("b", -0.5F)}}, 0), "");
  EXPECT_EQ(writer->EndChoice(Ended(FinishReason::kStop), 0), "");
  const auto body = Json::Parse(writer->End());
  ASSERT_TRUE(body);
  EXPECT_EQ(At(*body, "choices.0.logprobs.content.1.token"), R"("b")");
  EXPECT_EQ(At(*body, "choices.0.logprobs.content.2"), "");
}

// Clients use the list of logprobs that they requested without checking that it exists.
TEST(ChatBody, LogprobsOfAnEmptyAnswerAreAnEmptyList) {
  const auto writer = ChatWriterFor(R"("logprobs":true)");
  writer->EndChoice(Ended(FinishReason::kStop), 0);
  const auto body = Json::Parse(writer->End());
  ASSERT_TRUE(body);
  EXPECT_EQ(At(*body, "choices.0.logprobs"), R"({"content":[],"refusal":null})");
}

TEST(ChatBody, AFailureIsTheErrorsBody) {
  EXPECT_EQ(ChatWriterFor("")->Failed({.message = "m"}),
            R"({"error":{"message":"m","type":"server_error","param":null,"code":null}})");
}

}  // namespace
}  // namespace moestro
