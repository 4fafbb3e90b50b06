// SPDX-License-Identifier: MIT
#include "text/text_tokens.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"

namespace moestro {
namespace {

class TextFileTest : public testing::Test {
 protected:
  TextFileTest()
      : path_(std::filesystem::temp_directory_path() /
              Format("moestro_text_{}_{}", getpid(),
                     testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~TextFileTest() override { std::filesystem::remove(path_); }
  void Write(std::string_view bytes) { std::ofstream(path_, std::ios::binary) << bytes; }

  // All parts; expects that none is longer than `most`.
  static std::string ReadAll(const std::filesystem::path& path, size_t most = 1000) {
    auto source = OpenText(path);
    EXPECT_TRUE(source);
    std::string all;
    while (source) {
      const auto text = (*source)(most);
      EXPECT_TRUE(text && text->size() <= most);
      if (!text || text->empty()) break;
      all += *text;
    }
    return all;
  }

  std::filesystem::path path_;
};

TEST_F(TextFileTest, DropsOneFinalNewline) {
  Write("one\ntwo\n\n");
  EXPECT_EQ(ReadAll(path_), "one\ntwo\n");
  Write("one\r\n");
  EXPECT_EQ(ReadAll(path_), "one");
  Write("");
  EXPECT_EQ(ReadAll(path_), "");
}

TEST_F(TextFileTest, GivesNoMoreThanIsAskedFor) {
  const std::string text = "abc\ndefg\r\nhi";
  for (const char* end : {"", "\n", "\r\n"}) {
    Write(text + end);
    for (const size_t most : {1U, 2U, 3U, 5U, 100U}) EXPECT_EQ(ReadAll(path_, most), text);
  }
}

TEST_F(TextFileTest, NamesTheFileThatIsMissing) {
  const auto text = OpenText(path_);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Errc::kIo);
  EXPECT_NE(text.error().message.find(path_.string()), std::string::npos);
}

TEST_F(TextFileTest, AFolderIsNoText) {
  auto source = OpenText(std::filesystem::temp_directory_path());
  ASSERT_TRUE(source);
  const auto text = (*source)(100);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Errc::kIo);
}

TEST_F(TextFileTest, SmallTextsAreSmallAndUtf8) {
  Write("abc\n");
  EXPECT_EQ(ReadSmallText(path_).value(), "abc");
  Write("abc\xff");
  auto text = ReadSmallText(path_);
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find("byte 3"), std::string::npos) << text.error().message;
  Write(std::string((size_t{1} << 20) + 1, 'x'));
  text = ReadSmallText(path_);
  ASSERT_FALSE(text);
  EXPECT_NE(text.error().message.find(path_.string()), std::string::npos) << text.error().message;
}

TEST(CommonPrefix, CountsEqualTokens) {
  const std::vector<Token> a = {1, 2, 3};
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{1, 2, 4, 5}), 2U);
  EXPECT_EQ(CommonPrefix(a, a), 3U);
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{}), 0U);
  EXPECT_EQ(CommonPrefix(a, std::vector<Token>{1}), 1U);
}

}  // namespace
}  // namespace moestro
