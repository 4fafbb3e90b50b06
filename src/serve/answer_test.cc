// SPDX-License-Identifier: MIT
#include "serve/answer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>

namespace moestro {
namespace {

bool Has(const HttpReply& reply, const std::string& name, const std::string& value) {
  return std::ranges::find(reply.headers, std::pair(name, value)) != reply.headers.end();
}

// OpenAI's clients repeat a request after any 5xx unless x-should-retry is false.
TEST(ErrorReply, WhatWillNotGetBetterIsNotAskedAgain) {
  for (const int status : {500, 501, 504}) {
    const HttpReply reply = ErrorReply(ApiKind::kChat, {.status = status, .message = "m"}, {});
    EXPECT_EQ(reply.status, status);
    EXPECT_TRUE(Has(reply, "x-should-retry", "false")) << status;
  }
}

TEST(ErrorReply, WhatMayGetBetterSaysWhen) {
  for (const int status : {429, 503}) {
    const HttpReply reply = ErrorReply(ApiKind::kChat, {.status = status, .message = "m"}, {});
    EXPECT_TRUE(Has(reply, "Retry-After", "2")) << status;
    EXPECT_FALSE(Has(reply, "x-should-retry", "false")) << status;
  }
}

}  // namespace
}  // namespace moestro
