// SPDX-License-Identifier: MIT
#include "base/bytes.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

TEST(ParseBytes, ReadsUnits) {
  EXPECT_EQ(ParseBytes("800000").value(), 800000U);
  EXPECT_EQ(ParseBytes("4G").value(), 4 * kGiB);
  EXPECT_EQ(ParseBytes("1.5gib").value(), 3 * kGiB / 2);
  EXPECT_EQ(ParseBytes("512MB").value(), 512 * kMiB);
  EXPECT_EQ(ParseBytes("1k").value(), kKiB);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"", "G", "4X", "4GiBB", "-1G", "nan", "inf", "1e300", "99999999T", "4 G"}) {
    const auto result = ParseBytes(text);
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().code, Errc::kUsage);
  }
}

TEST(FormatBytes, PicksTheUnit) {
  EXPECT_EQ(FormatBytes(12), "12 B");
  EXPECT_EQ(FormatBytes(kKiB), "1.0 KiB");
  EXPECT_EQ(FormatBytes(16 * kGiB), "16.0 GiB");
}

}  // namespace
}  // namespace moestro
