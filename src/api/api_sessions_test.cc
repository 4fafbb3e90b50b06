// SPDX-License-Identifier: MIT
// Later requests of a conversation: stored answers, marks for caches, thoughts that come back, and
// parts of earlier turns that are no text.
#include <gtest/gtest.h>

#include <string>

#include "api/api_request.h"
#include "api/parsed_request_testing.h"

namespace moestro {
namespace {

// The stored conversation that an id stands for, and requests that go on from it.
TEST(ResponsesRequest, StoredItemsStandBetweenInstructionsAndInput) {
  const RecallItems recall = [](const std::string& id) -> ApiResult<Json> {
    if (id != "resp_1") return BadRequest("previous_response_id", "none such");
    auto items = Json::Parse(R"([{"role":"user","content":"a"},{"type":"function_call",
      "call_id":"c1","name":"f","arguments":"{}"}])");
    return *std::move(items);
  };
  const auto parsed = [&](const std::string& fields, ApiPurpose purpose = ApiPurpose::kAnswer) {
    return ParseApiRequest(ApiKind::kResponses, "{" + fields + "}", 1000, purpose, {}, recall);
  };
  const std::string onward = R"("previous_response_id":"resp_1","instructions":"be","input":[
    {"type":"function_call_output","call_id":"c1","output":"7"},{"role":"user","content":"b"}])";
  const auto request = parsed(onward);
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(Lines(request->chat), (Strings{"system: be", "user: a", "assistant:  [c1 f{}]",
                                           "tool: 7 <c1 f>", "user: b"}));
  EXPECT_TRUE(request->stores);
  EXPECT_EQ(request->previous, "resp_1");
  const auto items = Json::Parse(request->items);
  ASSERT_TRUE(items) << request->items;
  EXPECT_EQ(items->size(), 4U);
  const auto counted = parsed(onward, ApiPurpose::kInput);
  ASSERT_TRUE(counted);
  EXPECT_EQ(counted->chat.turns.size(), 5U);
  EXPECT_FALSE(counted->stores);
  EXPECT_EQ(parsed(R"("input":"hi")")->items,
            R"([{"type":"message","role":"user","content":"hi"}])");
  const auto kept_out = parsed(R"("input":"hi","store":false)");
  EXPECT_FALSE(kept_out->stores);
  EXPECT_TRUE(kept_out->items.empty());
  EXPECT_TRUE(kept_out->warnings.empty());
  EXPECT_EQ(parsed(R"("input":"hi","previous_response_id":"resp_2")").error().message, "none such");
  EXPECT_EQ(parsed(R"("previous_response_id":"resp_1")").error().param, "input");
  const auto too_long = parsed(R"("input":")" + std::string(5 << 20, 'a') + '"');
  EXPECT_FALSE(too_long->stores);
  ASSERT_EQ(too_long->warnings.size(), 1U);
  EXPECT_TRUE(too_long->warnings[0].contains("4 MiB")) << too_long->warnings[0];
}

