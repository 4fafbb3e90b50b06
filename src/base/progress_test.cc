// SPDX-License-Identifier: MIT
#include "base/progress.h"

#include <gtest/gtest.h>

#include <string>

namespace moestro {
namespace {

TEST(RenderProgress, FillsInProportionAndFitsTheWidth) {
  EXPECT_EQ(RenderProgress("load", 1, 2, 23), "load [#####.....]  50 %");
  EXPECT_EQ(RenderProgress("load", 0, 2, 23), "load [..........]   0 %");
  EXPECT_EQ(RenderProgress("load", 2, 2, 23), "load [##########] 100 %");
  for (size_t width = 0; width < 60; ++width) {
    EXPECT_LE(RenderProgress("loading experts", 1, 3, width).size(), width);
  }
}

TEST(RenderProgress, HundredPercentOnlyWhenFinished) {
  EXPECT_NE(RenderProgress("x", 999'999, 1'000'000, 40).find(" 99 %"), std::string::npos);
  EXPECT_NE(RenderProgress("x", 0, 0, 40).find("100 %"), std::string::npos);
  EXPECT_NE(RenderProgress("x", 5, 4, 40).find("100 %"), std::string::npos);
  EXPECT_NE(RenderProgress("x", UINT64_MAX - 1, UINT64_MAX, 40).find('%'), std::string::npos);
}

class ProgressBarTest : public testing::Test {
 protected:
  ProgressBar::Options Options(bool enabled) {
    return {.enabled = enabled,
            .width = 30,
            .now = [this] { return now_; },
            .write = [this](std::string_view text) { written_ += text; }};
  }
  double now_ = 100.0;
  std::string written_;
};

TEST_F(ProgressBarTest, ShowsNothingInTheFirstSecond) {
  ProgressBar bar(Options(true));
  bar.Update("load", 1, 10);
  now_ += 0.9;
  bar.Update("load", 5, 10);
  EXPECT_EQ(written_, "");
  now_ += 0.2;
  bar.Update("load", 6, 10);
  EXPECT_NE(written_.find(" 60 %"), std::string::npos);
}

TEST_F(ProgressBarTest, RedrawsAtMostTenTimesASecondAndRemovesItself) {
  {
    ProgressBar bar(Options(true));
    bar.Update("load", 1, 100);
    now_ += 2.0;
    bar.Update("load", 2, 100);
    written_.clear();
    now_ += 0.05;
    bar.Update("load", 3, 100);
    EXPECT_EQ(written_, "");
  }
  EXPECT_EQ(written_, "\r\x1b[K");
}

TEST_F(ProgressBarTest, NewWorkHasItsOwnDelay) {
  ProgressBar bar(Options(true));
  bar.Update("load", 1, 100);
  now_ += 2.0;
  bar.Update("prefill", 1, 100);
  EXPECT_EQ(written_, "");
}

TEST_F(ProgressBarTest, DisabledWritesNothing) {
  {
    ProgressBar bar(Options(false));
    bar.Update("load", 1, 100);
    now_ += 5.0;
    bar.Update("load", 2, 100);
  }
  EXPECT_EQ(written_, "");
}

}  // namespace
}  // namespace moestro
