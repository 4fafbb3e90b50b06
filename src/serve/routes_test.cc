// SPDX-License-Identifier: MIT
#include "serve/routes.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"

namespace moestro {
namespace {

// The reply of a server whose model is not loaded yet.
HttpReply WhileLoading(const std::string& method, const std::string& path) {
  const Routes routes({});
  RequestRecord record{.id = "req_1", .path = path};
  HttpRequest request{.method = method,
                      .path = path,
                      .body = "{}",
                      .header = [](std::string_view) { return std::nullopt; },
                      .query = [](std::string_view) { return std::nullopt; },
                      .is_gone = [] { return false; },
                      .record = &record};
  return routes.Answer(request);
}

TEST(Routes, WhileTheModelLoadsEachClientIsToldInItsOwnForm) {
  for (const char* path : {"/v1/chat/completions", "/v1/responses", "/completion"}) {
    const HttpReply reply = WhileLoading("POST", path);
    EXPECT_EQ(reply.status, 503);
    EXPECT_TRUE(reply.body.contains(R"("message":"Loading model")")) << reply.body;
  }
  for (const char* path : {"/v1/messages", "/messages", "/v1/messages/count_tokens"}) {
    const HttpReply reply = WhileLoading("POST", path);
    EXPECT_EQ(reply.status, 503);
    EXPECT_TRUE(reply.body.starts_with(R"({"type":"error","error":{"type":"overloaded_error")"))
        << reply.body;
    EXPECT_TRUE(reply.body.contains(R"("request_id":"req_1")")) << reply.body;
  }
  for (const auto& [method, path] :
       {std::pair("POST", "/api/chat"), std::pair("POST", "/api/generate"),
        std::pair("GET", "/api/tags"), std::pair("POST", "/api/show")}) {
    const HttpReply reply = WhileLoading(method, path);
    EXPECT_EQ(reply.status, 503);
    const auto body = Json::Parse(reply.body);
    ASSERT_TRUE(body) << reply.body;
    EXPECT_TRUE(body->Find("error")->text()) << "Ollama's error is a text: " << reply.body;
    EXPECT_EQ(reply.headers.front(), std::pair(std::string("Retry-After"), std::string("2")));
  }
}

TEST(Routes, WhoAsksForTheHeadIsToldWhatGetWouldBe) {
  EXPECT_EQ(WhileLoading("HEAD", "/").status, 200);
  EXPECT_EQ(WhileLoading("HEAD", "/health").status, 503);
  EXPECT_EQ(WhileLoading("HEAD", "/v1/models").status, 503);
  EXPECT_EQ(WhileLoading("HEAD", "/nowhere").status, 404);
}

}  // namespace
}  // namespace moestro
