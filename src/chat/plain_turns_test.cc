// SPDX-License-Identifier: MIT
#include "chat/plain_turns.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "chat/answers_testing.h"

namespace moestro {
namespace {

// Written calls are read as the same calls, in each style that can stand in content.
TEST(CallText, WhatIsWrittenIsRead) {
  const std::vector<ToolCall> calls = {
      {.id = "",
       .name = "add",
       .arguments = R"({"a": [1, {"k": "v \"w\""}], "b": true, "c": null})"},
      {.id = "", .name = "look", .arguments = R"({"place": "It's é\n<b>"})"}};
  for (const AnswerStyle& style :
       {Tagged(), List(), Named(), Parameters(), KeyValues(), JoinedKeyValues(), Invokes(),
        MarkedStrings(), Numbered(), Separated(), Dsml(), Nested(), Python(), Actions(), Suffixed(),
        Piped()}) {
    const std::string text = CallsText(style.calls, calls);
    std::vector<std::string> arguments;
    for (const ChatDelta& delta : Parse(style, {text})) {
      if (delta.kind == ChatDelta::Kind::kCallBegin) arguments.emplace_back();
      if (delta.kind == ChatDelta::Kind::kCallArguments) arguments.back() += delta.text;
      EXPECT_NE(delta.kind, ChatDelta::Kind::kContent) << text << delta.text;
    }
    ASSERT_EQ(arguments.size(), 2U) << text;
    for (size_t i = 0; i < 2; ++i) {
      const auto read = Json::Parse(arguments[i]);
      const auto sent = Json::Parse(calls[i].arguments);
      ASSERT_TRUE(read && sent) << arguments[i];
      EXPECT_EQ(read->Dump(), sent->Dump()) << text;
    }
  }
}

TEST(CallText, ArgumentsThatAreNoObjectAreKept) {
  const std::vector<ToolCall> calls = {{.id = "", .name = "add", .arguments = "oops"}};
  for (const AnswerStyle& style : {Tagged(), Parameters(), Python(), Nested(), MarkedStrings()}) {
    EXPECT_TRUE(CallsText(style.calls, calls).contains("oops"));
  }
  EXPECT_EQ(CallsText(Channels().calls, calls), CallsText(PlainCallStyle(), calls));
  EXPECT_EQ(CallsText(Bare().calls, calls), CallsText(PlainCallStyle(), calls));
}

}  // namespace
}  // namespace moestro
