// SPDX-License-Identifier: MIT
#include "text/text_tokens.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro {
namespace {

TEST(CommonPrefix, CountsEqualTokens) {
  const std::vector<Token> a = {1, 2, 3};
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{1, 2, 4, 5}), 2U);
  EXPECT_EQ(CommonPrefix(a, a), 3U);
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{}), 0U);
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{1}), 1U);
}

}  // namespace
}  // namespace moestro
