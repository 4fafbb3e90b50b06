// SPDX-License-Identifier: MIT
#include "text/text_request.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace moestro {
namespace {

TEST(StopMatcher, WithoutStopsTextPassesAtOnce) {
  StopMatcher matcher({""});
  EXPECT_EQ(matcher.Push("abc"), "abc");
  EXPECT_EQ(matcher.Flush(), "");
  EXPECT_FALSE(matcher.found());
}

TEST(StopMatcher, FindsAStopHoweverTheTextIsCut) {
  constexpr std::string_view kText = "Hello.\nUser: more";
  for (size_t cut = 0; cut <= kText.size(); ++cut) {
    StopMatcher matcher({"User:", "###"});
    std::string out = matcher.Push(kText.substr(0, cut));
    out += matcher.Push(kText.substr(cut));
    out += matcher.Flush();
    EXPECT_EQ(out, "Hello.\n") << cut;
    EXPECT_TRUE(matcher.found());
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"User:"});
  EXPECT_EQ(matcher.Push("a Us"), "a ");
  EXPECT_EQ(matcher.Push("ual"), "Usual");
  EXPECT_EQ(matcher.Push(" U"), " ");
  EXPECT_EQ(matcher.Flush(), "U");
  EXPECT_FALSE(matcher.found());
}

TEST(StopMatcher, AStartThatRepeatsItselfIsFound) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Push("aa"), "");
  EXPECT_EQ(matcher.Push("ab"), "a");
  EXPECT_TRUE(matcher.found());
}

TEST(StopMatcher, TheEarliestOfSeveralWins) {
  StopMatcher matcher({"late", "early"});
  EXPECT_EQ(matcher.Push("x early late"), "x ");
}

TEST(StopMatcher, OfTwoThatBeginTogetherTheFirstIsNamed) {
  StopMatcher matcher({"abc", "ab", "b"});
  EXPECT_EQ(matcher.Push("xabc"), "x");
  EXPECT_EQ(matcher.which(), "abc");
}

// Each token of other texts once waited ten milliseconds for sixteen such stop strings.
TEST(StopMatcher, TakesStepsInProportionToTheText) {
  const std::string half(2000, 'a');
  std::vector<std::string> stops;
  for (int i = 0; i < 16; ++i) stops.push_back(half + "b" + half + std::to_string(i));
  StopMatcher matcher(stops);
  const std::string text = std::string(1999, 'a') + "b";
  size_t pushed = 0;
  for (int i = 0; i < 3; ++i) {
    for (const char c : text) matcher.Push(std::string(1, c));
    pushed += text.size();
  }
  EXPECT_FALSE(matcher.found());
  EXPECT_LE(matcher.steps(), 2 * pushed * stops.size());
}

// Compares with a search that begins anew at every part.
TEST(StopMatcher, FindsWhatAPlainSearchFinds) {
  std::minstd_rand random(1);
  for (int round = 0; round < 2000; ++round) {
    const auto letters = [&](size_t most) {
      std::string text;
      for (size_t n = 1 + random() % most; n > 0; --n)
        text += static_cast<char>('a' + random() % 2);
      return text;
    };
    const std::vector<std::string> stops{letters(5), letters(5)};
    const std::string text = letters(30);
    StopMatcher matcher(stops);
    std::string said;
    for (const char c : text) {
      said += matcher.Push(std::string(1, c));
      if (matcher.found()) break;
    }
    const size_t end =
        std::min(text.find(stops[0]) == std::string::npos ? std::string::npos
                                                          : text.find(stops[0]) + stops[0].size(),
                 text.find(stops[1]) == std::string::npos ? std::string::npos
                                                          : text.find(stops[1]) + stops[1].size());
    ASSERT_EQ(matcher.found(), end != std::string::npos) << text;
    if (matcher.found()) {
      ASSERT_EQ(said, text.substr(0, end - matcher.which().size())) << text;
    } else {
      ASSERT_EQ(said + matcher.Flush(), text);
    }
  }
}

TEST(StopMatcher, NothingComesAfterAStop) {
  StopMatcher matcher({"X"});
  EXPECT_EQ(matcher.Push("aXb"), "a");
  EXPECT_EQ(matcher.Push("c"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

}  // namespace
}  // namespace moestro
