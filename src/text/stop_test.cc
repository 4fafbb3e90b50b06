// SPDX-License-Identifier: MIT
#include "text/stop.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

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

TEST(StopMatcher, NothingComesAfterAStop) {
  StopMatcher matcher({"X"});
  EXPECT_EQ(matcher.Push("aXb"), "a");
  EXPECT_EQ(matcher.Push("c"), "");
  EXPECT_EQ(matcher.Flush(), "");
}

}  // namespace
}  // namespace moestro
