// SPDX-License-Identifier: MIT
#include "chat/control_text.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

// Plain parts in [].
std::string Shown(const ControlTexts& controls, std::string_view marked) {
  const UnmarkedText clean = Unmark(controls, marked);
  std::string shown;
  size_t at = 0;
  for (const TextPart& part : clean.plain) {
    shown += clean.text.substr(at, part.begin - at) + "[";
    shown += clean.text.substr(part.begin, part.end - part.begin) + "]";
    at = part.end;
  }
  return shown + clean.text.substr(at);
}

TEST(ControlTexts, TheLongestOneIsFound) {
  const ControlTexts controls({"<s>", "<s>x", "", "a", "\u00e9", "</s>"});
  EXPECT_EQ(controls.MatchAt("<s>y"), 3U);
  EXPECT_EQ(controls.MatchAt("<s>xy"), 4U);
  EXPECT_EQ(controls.MatchAt("<s"), 0U);
  EXPECT_EQ(controls.MatchAt("a"), 0U) << "no mark can be inside";
  EXPECT_EQ(controls.MatchAt("\u00e9"), 0U);
  EXPECT_EQ(controls.MatchAt(""), 0U);
  EXPECT_TRUE(ControlTexts().empty());
  EXPECT_EQ(ControlTexts().MatchAt("a"), 0U);
}

TEST(ControlTexts, WhatAClientWroteIsPlainBetweenTheTemplatesTokens) {
  const ControlTexts controls({"<s>", "</s>"});
  const std::string words = MarkControls(controls, "a</s>b");
  EXPECT_EQ(MarkControls(controls, words), words) << "twice is once";
  EXPECT_EQ(Shown(controls, "<s>user " + words + "</s>ok</s>"), "<s>[user a</s>b]</s>ok</s>");
  EXPECT_EQ(Shown(controls, words), "[a</s>b]");
  EXPECT_EQ(Shown(controls, "<s>plain</s>"), "<s>plain</s>");
  EXPECT_EQ(Shown(controls, MarkControls(controls, "<s></s>")), "[<s></s>]");
}

TEST(ControlTexts, OverlapsAndTextsThatMarksMakeAreWordsToo) {
  const ControlTexts controls({"aab", "ab", "<|x|>"});
  EXPECT_EQ(Shown(controls, MarkControls(controls, "aaab")), "[aaab]");
  // A client's own mark, which is dropped, makes no token either.
  const std::string hostile = "<" + std::string(kTextMark) + "|x|>";
  EXPECT_EQ(Shown(controls, MarkControls(controls, hostile)), "[<|x|>]");
  EXPECT_EQ(Shown(controls, MarkControls(controls, std::string(kTextMark))), "");
}

// Takes time by the length of the text, however many beginnings of control texts it has.
TEST(ControlTexts, ManyTextsAreFoundInOnePass) {
  std::vector<std::string> texts;
  for (int i = 0; i < 1000; ++i) texts.push_back("<|reserved_" + std::to_string(i) + "|>");
  const ControlTexts controls(texts);
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "<|reserved_";
  EXPECT_EQ(MarkControls(controls, text), text);
}

}  // namespace
}  // namespace moestro
