// SPDX-License-Identifier: MIT
#include "cli/output.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string>

namespace moestro {
namespace {

class OutputTest : public testing::Test {
 protected:
  OutputTest() { signal(SIGPIPE, SIG_IGN); }
};

TEST_F(OutputTest, WritesEverything) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  Output output(ends[1]);
  EXPECT_TRUE(output.Write("hello"));
  EXPECT_TRUE(output.Write(""));
  std::array<char, 16> buffer{};
  EXPECT_EQ(read(ends[0], buffer.data(), buffer.size()), 5);
  EXPECT_EQ(std::string(buffer.data(), 5), "hello");
  EXPECT_FALSE(output.closed());
  close(ends[0]);
  close(ends[1]);
}

TEST_F(OutputTest, AReaderThatHasGoneIsNoError) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  close(ends[0]);
  Output output(ends[1]);
  EXPECT_TRUE(output.Write("hello"));
  EXPECT_TRUE(output.closed());
  EXPECT_TRUE(output.Write("more"));
  close(ends[1]);
}

TEST_F(OutputTest, AFullDiskIsAnError) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  Output output(full);
  const auto status = output.Write("hello");
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::kIo);
  EXPECT_FALSE(output.closed());
  close(full);
}

}  // namespace
}  // namespace moestro
