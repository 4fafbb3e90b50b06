// SPDX-License-Identifier: MIT
// Text completions on the wire.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "api/stream_reader_testing.h"

namespace moestro {
namespace {

std::unique_ptr<ReplyWriter> CompletionWriterFor(const std::string& fields) {
  return WriterFor(ApiKind::kCompletion, "{" + fields + "}");
}

TEST(CompletionStream, GoldenExchange) {
  const auto writer = CompletionWriterFor(R"("prompt":"p","stream":true)");
  const std::string head =
      R"(data: {"id":"cmpl-x1","object":"text_completion","created":1700000000,"model":"tiny",)"
      R"("system_fingerprint":"fp","choices":[{"text":)";
  EXPECT_EQ(writer->Begin(), "");
  EXPECT_EQ(writer->Part({.deltas = {Said("a"), Said("b")}, .logprobs = {}}, 0),
            head + R"("ab","index":0,"logprobs":null,"finish_reason":null}]})"
                   "\n\n");
  EXPECT_EQ(writer->EndChoice(Ended(FinishReason::kLength), 0),
            head + R"("","index":0,"logprobs":null,"finish_reason":"length"}],"timings":)"
                   R"({"cache_n":4,"prompt_n":8,"prompt_ms":500.0,"prompt_per_second":16.0,)"
                   R"("predicted_n":9,"predicted_ms":1500.0,"predicted_per_second":6.0}})"
                   "\n\n");
  EXPECT_EQ(writer->End(), "data: [DONE]\n\n");
}

TEST(CompletionStream, EachPromptIsAChoiceAndUsageCountsAll) {
  const auto writer = CompletionWriterFor(
      R"("prompt":["p","q"],"stream":true,"stream_options":{"include_usage":true})");
  std::string bytes = writer->Begin();
  bytes += writer->Part({.deltas = {Said("q1")}, .logprobs = {}}, 1);
  bytes += writer->Part({.deltas = {Said("p1")}, .logprobs = {}}, 0);
  bytes += writer->EndChoice(Ended(FinishReason::kStop), 1);
  bytes += writer->EndChoice(Ended(FinishReason::kLength), 0);
  bytes += writer->End();
  const auto events = ReadStream(bytes);
  ASSERT_EQ(events.size(), 6U);
  EXPECT_EQ(At(events[0].json(), "choices.0.index"), "1");
  EXPECT_EQ(At(events[1].json(), "choices.0.index"), "0");
  EXPECT_EQ(At(events[3].json(), "choices.0.finish_reason"), R"("length")");
  EXPECT_EQ(At(events[3].json(), "usage"), "");
  EXPECT_EQ(At(events[4].json(), "choices"), "[]");
  EXPECT_EQ(At(events[4].json(), "usage.total_tokens"), "42");
  EXPECT_EQ(events[5].data, "[DONE]");
}

TEST(CompletionStream, HardTextComesThrough) {
  const auto writer = CompletionWriterFor(R"("prompt":"p","stream":true)");
  const auto events = ReadStream(writer->Part({.deltas = {Said(kHardText)}, .logprobs = {}}, 0));
  EXPECT_EQ(events[0].json().Find("choices")->At(0)->Find("text")->text(), kHardText);
}

TEST(CompletionStream, AFailureIsAnErrorEvent) {
  const auto events = ReadStream(
      CompletionWriterFor(R"("prompt":"p","stream":true)")->Failed({.message = "disk gone"}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(At(events[0].json(), "error.message"), R"("disk gone")");
}

TEST(CompletionBody, ChoicesAreInOrderWhateverTheOrderOfTheirEnds) {
  const auto writer = CompletionWriterFor(R"("prompt":["p","q"])");
  EXPECT_EQ(writer->Begin(), "");
  EXPECT_EQ(writer->Part({.deltas = {Said("q1")}, .logprobs = {}}, 1), "");
  EXPECT_EQ(writer->Part({.deltas = {Said("p1")}, .logprobs = {}}, 0), "");
  EXPECT_EQ(writer->Part({.deltas = {Said("q2")}, .logprobs = {}}, 1), "");
  EXPECT_EQ(writer->EndChoice(Ended(FinishReason::kStop), 1), "");
  EXPECT_EQ(writer->EndChoice(Ended(FinishReason::kLength), 0), "");
  const auto body = Json::Parse(writer->End());
  ASSERT_TRUE(body);
  EXPECT_EQ(At(*body, "object"), R"("text_completion")");
  EXPECT_EQ(At(*body, "choices"),
            R"([{"text":"p1","index":0,"logprobs":null,"finish_reason":"length"},)"
            R"({"text":"q1q2","index":1,"logprobs":null,"finish_reason":"stop"}])");
  EXPECT_EQ(At(*body, "usage.prompt_tokens"), "24");
  EXPECT_EQ(At(*body, "timings.predicted_ms"), "3000.0");
}

// An echoed prompt comes as the first part; its first token has no logprob.
TEST(CompletionBody, LogprobsAreColumnsAndOffsetsCountCharacters) {
  const auto writer = CompletionWriterFor(R"("prompt":"p","echo":true,"logprobs":1)");
  TokenLogprob first;
  first.chosen = {.token = 1, .bytes = "\xC3\xA4", .logprob = std::nanf("")};
  TokenLogprob half;
  half.chosen = {.token = 2, .bytes = "\xF0\x9F", .logprob = -0.5F};
  TokenLogprob other_half = half;
  other_half.chosen.bytes = "\x98\x80";
  TokenLogprob last;
  last.chosen = {.token = 3, .bytes = "z", .logprob = -std::numeric_limits<float>::infinity()};
  last.top = {{.token = 4, .bytes = "y", .logprob = -0.1F}};
  writer->Part({.deltas = {Said("\xC3\xA4")}, .logprobs = {first}}, 0);
  writer->Part({.deltas = {Said("\xF0\x9F\x98\x80z")}, .logprobs = {half, other_half, last}}, 0);
  writer->EndChoice(Ended(FinishReason::kStop), 0);
  const auto body = Json::Parse(writer->End());
  ASSERT_TRUE(body);
  EXPECT_EQ(At(*body, "choices.0.text"), "\"\xC3\xA4\xF0\x9F\x98\x80z\"");
  EXPECT_EQ(At(*body, "choices.0.logprobs.token_logprobs"), "[null,-0.5,-0.5,-9999.0]");
  EXPECT_EQ(At(*body, "choices.0.logprobs.text_offset"), "[0,1,2,2]");
  EXPECT_EQ(At(*body, "choices.0.logprobs.tokens.3"), R"("z")");
  EXPECT_EQ(At(*body, "choices.0.logprobs.top_logprobs.0"), "null");
  EXPECT_EQ(At(*body, "choices.0.logprobs.top_logprobs.3"), R"({"y":-0.1})");
}

TEST(CompletionBody, LogprobsOfAnEmptyTextAreEmptyColumns) {
  const auto writer = CompletionWriterFor(R"("prompt":"p","logprobs":2)");
  writer->EndChoice(Ended(FinishReason::kStop), 0);
  const auto body = Json::Parse(writer->End());
  ASSERT_TRUE(body);
  EXPECT_EQ(At(*body, "choices.0.logprobs"),
            R"({"tokens":[],"token_logprobs":[],"top_logprobs":[],"text_offset":[]})");
}

TEST(CompletionStream, OffsetsGoOnFromChunkToChunk) {
  const auto writer = CompletionWriterFor(R"("prompt":"p","stream":true,"logprobs":0)");
  writer->Part({.deltas = {Said("abc")}, .logprobs = {Logprob("abc", -0.5F)}}, 0);
  const auto events =
      ReadStream(writer->Part({.deltas = {Said("d")}, .logprobs = {Logprob("d", -0.5F)}}, 0));
  EXPECT_EQ(At(events[0].json(), "choices.0.logprobs.text_offset"), "[3]");
}

}  // namespace
}  // namespace moestro
