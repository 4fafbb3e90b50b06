// SPDX-License-Identifier: MIT
#include "base/number.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "base/format.h"

namespace moestro {
namespace {

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
