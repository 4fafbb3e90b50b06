// SPDX-License-Identifier: MIT
#include "base/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace moestro {
namespace {

TEST(TextTest, BlanksAroundItGo) {
  EXPECT_EQ(WithoutBlanks(" \t a b\r\n"), "a b");
  EXPECT_EQ(WithoutBlanks("a"), "a");
  EXPECT_EQ(WithoutBlanks(" \n"), "");
  EXPECT_EQ(WithoutBlanks(""), "");
}

TEST(TextTest, LettersOfAsciiChange) {
  EXPECT_EQ(LowerCase("Q4_K \xc3\x84"), "q4_k \xc3\x84");
  EXPECT_EQ(UpperCase("q4_k \xc3\xa4"), "Q4_K \xc3\xa4");
}

TEST(TextTest, AnEndingIsNoName) {
  EXPECT_TRUE(IsNamedWith("a.GGUF", ".gguf"));
  EXPECT_FALSE(IsNamedWith(".gguf", ".gguf"));
  EXPECT_FALSE(IsNamedWith("guf", ".gguf"));
  EXPECT_FALSE(IsNamedWith("a.gguf.part", ".gguf"));
}

TEST(TextTest, PartsAreJoined) {
  const std::vector<std::string> parts{"a", "b", "c"};
  EXPECT_EQ(Joined(parts), "a, b, c");
  EXPECT_EQ(Joined(parts, " | "), "a | b | c");
  EXPECT_EQ(Joined({}), "");
}

}  // namespace
}  // namespace moestro
