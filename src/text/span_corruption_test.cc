// SPDX-License-Identifier: MIT
#include "text/span_corruption.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace moestro {
namespace {

constexpr Token kSourceEnd = 1;
constexpr Token kTargetBegin = 0;

SpanTokens TokensOf(size_t sentinels) {
  SpanTokens with{.source_end = kSourceEnd, .target_begin = kTargetBegin};
  for (size_t i = 0; i < sentinels; ++i) with.sentinels.push_back(static_cast<Token>(9000 - i));
  return with;
}

std::vector<Token> TextOf(size_t n) {
  std::vector<Token> text(n);
  std::iota(text.begin(), text.end(), Token{10});
  return text;
}

// Puts the target's spans back into the source.
std::vector<Token> Filled(const SpanText& text, const SpanWindow& window, const SpanTokens& with) {
  const auto all = std::span(text.tokens).subspan(window.begin, window.length);
  const auto source = all.first(window.n_source);
  const auto target = all.subspan(window.n_source);
  EXPECT_EQ(source.back(), with.source_end);
  EXPECT_EQ(target.front(), with.target_begin);
  EXPECT_EQ(target.back(), with.source_end);
  std::vector<Token> filled;
  for (const Token token : source.first(source.size() - 1)) {
    if (!std::ranges::contains(with.sentinels, token)) {
      filled.push_back(token);
      continue;
    }
    auto at = std::ranges::find(target, token);
    EXPECT_NE(at, target.end());
    for (++at; *at != with.source_end && !std::ranges::contains(with.sentinels, *at); ++at) {
      filled.push_back(*at);
    }
  }
  return filled;
}

TEST(SpanCorruption, TheTargetFillsTheSource) {
  for (const size_t n : {2U, 3U, 7U, 100U, 513U, 4000U}) {
    const SpanTokens with = TokensOf(100);
    const std::vector<Token> text = TextOf(n);
    const SpanText cut = CutSpans(text, with, {.source = 512, .sequence = 1024});
    std::vector<Token> all;
    for (const SpanWindow& window : cut.windows) {
      EXPECT_LE(window.n_source, 512U);
      EXPECT_LE(window.length, 1024U);
      all.append_range(Filled(cut, window, with));
    }
    EXPECT_EQ(all, text) << n;
  }
}

TEST(SpanCorruption, ShareAndLengthAreThoseOfT5) {
  const SpanTokens with = TokensOf(100);
  const SpanText cut = CutSpans(TextOf(568), with, {.source = 512, .sequence = 1024});
  ASSERT_EQ(cut.windows.size(), 1U);
  // 568 tokens: 85 are cut out, in 28 spans.
  EXPECT_EQ(cut.windows[0].n_source, 568U - 85 + 28 + 1);
  EXPECT_EQ(cut.windows[0].length - cut.windows[0].n_source, 85U + 28 + 2);
}

TEST(SpanCorruption, TheLongestPieceFillsTheLimits) {
  const SpanTokens with = TokensOf(100);
  const size_t longest = LongestSpanPiece(with, {.source = 512, .sequence = 4096});
  EXPECT_EQ(CutSpans(TextOf(longest), with, {.source = 512, .sequence = 4096}).windows.size(), 1U);
  EXPECT_EQ(CutSpans(TextOf(longest + 2), with, {.source = 512, .sequence = 4096}).windows.size(),
            2U);
  EXPECT_EQ(longest, 568U);
  const size_t short_one = LongestSpanPiece(with, {.source = 512, .sequence = 64});
  const SpanText cut = CutSpans(TextOf(short_one), with, {.source = 512, .sequence = 64});
  ASSERT_EQ(cut.windows.size(), 1U);
  EXPECT_LE(cut.windows[0].length, 64U);
  EXPECT_GE(cut.windows[0].length, 62U);
}

TEST(SpanCorruption, NothingFitsOrNothingIsThere) {
  const SpanTokens with = TokensOf(100);
  EXPECT_EQ(LongestSpanPiece(with, {.source = 2, .sequence = 100}), 0U);
  EXPECT_EQ(LongestSpanPiece(with, {.source = 100, .sequence = 6}), 0U);
  EXPECT_EQ(LongestSpanPiece(with, {.source = 3, .sequence = 7}), 2U);
  EXPECT_TRUE(CutSpans(TextOf(50), with, {.source = 2, .sequence = 100}).windows.empty());
  EXPECT_TRUE(CutSpans({}, with, {.source = 100, .sequence = 100}).windows.empty());
  EXPECT_TRUE(CutSpans(TextOf(1), with, {.source = 100, .sequence = 100}).windows.empty());
}

TEST(SpanCorruption, FewSentinelsMakeFewSpans) {
  const SpanTokens with = TokensOf(2);
  const SpanText cut = CutSpans(TextOf(400), with, {.source = 500, .sequence = 1000});
  ASSERT_EQ(cut.windows.size(), 1U);
  EXPECT_EQ(Filled(cut, cut.windows[0], with), TextOf(400));
  EXPECT_EQ(cut.windows[0].n_source, 400U - 60 + 2 + 1);
}

TEST(SpanCorruption, ASourcesEndInTheTextIsLeftOut) {
  const SpanTokens with = TokensOf(100);
  std::vector<Token> text = TextOf(40);
  text.insert(text.begin() + 7, kSourceEnd);
  text.push_back(kSourceEnd);
  const SpanText cut = CutSpans(text, with, {.source = 100, .sequence = 100});
  ASSERT_EQ(cut.windows.size(), 1U);
  EXPECT_EQ(Filled(cut, cut.windows[0], with), TextOf(40));
}

TEST(SpanCorruption, IsTheSameEveryTime) {
  const SpanTokens with = TokensOf(100);
  const SpanLimits limits{.source = 64, .sequence = 128};
  EXPECT_EQ(CutSpans(TextOf(500), with, limits).tokens, CutSpans(TextOf(500), with, limits).tokens);
}

}  // namespace
}  // namespace moestro
