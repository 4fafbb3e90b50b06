// SPDX-License-Identifier: MIT
#include "engine/engine_options.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace moestro {
namespace {

TEST(ParseCacheSize, ReadsBytesAndShares) {
  EXPECT_EQ(ParseCacheSize("2G")->bytes, 2 * kGiB);
  EXPECT_EQ(ParseCacheSize("25%")->bytes, 0U);
  EXPECT_DOUBLE_EQ(ParseCacheSize("12.5%")->percent, 12.5);
}

TEST(ParseCacheSize, RefusesNonsense) {
  for (const char* text : {"", "%", "0%", "-3%", "101%", "nan%", "2 %", "x", "0"}) {
    const auto size = ParseCacheSize(text);
    ASSERT_FALSE(size.has_value()) << text;
    EXPECT_EQ(size.error().code, Errc::kUsage);
  }
}

}  // namespace
}  // namespace moestro
