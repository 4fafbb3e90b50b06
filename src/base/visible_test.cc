// SPDX-License-Identifier: MIT
#include "base/visible.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/json.h"

namespace moestro {
namespace {

TEST(Visible, LeavesWhatPeopleRead) {
  for (const std::string_view text :
       {"", "plain", "Grüße, 世界, 👩‍👩‍👧", "a\\b \"c\""}) {
    EXPECT_EQ(Visible(text), text);
    EXPECT_EQ(VisibleLines(text), text);
  }
}

TEST(Visible, ShowsWhatTerminalsObey) {
  EXPECT_EQ(Visible("\x1b]0;title\a"), "\\u001b]0;title\\u0007");
  EXPECT_EQ(Visible(std::string_view("a\0b\r\n\tc\x7f", 8)),
            "a\\u0000b\\u000d\\u000a\\u0009c\\u007f");
  EXPECT_EQ(VisibleLines("a\n\tb\r\v"), "a\n\tb\\u000d\\u000b");
  EXPECT_EQ(Visible("\u009b31m \u202egpj.exe \u2028"), "\\u009b31m \\u202egpj.exe \\u2028");
  EXPECT_EQ(Visible("\xff\xc2 \xe4\xb8"), "\\xff\\xc2 \\xe4\\xb8");
}

TEST(Visible, KeepsTheMeaningOfJson) {
  Json object = Json::Object();
  object.Set("key", "\x1b[31m\u009b\u202e\x7f\\");
  const std::string text = object.Dump();
  const auto parsed = Json::Parse(VisibleLines(text));
  ASSERT_TRUE(parsed) << VisibleLines(text);
  EXPECT_EQ(parsed->Find("key")->text(), "\x1b[31m\u009b\u202e\x7f\\");
}

TEST(Visible, AStreamIsTheSameInAnyParts) {
  const std::string text = "one\ntwo\t\x1b[2J \u009b1m \u00a9 \u202b עברית\r\x7f";
  VisibleStream whole;
  const std::string expected = whole.Add(text);
  EXPECT_EQ(expected, "one\ntwo\t\\u001b[2J \xc2?1m \u00a9 \u202b עברית\\u000d\\u007f");
  VisibleStream stream;
  std::string parts;
  for (const char c : text) parts += stream.Add(std::string_view(&c, 1));
  EXPECT_EQ(parts, expected);
}

}  // namespace
}  // namespace moestro
