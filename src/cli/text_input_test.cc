// SPDX-License-Identifier: MIT
#include "cli/text_input.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/format.h"

namespace moestro {
namespace {

TEST(ProcessEscapes, KnowsTheUsualOnesAndLeavesTheRest) {
  EXPECT_EQ(ProcessEscapes("a\\nb\\tc\\r"), "a\nb\tc\r");
  EXPECT_EQ(ProcessEscapes("\\\\n \\\" \\'"), "\\n \" '");
  EXPECT_EQ(ProcessEscapes("\\x41\\x7a\\xff"), "Az\xff");
  EXPECT_EQ(ProcessEscapes("\\q \\x4 \\xzz \\"), "\\q \\x4 \\xzz \\");
  EXPECT_EQ(ProcessEscapes(""), "");
}

class ReadTextFileTest : public testing::Test {
 protected:
  ReadTextFileTest()
      : path_(std::filesystem::temp_directory_path() /
              Format("moestro_text_{}_{}", getpid(),
                     testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~ReadTextFileTest() override { std::filesystem::remove(path_); }
  void Write(std::string_view bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  std::filesystem::path path_;
};

TEST_F(ReadTextFileTest, DropsOneFinalNewline) {
  Write("one\ntwo\n\n");
  EXPECT_EQ(ReadTextFile(path_).value(), "one\ntwo\n");
  Write("one\r\n");
  EXPECT_EQ(ReadTextFile(path_).value(), "one");
  Write("");
  EXPECT_EQ(ReadTextFile(path_).value(), "");
}

TEST_F(ReadTextFileTest, NamesTheFileThatIsMissing) {
  const auto text = ReadTextFile(path_);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Errc::kIo);
  EXPECT_NE(text.error().message.find(path_.string()), std::string::npos);
}

TEST_F(ReadTextFileTest, AFolderIsNoText) {
  const auto text = ReadTextFile(std::filesystem::temp_directory_path());
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Errc::kIo);
}

TEST_F(ReadTextFileTest, NamesTheByteThatIsNotUtf8) {
  Write("abc\xff");
  const auto text = ReadTextFile(path_);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Errc::kInvalidRequest);
  EXPECT_NE(text.error().message.find("byte 3"), std::string::npos) << text.error().message;
}

}  // namespace
}  // namespace moestro
