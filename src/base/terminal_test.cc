// SPDX-License-Identifier: MIT
#include "base/terminal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/json.h"

namespace moestro {
namespace {

TEST(Visible, LeavesWhatPeopleRead) {
  for (const std::string_view text :
       {"", "plain", "Grüße, 世界, 👩‍👩‍👧", "a\\b \"c\""}) {
    EXPECT_EQ(Visible(text), text);
    EXPECT_EQ(VisibleLines(text), text);
  }
}

TEST(Visible, ShowsWhatTerminalsObey) {
  EXPECT_EQ(Visible("\x1b]0;title\a"), "\\u001b]0;title\\u0007");
  EXPECT_EQ(Visible(std::string_view("a\0b\r\n\tc\x7f", 8)),
            "a\\u0000b\\u000d\\u000a\\u0009c\\u007f");
  EXPECT_EQ(VisibleLines("a\n\tb\r\v"), "a\n\tb\\u000d\\u000b");
  EXPECT_EQ(Visible("\u009b31m \u202egpj.exe \u2028"), "\\u009b31m \\u202egpj.exe \\u2028");
  EXPECT_EQ(Visible("\xff\xc2 \xe4\xb8"), "\\xff\\xc2 \\xe4\\xb8");
}

TEST(Visible, KeepsTheMeaningOfJson) {
  Json object = Json::Object();
  object.Set("key", "\x1b[31m\u009b\u202e\x7f\\");
  const std::string text = object.Dump();
  const auto parsed = Json::Parse(VisibleLines(text));
  ASSERT_TRUE(parsed) << VisibleLines(text);
  EXPECT_EQ(parsed->Find("key")->text(), "\x1b[31m\u009b\u202e\x7f\\");
}

TEST(Visible, AStreamIsTheSameInAnyParts) {
  const std::string text = "one\ntwo\t\x1b[2J \u009b1m \u00a9 \u202b עברית\r\x7f";
  VisibleStream whole;
  const std::string expected = whole.Add(text);
  EXPECT_EQ(expected, "one\ntwo\t\\u001b[2J \xc2?1m \u00a9 \u202b עברית\\u000d\\u007f");
  VisibleStream stream;
  std::string parts;
  for (const char c : text) parts += stream.Add(std::string_view(&c, 1));
  EXPECT_EQ(parts, expected);
}

// Stderr is a pipe that nobody reads, full at first.
class FullStderr {
 public:
  FullStderr() {
    EXPECT_EQ(pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK), 0);
    while (write(ends_[1], "x", 1) == 1) {
    }
    EXPECT_EQ(fcntl(ends_[1], F_SETFL, 0), 0);  // whoever writes waits
    EXPECT_EQ(dup2(ends_[1], STDERR_FILENO), STDERR_FILENO);
  }
  ~FullStderr() {
    dup2(kept_, STDERR_FILENO);
    for (const int fd : {kept_, ends_[0], ends_[1]}) close(fd);
  }
  FullStderr(const FullStderr&) = delete;
  FullStderr& operator=(const FullStderr&) = delete;
  std::string ReadAll() {
    std::string all;
    std::array<char, 4096> part = {};
    for (ssize_t n = 0; (n = read(ends_[0], part.data(), part.size())) > 0;) {
      all.append(part.data(), static_cast<size_t>(n));
    }
    return all;
  }

 private:
  int kept_ = dup(STDERR_FILENO);
  std::array<int, 2> ends_ = {};
};

TEST(LogWithoutWaiting, LeavesOutWhatNobodyReadsAndSaysSo) {
  LogWithoutWaiting();
  FullStderr full;
  std::vector<std::thread> threads(3);
  for (std::thread& thread : threads) thread = std::thread([] { LogWarning("lost"); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(full.ReadAll().contains("lost"));
  LogWarning("there");
  EXPECT_EQ(full.ReadAll(),
            "moestro: warning: 3 lines are missing here, which nobody read\n"
            "moestro: warning: there\n");
  LogWarning("again");
  EXPECT_EQ(full.ReadAll(), "moestro: warning: again\n");
}

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
