// SPDX-License-Identifier: MIT
#include "api/api_error.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

TEST(ApiError, WhatTheClientCanMendIsA400) {
  for (const Errc code : {Errc::kInvalidRequest, Errc::kUnsupported, Errc::kUsage}) {
    const ApiError error = ToApiError({code, "too hot"});
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_EQ(error.message, "too hot");
  }
  for (const Errc code : {Errc::kInvalidFile, Errc::kIo, Errc::kNoMemory, Errc::kDevice}) {
    EXPECT_EQ(ToApiError({code, "x"}).status, 500);
    EXPECT_EQ(ToApiError({code, "x"}).type, "server_error");
  }
  // Work is interrupted when the server goes down.
  EXPECT_EQ(ToApiError({Errc::kInterrupted, "x"}).status, 503);
  EXPECT_EQ(ToApiError({Errc::kInterrupted, "x"}).code, "server_shutdown");
}

TEST(ApiError, BodiesAreWhatEachClientReads) {
  const ApiError error{.status = 400,
                       .type = "invalid_request_error",
                       .message = "say \"please\"\n",
                       .code = "rude",
                       .param = "prompt"};
  EXPECT_EQ(ErrorBody(error), R"({"error":{"message":"say \"please\"\n",)"
                              R"("type":"invalid_request_error","param":"prompt","code":"rude"}})");
  EXPECT_EQ(ErrorBody({.message = "m"}),
            R"({"error":{"message":"m","type":"server_error","param":null,"code":null}})");
  EXPECT_EQ(MessagesErrorBody(error, "req_1"),
            R"({"type":"error","error":{"type":"invalid_request_error",)"
            R"("message":"say \"please\"\n"},"request_id":"req_1"})");
}

TEST(ApiError, MessagesHaveTypesOfTheirOwn) {
  const auto type = [](int status) { return MessagesErrorBody({.status = status}, "x"); };
  EXPECT_NE(type(401).find("\"authentication_error\""), std::string::npos);
  EXPECT_NE(type(404).find("\"not_found_error\""), std::string::npos);
  EXPECT_NE(type(413).find("\"request_too_large\""), std::string::npos);
  EXPECT_NE(type(422).find("\"invalid_request_error\""), std::string::npos);
  EXPECT_NE(type(429).find("\"rate_limit_error\""), std::string::npos);
  EXPECT_NE(type(500).find("\"api_error\""), std::string::npos);
  EXPECT_NE(type(503).find("\"overloaded_error\""), std::string::npos);
}

TEST(ApiError, AnExceededContextNamesBothNumbers) {
  const ApiError error = ContextExceeded(5000, 100, 4096);
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  for (const char* number : {"5000", "100", "4096"})
    EXPECT_NE(error.message.find(number), std::string::npos) << error.message;
  EXPECT_EQ(ContextExceeded(5000, -1, 4096).message.find("-1"), std::string::npos);
}

TEST(ApiError, WhatIsNotOfferedIsA501) {
  const ApiError error = NotOffered("/v1/embeddings");
  EXPECT_EQ(error.status, 501);
  EXPECT_NE(ErrorBody(error).find("/v1/embeddings"), std::string::npos);
}

}  // namespace
}  // namespace moestro
