// SPDX-License-Identifier: MIT
#include "base/utf8.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(FindInvalidUtf8, NamesTheOffset) {
  EXPECT_EQ(FindInvalidUtf8(""), 0U);
  EXPECT_EQ(FindInvalidUtf8("ab\xC3\xA4"), 4U);
  EXPECT_EQ(FindInvalidUtf8("ab\xC3"), 2U);         // cut short
  EXPECT_EQ(FindInvalidUtf8("\xC0\xAF"), 0U);       // overlong
  EXPECT_EQ(FindInvalidUtf8("a\xED\xA0\x80"), 1U);  // surrogate
  EXPECT_EQ(FindInvalidUtf8("\xF4\x90\x80\x80"), 0U);
}

}  // namespace
}  // namespace moestro
