// SPDX-License-Identifier: MIT
#include "base/text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
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

TEST(FindInvalidUtf8, NamesTheOffset) {
  EXPECT_EQ(FindInvalidUtf8(""), 0U);
  EXPECT_EQ(FindInvalidUtf8("ab\xC3\xA4"), 4U);
  EXPECT_EQ(FindInvalidUtf8("ab\xC3"), 2U);         // cut short
  EXPECT_EQ(FindInvalidUtf8("\xC0\xAF"), 0U);       // overlong
  EXPECT_EQ(FindInvalidUtf8("a\xED\xA0\x80"), 1U);  // surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0U);
}

size_t Distance(std::string_view a, std::string_view b) {
  return EditDistance(a, b, std::max(a.size(), b.size())).value_or(999);
}

// The edit distance by its definition, without a band.
size_t PlainDistance(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return std::max(a.size(), b.size());
  size_t best = PlainDistance(a.substr(1), b.substr(1)) + (a[0] == b[0] ? 0 : 1);
  best = std::min(best, PlainDistance(a.substr(1), b) + 1);
  best = std::min(best, PlainDistance(a, b.substr(1)) + 1);
  if (a.size() > 1 && b.size() > 1 && a[0] == b[1] && a[1] == b[0]) {
    best = std::min(best, PlainDistance(a.substr(2), b.substr(2)) + 1);
  }
  return best;
}

TEST(EditDistance, EachKindOfMistakeCountsOnce) {
  EXPECT_EQ(Distance("run", "run"), 0U);
  EXPECT_EQ(Distance("rn", "run"), 1U);
  EXPECT_EQ(Distance("ruun", "run"), 1U);
  EXPECT_EQ(Distance("ran", "run"), 1U);
  EXPECT_EQ(Distance("rnu", "run"), 1U);
  EXPECT_EQ(Distance("", "run"), 3U);
  EXPECT_EQ(Distance("run", ""), 3U);
  EXPECT_EQ(Distance("", ""), 0U);
  EXPECT_EQ(Distance("ca", "abc"), 3U);  // no byte is changed twice
}

TEST(EditDistance, IsTheDefinitionsForEveryBand) {
  std::mt19937 random(7);
  const auto word = [&] {
    std::string text(random() % 7, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    return text;
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string a = word();
    const std::string b = word();
    const size_t distance = PlainDistance(a, b);
    for (size_t most = 0; most < 8; ++most) {
      const std::optional<size_t> found = EditDistance(a, b, most);
      EXPECT_EQ(found, distance <= most ? std::optional(distance) : std::nullopt)
          << a << " " << b << " " << most;
    }
  }
}

// Without the band the last pair would be compared 4 * 10^10 times.
TEST(EditDistance, LongTextsEndSoon) {
  const std::string text(200'000, 'a');
  EXPECT_EQ(EditDistance(text, "run", 3), std::nullopt);
  EXPECT_EQ(EditDistance("run", text, 3), std::nullopt);
  EXPECT_EQ(EditDistance(text, text + "bc", 3), 2U);
  EXPECT_EQ(EditDistance(text, std::string(200'000, 'b'), 3), std::nullopt);
}

const std::vector<std::string> kNames = {"run", "serve", "bench", "inspect", "quantize", "synth"};

TEST(NearestName, IsWhatSomebodyMeant) {
  EXPECT_EQ(NearestName("rnu", kNames), "run");
  EXPECT_EQ(NearestName("server", kNames), "serve");
  EXPECT_EQ(NearestName("quantise", kNames), "quantize");
  EXPECT_EQ(NearestName("inspekt", kNames), "inspect");
  EXPECT_EQ(NearestName("quant", kNames), "quantize");
}

TEST(NearestName, DashesInFrontCountForNothing) {
  const std::vector<std::string> flags = {"--prompt", "--ram", "--prefetch", "-n"};
  EXPECT_EQ(NearestName("--promt", flags), "--prompt");
  EXPECT_EQ(NearestName("-prompt", flags), "--prompt");
  EXPECT_EQ(NearestName("ram", flags), "--ram");
  EXPECT_EQ(NearestName("--pre", flags), "--prefetch");
}

TEST(NearestName, WhatIsFarFromAllIsNoneOfThem) {
  EXPECT_EQ(NearestName("dance", kNames), std::nullopt);
  EXPECT_EQ(NearestName("", kNames), std::nullopt);
  EXPECT_EQ(NearestName("----", kNames), std::nullopt);
  EXPECT_EQ(NearestName("in", kNames), std::nullopt);
  EXPECT_EQ(NearestName("x", std::vector<std::string>{"-n", ""}), std::nullopt);
  EXPECT_EQ(NearestName("run", {}), std::nullopt);
  EXPECT_EQ(NearestName(std::string(1'000'000, 'r'), kNames), std::nullopt);
}

TEST(NearestWordsTest, AreLikeTheWord) {
  const std::vector<std::string> words = {"pull", "plan", "bench", "Pull"};
  EXPECT_EQ(NearestWords("pul", words, 2), (std::vector<std::string>{"pull", "Pull"}));
  EXPECT_TRUE(NearestWords("quantisation", words, 2).empty());
}

TEST(NearestWordsTest, AreNamedInAMessage) {
  const std::vector<std::string> words{"o/olmoe:Q4_K_M", "o/ol\nmoe:Q8_0", "else"};
  EXPECT_EQ(NearestText("O/OLMOE:Q4_K_M", words), "; nearest: o/olmoe:Q4_K_M, o/ol?moe:Q8_0");
  EXPECT_EQ(NearestText("nothing like it", words), "");
}

}  // namespace
}  // namespace moestro
