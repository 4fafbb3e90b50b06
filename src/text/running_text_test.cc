// SPDX-License-Identifier: MIT
#include "text/running_text.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/text.h"

namespace moestro {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// A character of each length, and characters at the edges of the ranges.
constexpr std::string_view kText =
    "a\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80z\xED\x9F\xBF\xEE\x80\x80\xF4\x8F\xBF\xBF";

TEST(Utf8Stream, AnySplitGivesTheSameTextInWholeCharacters) {
  for (size_t first = 0; first <= kText.size(); ++first) {
    for (size_t second = first; second <= kText.size(); ++second) {
      Utf8Stream stream;
      std::string joined;
      for (const std::string_view part :
           {kText.substr(0, first), kText.substr(first, second - first), kText.substr(second)}) {
        const std::string out = stream.Push(part);
        EXPECT_EQ(FindInvalidUtf8(out), out.size());
        joined += out;
      }
      EXPECT_EQ(stream.Flush(), "");
      EXPECT_EQ(joined, kText);
    }
  }
}

TEST(Utf8Stream, HoldsBackTheStartOfACharacter) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("x\xF0\x9F"), "x");
  EXPECT_EQ(stream.Push("\x98"), "");
  EXPECT_EQ(stream.Push("\x80y"), "\xF0\x9F\x98\x80y");
}

TEST(Utf8Stream, FlushGivesTheUnfinishedCharacterOnce) {
  Utf8Stream stream;
  EXPECT_EQ(stream.Push("\xE2\x82"), "");
  EXPECT_EQ(stream.Flush(), kReplacement);
  EXPECT_EQ(stream.Flush(), "");
  EXPECT_EQ(stream.Push("a"), "a");
}

TEST(Utf8Stream, ReplacesWhatCanNeverBecomeACharacter) {
  for (const std::string_view bad : {"\x80", "\xFF", "\xC0", "\xF5"}) {
    Utf8Stream stream;
    EXPECT_EQ(stream.Push(std::string("a") + std::string(bad) + "b"),
              "a" + std::string(kReplacement) + "b");
  }
  Utf8Stream cut;  // a new character begins where a continuation was due
  EXPECT_EQ(cut.Push("\xE2\x82z"), std::string(kReplacement) + "z");
}

}  // namespace
}  // namespace moestro
