// SPDX-License-Identifier: MIT
#include "schema/number_range.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

std::string Plain(std::string_view text) {
  const auto number = Decimal::Parse(text);
  return number ? number->ToText() : "none";
}

TEST(Decimal, ReadsJsonNumbersExactly) {
  EXPECT_EQ(Plain("-12.50"), "-12.5");
  EXPECT_EQ(Plain("9007199254740993"), "9007199254740993");
  EXPECT_EQ(Plain("1.25e+3"), "1250");
  EXPECT_EQ(Plain("125E-4"), "0.0125");
  EXPECT_EQ(Plain("-0.0"), "0");
  EXPECT_EQ(Plain("0e5"), "0");
  EXPECT_EQ(Plain("1e401"), "none");
  EXPECT_EQ(Plain("x"), "none");
  EXPECT_EQ(Plain("1x"), "none");
}

TEST(Decimal, ComparesByValue) {
  const auto less = [](std::string_view a, std::string_view b) {
    return *Decimal::Parse(a) < *Decimal::Parse(b);
  };
  EXPECT_TRUE(less("-10", "-9"));
  EXPECT_TRUE(less("-0.1", "0"));
  EXPECT_TRUE(less("9", "10"));
  EXPECT_TRUE(less("1.19", "1.2"));
  EXPECT_FALSE(less("1.0", "1"));
  EXPECT_EQ(*Decimal::Parse("1.0"), *Decimal::Parse("10e-1"));
}

TEST(NumberRange, NothingBetweenTwoIntegersIsSaidAsNothing) {
  const Bound low = {*Decimal::Parse("1"), true};
  const Bound high = {*Decimal::Parse("2"), true};
  EXPECT_EQ(NumberRangeGbnf({true, low, high}), "");
  EXPECT_NE(NumberRangeGbnf({false, low, high}), "");
}

TEST(NumberRange, BoundsOfManyDigitsAreRefused) {
  const auto range = NumberRangeGbnf({false, Bound{*Decimal::Parse("1e-300"), false}, {}});
  ASSERT_FALSE(range);
  EXPECT_EQ(range.error().code, Errc::kUnsupported);
}

}  // namespace
}  // namespace moestro
