// SPDX-License-Identifier: MIT
#include "schema/pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

void ExpectRefused(std::string_view text, Errc code) {
  const auto pattern = Pattern::Parse(text);
  ASSERT_FALSE(pattern) << text;
  EXPECT_EQ(pattern.error().code, code) << text << ": " << pattern.error().message;
}

TEST(Pattern, WhatIsNoExpressionIsInvalid) {
  for (const char* text :
       {"(a", "a)", "[a", "*", "a**", "a{2,1}", "[b-a]", "[\\d-z]", "\\", "\\x1", "a{x}", "\xff"}) {
    ExpectRefused(text, Errc::kInvalidRequest);
  }
}

TEST(Pattern, WhatIsNotKnownIsRefusedRatherThanGuessed) {
  for (const char* text : {"(?=a)b", "(?!a)b", "(?<n>a)", "(a)\\1", "\\bword\\b", "a$b", "(^a)",
                           "\\p{L}", "(a*)*", "(a|b?)+", "(a?){2,}", "\\uD83D", "a{200000}"}) {
    ExpectRefused(text, Errc::kUnsupported);
  }
  ExpectRefused(std::string(5000, 'a'), Errc::kUnsupported);
  ExpectRefused(std::string(1000, '(') + std::string(1000, ')'), Errc::kUnsupported);
}

TEST(Pattern, LengthsNarrowOneRepetition) {
  const auto limit = [](std::string_view text, Times length) {
    auto pattern = Pattern::Parse(text);
    EXPECT_TRUE(pattern) << text;
    return pattern->Limit(length);
  };
  EXPECT_EQ(limit("^a{3}$", {3, 3}), true);
  EXPECT_EQ(limit("^a{3}$", {4, 9}), false);
  EXPECT_EQ(limit("^ab*c$", {2, 9}), true);
  EXPECT_EQ(limit("^ab*c|$", {0, 1}), true) << "the empty alternative is left";
  EXPECT_FALSE(limit("^a*b*$", {0, 9})) << "two repetitions";
  EXPECT_FALSE(limit("ab", {0, 9})) << "text before and after";
  EXPECT_FALSE(limit("^(ab)*$", {0, 9}));
}

TEST(Pattern, EveryFormatOfOursIsAnExpression) {
  for (const char* format :
       {"date", "time", "date-time", "uuid", "ipv4", "hostname", "email", "uri"}) {
    const auto text = PatternOfFormat(format);
    ASSERT_TRUE(text) << format;
    EXPECT_TRUE(IsStandardFormat(format));
    const auto pattern = Pattern::Parse(*text);
    EXPECT_TRUE(pattern) << format << ": " << pattern.error().message;
  }
  EXPECT_FALSE(PatternOfFormat("ipv6"));
  EXPECT_FALSE(IsStandardFormat("int32"));
}

}  // namespace
}  // namespace moestro
