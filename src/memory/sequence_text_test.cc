// SPDX-License-Identifier: MIT
#include "memory/sequence_text.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

std::string Text(std::initializer_list<std::pair<const char*, const char*>> choices) {
  KvChoices all;
  for (const auto& [name, value] : choices) all.Add(name, value);
  return all.text();
}

TEST(KvChoices, EqualTextsDoNotDiffer) {
  EXPECT_EQ(Text({}), "");
  EXPECT_EQ(KvChoices::Difference("", ""), "");
  const std::string text = Text({{"--t1", "0.5"}, {"kernels", "a b"}});
  EXPECT_EQ(text, "--t1 0.5\nkernels a b\n");
  EXPECT_EQ(KvChoices::Difference(text, text), "");
}

TEST(KvChoices, TheSentenceNamesBothSides) {
  EXPECT_EQ(KvChoices::Difference(Text({{"--t1", "0.5"}}), Text({{"--t1", "0.6"}})),
            "was saved with --t1 0.5, and this run has --t1 0.6; give the same flags, or name "
            "another file");
  EXPECT_TRUE(KvChoices::Difference(Text({{"--t1", "0.5"}}), "").contains("goes without"));
  EXPECT_TRUE(KvChoices::Difference("", Text({{"--t1", "0.5"}})).contains("without --t1 0.5"));
  // A name that another one begins with is another name.
  EXPECT_FALSE(KvChoices::Difference(Text({{"--t1", "5"}}), Text({{"--t12", "5"}})).empty());
  EXPECT_FALSE(KvChoices::Difference(Text({{"--t1", "0.5"}}), Text({{"--t1", "0.55"}})).empty());
}

TEST(KvChoices, WhatIsIgnoredDoesNotCount) {
  const std::string a = Text({{"--t1", "0.5"}, {"kernels", "a"}});
  const std::string b = Text({{"--t1", "0.5"}, {"kernels", "b"}});
  EXPECT_EQ(KvChoices::Difference(a, b, "kernels"), "");
  EXPECT_NE(KvChoices::Difference(a, b), "");
  EXPECT_EQ(KvChoices::Find(b, "kernels"), "b");
  EXPECT_EQ(KvChoices::Find(b, "--t"), "");
}

TEST(KvChoices, TextsOfAnybodyHurtNothing) {
  const std::string bad = std::string("\n\n \n--t1\n--t1 ") + '\0' + "\x1b[2J\xff";
  for (size_t n = 0; n <= bad.size(); ++n) {
    const std::string cut = bad.substr(0, n);
    const std::string told =
        KvChoices::Difference(cut, "--t1 1\n") + KvChoices::Difference("", cut);
    (void)KvChoices::Find(cut, "--t1");
    EXPECT_FALSE(KvChoices::Difference(cut, "--t1 1\n").contains('\x1b'));
    EXPECT_FALSE(told.empty());
  }
}

// A driver chooses its device's name: it must not be able to add a line.
TEST(KvChoices, AValueStaysInItsLine) {
  EXPECT_EQ(Text({{"--device", "GPU\n--t1 0.5"}}), "--device GPU --t1 0.5\n");
}

}  // namespace
}  // namespace moestro
