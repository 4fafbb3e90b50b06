// SPDX-License-Identifier: MIT
// The server as a program, asked for several answers to a prompt.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "tests/serve/serve_testing.h"

namespace moestro::testing {
namespace {

std::string BodyOf(const std::string& reply) {
  const size_t end = reply.find("\r\n\r\n");
  return end == std::string::npos ? "" : reply.substr(end + 4);
}

class ServeAnswersTest : public ServeTest {
 protected:
  // What a completion with these fields is answered.
  Json Complete(const std::string& fields) {
    const std::string reply =
        Ask(port_, Post("/v1/completions", R"({"max_tokens":8,"temperature":1,)" + fields + "}"));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
    auto body = Json::Parse(BodyOf(reply));
    EXPECT_TRUE(body) << reply;
    return body ? *std::move(body) : Json();
  }
  static std::string Text(const Json& body, size_t choice) {
    const auto found = body.Find("choices")->At(choice);
    if (!found) return "";
    EXPECT_EQ(found->Find("index")->Dump(), std::to_string(choice));
    return found->Find("text")->text().value_or("");
  }
  static double Usage(const Json& body, const char* field) {
    return body.Find("usage")->Find(field)->number().value_or(-1.0);
  }
};

// 400: a request gets one answer.
TEST_F(ServeAnswersTest, SeveralAnswersAreThoseOfTheNextSeeds) {
  Serve({"--parallel", "2"});
  const Json all = Complete(R"("prompt":["Once upon a time","A cat"],"n":3,"seed":7)");
  double tokens = 0.0;
  for (size_t i = 0; i < 6; ++i) {
    const std::string prompt = i < 3 ? R"("Once upon a time")" : R"("A cat")";
    const Json one = Complete(R"("prompt":)" + prompt + R"(,"seed":)" + std::to_string(7 + i % 3));
    EXPECT_EQ(Text(all, i), Text(one, 0)) << i;
    EXPECT_FALSE(Text(all, i).empty());
    tokens += Usage(one, "completion_tokens");
  }
  EXPECT_EQ(Usage(all, "completion_tokens"), tokens);
  EXPECT_EQ(Usage(all, "prompt_tokens"),
            Usage(Complete(R"("prompt":["Once upon a time","A cat"])"), "prompt_tokens"));
  const std::string refused =
      Ask(port_, Post("/v1/completions", R"({"prompt":"a","max_tokens":1,"n":129})"));
  EXPECT_TRUE(refused.starts_with("HTTP/1.1 400")) << refused;
  EXPECT_TRUE(refused.contains("128")) << refused;
  EXPECT_EQ(End().exit_code, 0);
}

// The engine once had room for one text whatever --parallel said. The hosted one takes that at its
// word, and four texts stopped each other for good.
TEST_F(ServeAnswersTest, EightTextsBesideEachOtherOnTheHostedEngine) {
  Serve({"--engine", "hosted", "--parallel", "8", "--cache", "25%"});
  const Json all = Complete(R"("prompt":["A","The","Tom","One day","Mom","A cat","Lily","Once"])");
  for (size_t i = 0; i < 8; ++i) EXPECT_FALSE(Text(all, i).empty()) << i;
  EXPECT_EQ(End().exit_code, 0);
}

// Once all errors had OpenAI's form, for every client.
TEST_F(ServeAnswersTest, ErrorsHaveTheFormOfThePathsClients) {
  Serve();
  const auto body = [&](const std::string& request) { return BodyOf(Ask(port_, request)); };
  const std::string long_header = "X-Long: " + std::string(20'000, 'a') + "\r\n";
  for (const std::string& request :
       {Get("/api/none"), Get("/api/chat"), Get("/api/tags", long_header),
        std::string("POST /api/chat HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                    "Content-Length: 99999999999\r\n\r\n")}) {
    const std::string told = body(request);
    EXPECT_TRUE(told.starts_with(R"({"error":")")) << told;
  }
  const std::string id = "X-Request-Id: mine\r\n";
  for (const std::string& request :
       {Post("/v1/messages", "{}", id), Get("/v1/messages", id),
        Post("/v1/messages/count_tokens", "{", id), Get("/v1/messages", id + long_header)}) {
    const std::string told = body(request);
    EXPECT_TRUE(told.starts_with(R"({"type":"error","error":{)")) << told;
    EXPECT_TRUE(told.ends_with(R"(,"request_id":"mine"})")) << told;
  }
  EXPECT_TRUE(body(Get("/none")).starts_with(R"({"error":{"message":)"));
  EXPECT_EQ(End().exit_code, 0);
}

// The line said 0.
TEST_F(ServeAnswersTest, WhatWasComputedForAClientThatLeftIsLogged) {
  Serve({"--log-requests"});
  {
    const SocketClient client(port_);
    ASSERT_TRUE(client.Send(
        Post("/v1/completions", R"({"prompt":"a","n":3,"stream":true,"ignore_eos":true})")));
    for (int i = 0; i < 4; ++i) client.ReceiveUntil("\n\n");
  }
  const Finished finished = End();
  const std::string_view err = finished.err;
  const size_t at = err.find(R"("completion_tokens":)");
  ASSERT_NE(at, err.npos) << err;
  EXPECT_GE(std::stoi(finished.err.substr(at + 20)), 3) << err;
  EXPECT_TRUE(err.contains(R"("finish":"cancelled")")) << err;
}

TEST_F(ServeAnswersTest, TheTemplateInUseIsTold) {
  Serve({"--chat-template", "gemma"});
  EXPECT_TRUE(Ask(port_, Get("/props")).contains("<start_of_turn>"));
  EXPECT_TRUE(Ask(port_, Post("/api/show", R"({"model":"any"})")).contains("<start_of_turn>"));
  EXPECT_TRUE(Ask(port_, Post("/api/show", R"({"name":"any"})")).contains("<start_of_turn>"));
  for (const char* wrong : {"{}", "[]", "show it", "", R"({"model":3})", R"({"model":""})"}) {
    const std::string reply = Ask(port_, Post("/api/show", wrong));
    EXPECT_TRUE(reply.starts_with("HTTP/1.1 400")) << wrong << reply;
    EXPECT_TRUE(reply.contains(R"({"error":")")) << wrong << reply;
  }
  EXPECT_EQ(End().exit_code, 0);
}

// 400: the schema has a keyword that a grammar cannot say.
TEST_F(ServeAnswersTest, ASchemaIsHeldToAsFarAsCanBeAndTheRestIsSaid) {
  Serve({"--cors", "http://friend.example"});
  std::string request =
      Post("/v1/completions", R"({"prompt":"a","max_tokens":30,"json_schema":{"type":"array",)"
                              R"("items":{"enum":[1,2]},"maxItems":2,"uniqueItems":true}})");
  request.insert(request.find("\r\n") + 2, "Origin: http://friend.example\r\n");
  const std::string reply = Ask(port_, request);
  EXPECT_TRUE(reply.starts_with("HTTP/1.1 200")) << reply;
  EXPECT_TRUE(
      reply.contains("\r\nX-Moestro-Warning: json_schema #: \"uniqueItems\" is not held to\r\n"))
      << reply;
  EXPECT_TRUE(reply.contains("Retry-After, X-Moestro-Warning, X-Request-Id, X-Session-Id\r\n"))
      << reply;
  EXPECT_EQ(End().exit_code, 0);
}

}  // namespace
}  // namespace moestro::testing
