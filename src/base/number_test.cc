// SPDX-License-Identifier: MIT
#include "base/number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "base/text.h"

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

TEST(NumberTest, AllOfTheTextIsTheNumber) {
  EXPECT_EQ(ParseNumber<double>("0.8"), 0.8);
  EXPECT_EQ(ParseNumber<double>("-1e-05"), -1e-05);
  EXPECT_EQ(ParseNumber<float>(".5"), 0.5F);
  EXPECT_EQ(ParseNumber<int32_t>("-1"), -1);
  EXPECT_EQ(ParseNumber<uint64_t>("18446744073709551615"), UINT64_MAX);
  EXPECT_EQ(ParseNumber<uint32_t>("007"), 7U);
}

TEST(NumberTest, WhatIsNoNumber) {
  for (const std::string text :
       {"",    " ",    "0,8",      "0,95",  "3,0", "1'000", "1_000", " 1",       "1 ",
        "1\n", "+1",   "0x10",     "0b1",   "1e",  "1.2.3", "nan",   "-nan",     "NAN",
        "inf", "-inf", "Infinity", "1e999", "-",   ".",     "one",   "\xC2\xB2", "\xD9\xA1"}) {
    EXPECT_FALSE(ParseNumber<double>(text)) << text;
    EXPECT_FALSE(ParseNumber<float>(text)) << text;
    EXPECT_FALSE(ParseNumber<int32_t>(text)) << text;
    EXPECT_FALSE(ParseNumber<uint64_t>(text)) << text;
  }
  EXPECT_FALSE(ParseNumber<double>(std::string("1\0", 2)));
  EXPECT_FALSE(ParseNumber<uint32_t>("-1"));
  EXPECT_FALSE(ParseNumber<uint32_t>("4294967296"));
  EXPECT_FALSE(ParseNumber<int32_t>("3.0"));
  EXPECT_FALSE(ParseNumber<float>("1e39"));
}

TEST(NumberTest, WhatIsPrintedIsRead) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 1000; ++i) {
    const auto whole = static_cast<int64_t>(random());
    EXPECT_EQ(ParseNumber<int64_t>(Format("{}", whole)), whole);
    const double part = static_cast<double>(whole) * 1e-25;
    EXPECT_EQ(ParseNumber<double>(Format("{}", part)), part);
    const auto small = static_cast<float>(part);
    EXPECT_EQ(ParseNumber<float>(Format("{}", small)), small);
  }
  for (const double d : {std::numeric_limits<double>::max(), std::numeric_limits<double>::min()})
    EXPECT_EQ(ParseNumber<double>(Format("{}", d)), d);
}

}  // namespace
}  // namespace moestro
