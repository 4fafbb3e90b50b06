// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "chat/chat_format.h"
#include "chat/templates_testing.h"

namespace moestro {
namespace {

ChatFormat FormatOf(std::string_view text) {
  return ChatFormat::Make({.template_text = std::string(text), .bos = "<s>", .eos = "</s>"});
}

// The server shows a format's warnings on the terminal and in /props.
TEST(ChatFormat, WarnsOfATemplateThatCannotBeUsed) {
  const ChatFormat broken = FormatOf("{% for m in messages %}{{ m.content }");
  ASSERT_EQ(broken.warnings().size(), 1U);
  EXPECT_TRUE(broken.warnings()[0].contains("cannot be used")) << broken.warnings()[0];
  EXPECT_FALSE(broken.warnings()[0].contains('\n'));
  EXPECT_TRUE(FormatOf("").warnings().empty());
}

std::string PromptOf(const ChatFormat& format) {
  ChatInput input;
  input.turns.emplace_back().role = "system";
  input.turns.back().content = "Be brief.";
  input.turns.emplace_back().role = "user";
  input.turns.back().content = "Rain?";
  const auto chat = format.Render(input, {});
  return chat ? chat->prompt : "fails: " + chat.error().message;
}

// A template that fails for one question is found at the start, and the known template with its
// marks takes its place.
TEST(ChatFormat, ATemplateThatFailsForOneQuestionIsReplaced) {
  const ChatFormat fails = FormatOf(
      "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>"
      "{{ m.content.nosuch() }}<|eot_id|>{% endfor %}");
  ASSERT_EQ(fails.warnings().size(), 1U);
  EXPECT_TRUE(fails.warnings()[0].contains("nosuch")) << fails.warnings()[0];
  EXPECT_TRUE(fails.warnings()[0].contains("llama3 takes its place")) << fails.warnings()[0];
  EXPECT_TRUE(fails.description().contains("llama3")) << fails.description();
  EXPECT_EQ(PromptOf(fails),
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nRain?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  const ChatFormat refuses = FormatOf("{{ raise_exception('<|im_user|> is never right') }}");
  EXPECT_TRUE(refuses.warnings()[0].contains("never right")) << refuses.warnings()[0];
  EXPECT_EQ(PromptOf(refuses),
            "<|im_system|>system<|im_middle|>Be brief.<|im_end|><|im_user|>user<|im_middle|>Rain?"
            "<|im_end|><|im_assistant|>assistant<|im_middle|>");
  const ChatFormat unknown = FormatOf("{{ messages.nosuch.thing }}");
  EXPECT_TRUE(unknown.warnings()[0].contains("a plain form takes its place"));
  EXPECT_EQ(PromptOf(unknown), "system: Be brief.\nuser: Rain?\nassistant:");
}

TEST(ChatFormat, ATemplateThatMayFailLaterIsKept) {
  const ChatFormat picky = FormatOf(
      "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('No system') }}"
      "{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  EXPECT_TRUE(picky.warnings().empty());
}

TEST(ChatFormat, WarnsOfCallsInAFormThatIsNotKnown) {
  const ChatFormat odd = FormatOf(
      "{% for t in tools %}[[{{ t.function.name }}]]{% endfor %}"
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  ASSERT_EQ(odd.warnings().size(), 1U);
  EXPECT_TRUE(odd.warnings()[0].contains("calls of tools")) << odd.warnings()[0];
  // For a template without tools our words describe them, and with them a known style of calls.
  EXPECT_TRUE(FormatOf("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}")
                  .warnings()
                  .empty());
  for (const std::string_view known :
       {kTaggedTemplate, kListTemplate, kBareTemplate, kParameterTemplate, kKeyValueTemplate,
        kFencedTemplate, kChannelTemplate}) {
    EXPECT_TRUE(FormatOf(known).warnings().empty()) << known;
  }
}

}  // namespace
}  // namespace moestro