// Marks for a cache are accepted on all that the API lets carry one, and change nothing: prefixes
// are found without marks.
TEST(MessagesRequest, CacheControlIsAcceptedWhereverItMayStand) {
  const auto parsed = [](const std::string& mark) {
    const std::string first = mark.empty() ? "" : mark.substr(1) + ",";
    return ParsedAs(ApiKind::kMessages,
                    "{" + first + R"("max_tokens":9,
      "system":[{"type":"text","text":"a")" +
                        mark + R"(}],
      "tools":[{"name":"f","input_schema":{"type":"object"})" +
                        mark + R"(},
        {"type":"custom","name":"g","input_schema":{"type":"object"})" +
                        mark + R"(}],
      "messages":[
      {"role":"user","content":[{"type":"text","text":"b")" +
                        mark + R"(},
        {"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"})" +
                        mark +
                        R"(},{"type":"search_result","source":"s","title":"t","content":[
          {"type":"text","text":"r")" +
                        mark + "}]" + mark + R"(}]},
      {"role":"assistant","content":[{"type":"text","text":"c")" +
                        mark + R"(},
        {"type":"tool_use","id":"t","name":"f","input":{})" +
                        mark + R"(}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[
        {"type":"text","text":"e")" +
                        mark + "}]" + mark + R"(}]}]})");
  };
  const ApiRequest plain = parsed("");
  EXPECT_EQ(plain.chat.turns.size(), 4U);
  for (const std::string mark :
       {R"(,"cache_control":{"type":"ephemeral"})",
        R"(,"cache_control":{"type":"ephemeral","ttl":"1h"})", R"(,"cache_control":null)"}) {
    const ApiRequest marked = parsed(mark);
    EXPECT_EQ(Lines(marked.chat), Lines(plain.chat));
    EXPECT_EQ(marked.chat.tools.size(), 2U);
    EXPECT_EQ(marked.chat.tools[0].parameters, plain.chat.tools[0].parameters);
    EXPECT_TRUE(marked.ignored.empty());
    EXPECT_TRUE(marked.warnings.empty());
  }
}

// Thoughts come back as they were sent, ours and those of other servers.
TEST(MessagesRequest, ThoughtsWithASignatureComeBack) {
  const auto writer =
      MakeReplyWriter(ParsedAs(ApiKind::kMessages,
                               R"({"max_tokens":9,"messages":[{"role":"user","content":"a"}]})"),
                      {.id = "x1", .model = "tiny", .fingerprint = {}});
  ChatDelta thought;
  thought.kind = ChatDelta::Kind::kReasoning;
  thought.text = "hm\n";
  ChatDelta text;
  text.text = "b";
  writer->Part({.deltas = {thought, text}, .logprobs = {}}, 0);
  writer->EndChoice({}, 0);
  const auto answer = Json::Parse(writer->End());
  ASSERT_TRUE(answer);
  const std::string ours = answer->Find("content")->Dump();
  EXPECT_TRUE(ours.contains(R"("signature":"moestro-)")) << ours;
  const auto again = [](const std::string& content) {
    return Lines(ParsedAs(ApiKind::kMessages, R"({"max_tokens":9,"messages":[
      {"role":"user","content":"a"},{"role":"assistant","content":)" +
                                                  content + R"(},{"role":"user","content":"c"}]})")
                     .chat);
  };
  const Strings lines = {"user: a", "assistant: b (hm\n)", "user: c"};
  EXPECT_EQ(again(ours), lines);
  for (const std::string signature : {R"(,"signature":"EqQBCgIYAhIM")", R"(,"signature":"")", ""}) {
    EXPECT_EQ(again(R"([{"type":"thinking","thinking":"hm\n")" + signature +
                    R"(},{"type":"redacted_thinking","data":"x"},{"type":"text","text":"b"}])"),
              lines);
  }
}

std::string Sentence(const std::string& type) {
  return "[Something of type \"" + type + "\" was left out here: it is no text.]";
}

// A conversation that began with a model which sees goes on with one that reads.
TEST(EarlierTurn, PicturesSoundsAndFilesOfChatBecomeSentences) {
  const std::string before = R"({"messages":[
    {"role":"system","content":[{"type":"text","text":"s"},{"type":"image_url","image_url":{}}]},
    {"role":"user","content":[{"type":"text","text":"a"},
      {"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},
      {"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}},
      {"type":"file","file":{"file_id":"f"}}]},
    {"role":"assistant","content":null,"audio":{"id":"audio_1"}},)";
  const std::string tools = R"(
    {"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"c","content":[{"type":"image_url","image_url":{}}]}]})";
  const ApiRequest request =
      ParsedAs(ApiKind::kChat, before + R"({"role":"user","content":"b"},)" + tools);
  EXPECT_EQ(Lines(request.chat),
            (Strings{"system: s\n" + Sentence("image_url"),
                     "user: a\n" + Sentence("image_url") + "\n" + Sentence("input_audio") + "\n" +
                         Sentence("file"),
                     "assistant: " + Sentence("audio"), "user: b", "assistant:  [c f{}]",
                     "tool: " + Sentence("image_url") + " <c >"}));
  EXPECT_EQ(request.warnings.size(), 6U);
  EXPECT_EQ(request.warnings[1],
            "messages[1].content[1] of type \"image_url\" is left out; the model reads text only");
  // The user's last words are refused, also with a tool's work behind them.
  const auto refused = ParseApiRequest(
      ApiKind::kChat,
      before + R"({"role":"user","content":[{"type":"image_url","image_url":{}}]},)" + tools, 1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, 400);
  EXPECT_EQ(refused.error().param, "messages[3].content[0].type");
}

TEST(EarlierTurn, PicturesAndFilesOfResponsesBecomeSentences) {
  const std::string turns = R"({"role":"user","content":[{"type":"input_text","text":"a"},
      {"type":"input_image","image_url":"data:image/png;base64,iVBORw0KGgo="},
      {"type":"input_file","file_data":"data:application/pdf;base64,JVBERi0="}]})";
  const std::string lines = "user: a\n" + Sentence("input_image") + "\n" + Sentence("input_file");
  const ApiRequest request =
      ParsedAs(ApiKind::kResponses,
               R"({"input":[)" + turns + R"(,{"role":"user","content":"b"},{"type":"function_call",
                  "call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output",
                  "call_id":"c","output":[{"type":"input_image","file_id":"f"}]}]})");
  EXPECT_EQ(Lines(request.chat), (Strings{lines, "user: b", "assistant:  [c f{}]",
                                          "tool: " + Sentence("input_image") + " <c f>"}));
  EXPECT_EQ(request.warnings.size(), 3U);
  EXPECT_FALSE(ParseApiRequest(ApiKind::kResponses, R"({"input":[)" + turns + "]}", 1000));
  // All stored turns are earlier ones.
  const RecallItems recall = [&](const std::string&) -> ApiResult<Json> {
    return *Json::Parse("[" + turns + "]");
  };
  const auto onward =
      ParseApiRequest(ApiKind::kResponses, R"({"input":"b","previous_response_id":"resp_1"})", 1000,
                      ApiPurpose::kAnswer, {}, recall);
  ASSERT_TRUE(onward) << onward.error().message;
  EXPECT_EQ(Lines(onward->chat), (Strings{lines, "user: b"}));
}

TEST(EarlierTurn, PicturesAndDocumentsOfMessagesBecomeSentences) {
  const std::string seen = R"({"role":"user","content":[{"type":"text","text":"a"},
      {"type":"image","source":{"type":"base64","media_type":"image/png","data":"iVBORw0KGgo="}},
      {"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JQ"}},
      {"type":"container_upload","file_id":"f"},
      {"type":"document","source":{"type":"text","media_type":"text/plain","data":"d"}}]})";
  const auto body = [&](const std::string& rest) {
    return R"({"max_tokens":9,"messages":[)" + seen + rest + "]}";
  };
  const ApiRequest request = ParsedAs(ApiKind::kMessages, body(R"(,
    {"role":"assistant","content":[{"type":"image","source":{}},{"type":"text","text":"b"}]},
    {"role":"user","content":"c"},
    {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[
      {"type":"image","source":{}}]}]})"));
  EXPECT_EQ(Lines(request.chat),
            (Strings{"user: a\n" + Sentence("image") + "\n" + Sentence("document") + "\n" +
                         Sentence("container_upload") + "\nd",
                     "assistant: " + Sentence("image") + "\nb", "user: c", "assistant:  [t f{}]",
                     "tool: " + Sentence("image") + " <t f>"}));
  EXPECT_EQ(request.warnings.size(), 5U);
  // Results of tools are no words of the user, whose last ones have the picture.
  for (const std::string rest : {"", R"(,{"role":"assistant","content":[{"type":"tool_use",
         "id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result",
         "tool_use_id":"t","content":"x"}]})"}) {
    const auto refused = ParseApiRequest(ApiKind::kMessages, body(rest), 1000);
    ASSERT_FALSE(refused) << rest;
    EXPECT_EQ(refused.error().param, "messages[0].content[1].type");
  }
  // What only the other role can say stays an error.
  EXPECT_FALSE(ParseApiRequest(ApiKind::kMessages, R"({"max_tokens":9,"messages":[
    {"role":"user","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
    {"role":"user","content":"c"}]})",
                               1000));
}

TEST(EarlierTurn, PicturesOfOllamasMessagesBecomeASentence) {
  const std::string seen = R"({"role":"user","content":"a","images":["aGk=","aGk="]})";
  const ApiRequest request = ParsedAs(ApiKind::kOllamaChat, R"({"messages":[)" + seen + R"(,
        {"role":"assistant","content":"b"},{"role":"tool","tool_name":"f","images":["aGk="]},
        {"role":"user","content":"c","images":[]}]})");
  EXPECT_EQ(Lines(request.chat), (Strings{"user: a\n" + Sentence("image"), "assistant: b",
                                          "tool: " + Sentence("image") + " < f>", "user: c"}));
  EXPECT_EQ(request.warnings.size(), 2U);
  const auto refused =
      ParseApiRequest(ApiKind::kOllamaChat, R"({"messages":[)" + seen + "]}", 1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().param, "messages[0].images");
}

}  // namespace
}  // namespace moestro
