// SPDX-License-Identifier: MIT
#include "learned/quality_choice.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace moestro {
namespace {

MeasuredSetting Setting(const std::string& t1, double tps, double kl, std::optional<double> se) {
  return {.knobs = {{.knob = "t1", .value = t1}}, .kl_mean = kl, .kl_se = se, .decode_tps = tps};
}

std::vector<MeasuredSetting> Settings() {
  return {{.knobs = {}, .is_exact = true, .decode_tps = 10.0},
          Setting("0.9", 12.0, 0.001, 0.0002),
          Setting("0.6", 20.0, 0.008, 0.0005),
          Setting("0.3", 40.0, 0.05, 0.004),
          Setting("0.1", 90.0, 0.001, std::nullopt)};
}

TEST(QualityChoice, TheFastestWithinTheWishIsTaken) {
  const auto settings = Settings();
  const auto choice = ChooseQuality(settings, 0.01);
  ASSERT_TRUE(choice) << choice.error().message;
  EXPECT_EQ(choice->chosen, 2U);
  EXPECT_EQ(choice->runner_up, 1U);
  EXPECT_EQ(choice->beyond, 4U);
}

TEST(QualityChoice, TwoStandardErrorsCount) {
  const auto settings = Settings();
  EXPECT_EQ(ChooseQuality(settings, 0.00901)->chosen, 2U);
  EXPECT_EQ(ChooseQuality(settings, 0.00899)->chosen, 1U);
  EXPECT_DOUBLE_EQ(KlBound(settings[2]), 0.009);
}

TEST(QualityChoice, NothingButExactIsWithinZero) {
  auto settings = Settings();
  EXPECT_EQ(ChooseQuality(settings, 0.0)->chosen, 0U);
  EXPECT_FALSE(ChooseQuality(settings, 0.0)->runner_up);
  settings[0].kl_mean = 0.5;  // whatever was measured
  EXPECT_EQ(ChooseQuality(settings, 0.0)->chosen, 0U);
}

TEST(QualityChoice, AnExactRunThatIsFasterIsPreferred) {
  auto settings = Settings();
  settings[0].decode_tps = 30.0;
  const auto choice = ChooseQuality(settings, 0.01);
  EXPECT_EQ(choice->chosen, 0U);
  EXPECT_EQ(choice->runner_up, 2U);
}

TEST(QualityChoice, OfEquallyFastOnesTheBetterIsTaken) {
  const std::vector settings = {Setting("0.6", 20.0, 0.008, 0.0), Setting("0.7", 20.0, 0.007, 0.0)};
  EXPECT_EQ(ChooseQuality(settings, 0.01)->chosen, 1U);
}

TEST(QualityChoice, WithoutAnySettingTheLeastIsNamed) {
  const std::vector settings = {Setting("0.6", 20.0, 0.008, 0.0005)};
  const auto none = ChooseQuality(settings, 0.001);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::kInvalidRequest);
  EXPECT_NE(none.error().message.find("0.009"), std::string::npos) << none.error().message;
  const std::vector unknown = {Setting("0.6", 20.0, 0.008, std::nullopt)};
  EXPECT_NE(ChooseQuality(unknown, 1.0).error().message.find("too short"), std::string::npos);
}

TEST(QualityChoice, TheReasonNamesTheOthers) {
  const auto settings = Settings();
  const std::string text = Explain(settings, *ChooseQuality(settings, 0.01), 0.01);
  for (const char* part : {"t1=0.6: 20.0 tok/s, KL 0.008 ± 0.0005 measured, at most 0.009 of the "
                           "0.01 wished",
                           "next within it: t1=0.9, 12.0 tok/s", "beyond it: t1=0.1, 90.0 tok/s"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
  EXPECT_TRUE(Explain(settings, *ChooseQuality(settings, 0.0), 0.0).starts_with("exact: 10.0"));
}

TEST(QualityChoice, TwoPercentAreTheSameBudget) {
  EXPECT_FALSE(IsAnotherBudget(1000, 1000));
  EXPECT_FALSE(IsAnotherBudget(1000, 1020));
  EXPECT_FALSE(IsAnotherBudget(1000, 980));
  EXPECT_TRUE(IsAnotherBudget(1000, 1021));
  EXPECT_TRUE(IsAnotherBudget(1000, 979));
  EXPECT_TRUE(IsAnotherBudget(1000, 0));
}

}  // namespace
}  // namespace moestro
