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
  EXPECT_EQ(ParseBytes("1e9").value(), 1'000'000'000U);
  EXPECT_EQ(ParseBytes("4 G").value(), 4 * kGiB);
}

TEST(ParseBytes, RefusesWhatIsNoSize) {
  for (const char* text :
       {"",    "G",   "4X",   "4GiBB", "-1G",  "nan",  "inf", "1e300", "99999999T", "4  G", "4 ",
        " 4G", "4G ", "0,8G", "1,5",   "1_0M", "1'0M", "+1G", "0x1G",  "infG",      "nanM", "1e"}) {
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

TEST(FormatBytes, IsReadByParseBytes) {
  for (uint64_t bytes = 1; bytes < (uint64_t{1} << 45U); bytes = bytes * 3 + 1) {
    const auto read = ParseBytes(FormatBytes(bytes));
    ASSERT_TRUE(read) << FormatBytes(bytes);
    EXPECT_EQ(FormatBytes(*read), FormatBytes(bytes));
  }
}

}  // namespace
}  // namespace moestro
