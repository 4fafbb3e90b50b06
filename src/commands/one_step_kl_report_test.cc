// SPDX-License-Identifier: MIT
#include "commands/one_step_kl_report.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace moestro {
namespace {

TEST(OneStepKlReport, SaysWhatItIsAndWhatWasWished) {
  OneStepKl kl;
  EXPECT_NE(DescribeOneStepKl(kl, 0.01, true).find("exact"), std::string::npos);
  EXPECT_NE(DescribeOneStepKl(kl, 0.01, false).find("not checked"), std::string::npos);
  const std::array even = {1.0F, 1.0F};
  kl.Add(even, even);
  const std::string text = DescribeOneStepKl(kl, 0.01, false);
  for (const char* part :
       {"one-step KL 0: each 128th token, 1 in all", "same history", "0.01 was wished"}) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }
  Json object = Json::Object();
  AddOneStepKl(object, kl, 0.01);
  EXPECT_EQ(object.Find("one_step_kl_tokens")->number(), 1.0);
  EXPECT_EQ(object.Find("one_step_kl_se")->Dump(), "null");
}

}  // namespace
}  // namespace moestro
