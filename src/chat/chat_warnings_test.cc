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

// The server says these on the terminal and in /props.
TEST(ChatFormat, WarnsOfATemplateThatCannotBeUsed) {
  const ChatFormat broken = FormatOf("{% for m in messages %}{{ m.content }");
  ASSERT_EQ(broken.warnings().size(), 1U);
  EXPECT_TRUE(broken.warnings()[0].contains("cannot be used")) << broken.warnings()[0];
  EXPECT_FALSE(broken.warnings()[0].contains('\n'));
  EXPECT_TRUE(FormatOf("").warnings().empty());
}

TEST(ChatFormat, WarnsOfCallsInAFormThatIsNotKnown) {
  const ChatFormat odd = FormatOf(
      "{% for t in tools %}[[{{ t.function.name }}]]{% endfor %}"
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
  ASSERT_EQ(odd.warnings().size(), 1U);
  EXPECT_TRUE(odd.warnings()[0].contains("calls of tools")) << odd.warnings()[0];
  // Without tools in the template they are described in our words, and calls are known.
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
