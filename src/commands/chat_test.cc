// SPDX-License-Identifier: MIT
#include "commands/chat.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(ProcessEscapes, KnowsTheUsualOnesAndLeavesTheRest) {
  EXPECT_EQ(ProcessEscapes("a\\nb\\tc\\r"), "a\nb\tc\r");
  EXPECT_EQ(ProcessEscapes("\\\\n \\\" \\'"), "\\n \" '");
  EXPECT_EQ(ProcessEscapes("\\x41\\x7a\\xff"), "Az\xff");
  EXPECT_EQ(ProcessEscapes("\\q \\x4 \\xzz \\"), "\\q \\x4 \\xzz \\");
  EXPECT_EQ(ProcessEscapes(""), "");
}

}  // namespace
}  // namespace moestro
