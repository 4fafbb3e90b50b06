// SPDX-License-Identifier: MIT
#include "text/drafts.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace moestro {
namespace {

TEST(NgramDrafter, RepeatsWhatFollowedTheLatestLongestMatch) {
  NgramDrafter drafter;
  const auto propose = [&](const std::vector<Token>& text, uint32_t most) {
    return drafter.Propose(text, most)->tokens;
  };
  const std::vector<Token> nothing;
  EXPECT_EQ(propose({}, 4), nothing);
  EXPECT_EQ(propose({1}, 4), nothing);
  EXPECT_EQ(propose({1, 2, 3, 4}, 4), nothing);
  EXPECT_EQ(propose({1, 2, 1}, 4), nothing);  // one token is no match
  EXPECT_EQ(propose({1, 2, 3, 4, 1, 2}, 4), (std::vector<Token>{3, 4, 1, 2}));
  EXPECT_EQ(propose({1, 2, 3, 4, 1, 2}, 1), std::vector<Token>{3});
  // The later of two equally long ones, and the longer of two.
  EXPECT_EQ(propose({1, 2, 3, 1, 2, 4, 1, 2}, 1), std::vector<Token>{4});
  EXPECT_EQ(propose({5, 1, 2, 3, 1, 2, 4, 5, 1, 2}, 1), std::vector<Token>{3});
  EXPECT_EQ(propose({7, 7, 7}, 8), std::vector<Token>{7});
}

TEST(DraftOptions, NamesAndNumbers) {
  EXPECT_EQ(ParseDraft("little")->most, 4U);
  EXPECT_EQ(ParseDraft("ngram:12")->most, 12U);
  EXPECT_EQ(ParseDraft("ngram")->kind, DraftKind::kNgram);
  EXPECT_EQ(ParseDraft("mtp")->kind, DraftKind::kPredicting);
  EXPECT_EQ(ParseDraft("mtp")->most, 3U);
  EXPECT_EQ(ParseDraft("mtp:1")->most, 1U);
  EXPECT_FALSE(ParseDraft("mtp")->is_auto);
  EXPECT_TRUE(ParseDraft("auto")->is_auto);
  for (const char* wrong : {"", "big", "little:", "little:0", "ngram:17", "ngram:x", "little:3:4",
                            "mtp:4", "mtp:0", "auto:2"}) {
    const auto parsed = ParseDraft(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code, Errc::kUsage);
  }
}

}  // namespace
}  // namespace moestro
