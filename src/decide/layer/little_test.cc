// SPDX-License-Identifier: MIT
// Options of passes with fewer experts, and who stays after them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "decide/layer/lossy_options.h"

namespace moestro {
namespace {

TEST(LittleOptions, HalfIsHalfOfTheModelsK) {
  EXPECT_EQ(*CheckLittle({.is_half = true}, 8, false), 4U);
  EXPECT_EQ(*CheckLittle({.is_half = true}, 5, false), 2U);
  EXPECT_EQ(*CheckLittle({.n_used = 7}, 8, false), 7U);
}

TEST(LittleOptions, WhatCannotBeIsRefusedWithItsValue) {
  const auto message = [](const LittleOptions& options, uint32_t used, bool has_low) {
    const auto checked = CheckLittle(options, used, has_low);
    if (checked) return std::string("accepted");
    EXPECT_EQ(checked.error().code, Errc::kUsage);
    return checked.error().message;
  };
  EXPECT_NE(message({.n_used = 8}, 8, false).find("1 to 7"), std::string::npos);
  EXPECT_NE(message({.n_used = 9}, 8, false).find("--little 9"), std::string::npos);
  EXPECT_NE(message({.n_used = 0}, 8, false).find("--little 0"), std::string::npos);
  EXPECT_NE(message({.is_half = true}, 1, false).find("no fewer"), std::string::npos);
  EXPECT_NE(message({.n_used = 2, .misses = Misses::kLow}, 8, false).find("--low"),
            std::string::npos);
  EXPECT_EQ(message({.n_used = 2, .misses = Misses::kLow}, 8, true), "accepted");
}

TEST(LittleOptions, TextAndBack) {
  for (const char* text : {"half", "3", "off"}) {
    LittleOptions options;
    ASSERT_TRUE(SetLittleUsed(options, text));
    EXPECT_EQ(ToText(options), text);
    EXPECT_EQ(options.is_on(), std::string(text) != "off");
  }
  for (const char* text : {"", "halfway", "-1", "3x", "99999999999"}) {
    LittleOptions options;
    EXPECT_FALSE(SetLittleUsed(options, text)) << text;
  }
  for (const Misses misses : {Misses::kRead, Misses::kLow, Misses::kDrop}) {
    EXPECT_EQ(*ParseMisses(ToString(misses)), misses);
  }
  EXPECT_FALSE(ParseMisses("skip"));
}

TEST(LittleJudge, ConfidenceIsTheLargestProbability) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.2F)};
  EXPECT_NEAR(Confidence(logits), 0.5, 1e-6);
  std::vector<float> shifted = logits;
  for (float& x : shifted) x += 300.0F;
  EXPECT_NEAR(Confidence(shifted), 0.5, 1e-4);
  shifted[1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Confidence(shifted)));
}

TEST(LittleJudge, AboveGammaATokenStays) {
  LittleJudge judge({.n_used = 2, .gamma = 0.7});
  EXPECT_TRUE(judge.Keeps(0.71));
  EXPECT_FALSE(judge.Keeps(0.7));
  EXPECT_FALSE(judge.Keeps(std::nan("")));
  EXPECT_TRUE(LittleJudge({.n_used = 2, .gamma = 0.0}).Keeps(1e-9));
  EXPECT_FALSE(LittleJudge({.n_used = 2, .gamma = 1.0}).Keeps(1.0));
}

TEST(LittleJudge, AShareOfTheTokensCanBeForced) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> uniform;
  for (const double share : {0.0, 0.11, 0.5, 1.0}) {
    LittleJudge judge({.n_used = 2, .fallback_share = share});
    int again = 0;
    for (int i = 0; i < 2000; ++i) again += judge.Keeps(uniform(random)) ? 0 : 1;
    EXPECT_NEAR(again / 2000.0, share, 0.005);
  }
  // Of ever surer tokens none is among the least sure: up to (1 - 0.2) * 4 tokens stay owed.
  LittleJudge judge({.n_used = 2, .fallback_share = 0.2});
  int again = 0;
  for (int i = 0; i < 200; ++i) again += judge.Keeps(i / 200.0) ? 0 : 1;
  EXPECT_NEAR(again, 40, 4);
}

}  // namespace
}  // namespace moestro
