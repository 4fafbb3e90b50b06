// SPDX-License-Identifier: MIT
// The limits of a conversation's processor time.
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/work_limit.h"
#include "chat/chat_format.h"

namespace moestro {
namespace {

ChatFormat LimitedFormat(std::string text) {
  ChatModel model;
  model.template_text = std::move(text);
  return ChatFormat::Make(model);
}

ChatTurn Hello() {
  ChatTurn turn;
  turn.role = "user";
  turn.content = "hello";
  return turn;
}

// Twenty thousand tools took minutes under a lock.
TEST(ChatFormat, ManyToolsOfShortNamesAreRefusedInStepsOfTheirNumber) {
  const ChatFormat format = LimitedFormat("{{ messages[0].content }}");
  const auto steps_for = [&](int n) {
    ChatInput input;
    input.tools.resize(static_cast<size_t>(n));
    for (int i = 0; i < n; ++i) input.tools[static_cast<size_t>(i)].name = "f" + std::to_string(i);
    input.turns.resize(1, Hello());
    const WorkLimit limit({.processor_seconds = 1.0, .clock = [] { return 0.0; }});
    const auto chat = format.Render(input, {}, limit);
    EXPECT_EQ(chat.has_value(), n < 1000);
    if (!chat) {
      EXPECT_TRUE(chat.error().message.contains("fewer")) << chat.error().message;
    }
    return limit.steps();
  };
  const uint64_t few = steps_for(500);
  EXPECT_LT(steps_for(20'000), 60 * few);
}

TEST(ChatFormat, WhatTakesTooLongSaysSo) {
  const ChatFormat format = LimitedFormat("{% for m in messages %}{{ m.content }}{% endfor %}");
  ChatInput input;
  input.turns.resize(200, Hello());
  double now = 0.0;
  const WorkLimit limit({.processor_seconds = 50.0, .clock = [&] { return now += 1.0; }});
  const auto chat = format.Render(input, {}, limit);
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().code, Errc::kInvalidRequest);
  EXPECT_TRUE(chat.error().message.contains("processor time")) << chat.error().message;
}

TEST(ChatFormat, ARenderingEndsWhenTheServerDoes) {
  const ChatFormat format = LimitedFormat("{% for m in messages %}{{ m.content }}{% endfor %}");
  ChatInput input;
  input.turns.resize(200, Hello());
  int looks = 0;
  const WorkLimit limit({.processor_seconds = 1.0,
                         .clock = [] { return 0.0; },
                         .is_over = [&] { return ++looks > 100; }});
  const auto chat = format.Render(input, {}, limit);
  ASSERT_FALSE(chat);
  EXPECT_EQ(chat.error().code, Errc::kInterrupted);
}

}  // namespace
}  // namespace moestro
