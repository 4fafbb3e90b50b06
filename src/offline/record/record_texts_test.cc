// SPDX-License-Identifier: MIT
#include "offline/record/record_texts.h"

#include <gtest/gtest.h>

#include <vector>

namespace moestro {
namespace {

const std::vector<NamedTokens> kTexts = {{.name = "a", .tokens = {1, 2, 3, 4, 5}},
                                         {.name = "b", .tokens = {}},
                                         {.name = "c", .tokens = {6, 7}}};

std::vector<std::vector<Token>> Read(std::span<const TextSlice> parts) {
  std::vector<std::vector<Token>> read;
  EXPECT_TRUE(ForEachPart(kTexts, parts, {}, [&](std::span<const Token> part) -> Status {
    read.emplace_back(part.begin(), part.end());
    return {};
  }));
  return read;
}

TEST(TextParts, NoneReachesIntoAnotherText) {
  using Parts = std::vector<std::vector<Token>>;
  EXPECT_EQ(Read(CutIntoParts(kTexts, 2)), (Parts{{1, 2}, {3, 4}, {5}, {6, 7}}));
  EXPECT_EQ(Read(CutIntoParts(kTexts, 100)), (Parts{{1, 2, 3, 4, 5}, {6, 7}}));
  EXPECT_EQ(TokensOf(CutIntoParts(kTexts, 2)), 7U);
}

TEST(TextParts, TheirHashSeesTokensAndBorders) {
  const uint64_t hash = HashOf(kTexts, CutIntoParts(kTexts, 2));
  EXPECT_NE(hash, HashOf(kTexts, CutIntoParts(kTexts, 3)));
  std::vector<NamedTokens> other = kTexts;
  other[2].tokens[1] = 8;
  EXPECT_NE(hash, HashOf(other, CutIntoParts(other, 2)));
}

TEST(TextParts, ShardsHaveAllOfThem) {
  const auto all = CutIntoParts(kTexts, 2);
  std::vector<std::vector<Token>> read;
  for (uint32_t index = 1; index <= 6; ++index) {
    auto parts = all;
    const auto info = TakeShard({.command = ShardOf::kTrace, .shard = {.index = index, .count = 6}},
                                kTexts, parts);
    ASSERT_TRUE(info);
    EXPECT_EQ(info->windows, 4U);
    EXPECT_EQ(info->text_hash, HashOf(kTexts, all));
    EXPECT_EQ(info->range().size(), parts.size());
    read.append_range(Read(parts));
  }
  EXPECT_EQ(read, Read(all));
  std::vector<TextSlice> none;
  EXPECT_EQ(TakeShard({}, kTexts, none).error().code, Errc::kInvalidRequest);
}

}  // namespace
}  // namespace moestro
