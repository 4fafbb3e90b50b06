// SPDX-License-Identifier: MIT
#include "schema/text_set.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(CharSet, JoinsAndTurnsRangesAround) {
  const CharSet set({{'c', 'd'}, {'a', 'b'}, {'x', 'x'}});
  ASSERT_EQ(set.ranges().size(), 2U);
  EXPECT_EQ(set.ranges()[0].last, 'd');
  const CharSet others = set.Complement();
  EXPECT_FALSE(others.Has('c'));
  EXPECT_TRUE(others.Has('e'));
  EXPECT_TRUE(others.Has(0));
  EXPECT_TRUE(others.Has(0x10FFFF));
  EXPECT_FALSE(others.Has(0xD800)) << "no character";
  EXPECT_TRUE(CharSet::All().Complement().is_empty());
}

TEST(CharSet, EscapesWhatJsonEscapes) {
  EXPECT_EQ(CharSet({{'a', 'c'}}).InJsonString(), "[a-c]");
  EXPECT_EQ(CharSet({{'-', '-'}, {'\"', '\"'}, {'\n', '\n'}}).InJsonString(),
            "[\\x2D] | \"\\\\\" [\\x22n]");
  EXPECT_EQ(CharSet({{0, 1}, {0x1F, 0x1F}}).InJsonString(), "\"\\\\u000\" [01] | \"\\\\u001\" [f]");
  EXPECT_EQ(CharSet({{0xE9, 0xE9}, {0x1F600, 0x1F601}}).InJsonString(),
            "[\\xE9\\U0001F600-\\U0001F601]");
}

}  // namespace
}  // namespace moestro
