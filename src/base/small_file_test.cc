// SPDX-License-Identifier: MIT
#include "base/small_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <utility>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class SmallFile : public ::testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& bytes) {
    std::ofstream(folder_.File(name), std::ios::binary) << bytes;
    return folder_.File(name);
  }

  TempFolder folder_;
};

TEST_F(SmallFile, IsReadUpToItsLimit) {
  EXPECT_EQ(ReadSmallFile(Put("a", "text\n")), "text\n");
  EXPECT_EQ(ReadSmallFile(Put("empty", "")), "");
  EXPECT_EQ(ReadSmallFile(Put("large", std::string(100'000, 'x')))->size(), 64U * 1024U);
  EXPECT_EQ(ReadSmallFile(Put("b", "0123456789"), 4), "0123");
}

TEST_F(SmallFile, WhatIsNoFileIsNothing) {
  EXPECT_EQ(ReadSmallFile(folder_.File("missing")), std::nullopt);
  EXPECT_EQ(ReadSmallFile(folder_.path().string()), std::nullopt);
  EXPECT_EQ(ReadSmallFile("/dev/zero"), std::nullopt);
  // Opening the pipe would wait for a writer.
  ASSERT_EQ(::mkfifo(folder_.File("pipe").c_str(), 0600), 0);
  EXPECT_EQ(ReadSmallFile(folder_.File("pipe")), std::nullopt);
}

TEST_F(SmallFile, AWordIsShortAndPrintable) {
  EXPECT_EQ(ReadWord(Put("a", "  performance \nmore\n")), "performance");
  EXPECT_EQ(ReadWord(Put("b", std::string(300, 'x'))), "");
  EXPECT_EQ(ReadWord(Put("c", std::string("a\0b\x1b[2J", 7))), "");
  EXPECT_EQ(ReadWord(Put("d", "")), "");
  EXPECT_EQ(ReadWord(Put("e", "\n\n")), "");
  EXPECT_EQ(ReadWord(folder_.File("missing")), "");
}

TEST(FieldOf, IsTheNumberBehindAName) {
  constexpr std::string_view kText = "A:  12 kB\nBad: x\nHuge: 99999999999999999999\nLast:7";
  EXPECT_EQ(FieldOf(kText, "A:"), 12U);
  EXPECT_EQ(FieldOf(kText, "Last:"), 7U);
  EXPECT_EQ(FieldOf(kText, "Bad:"), std::nullopt);
  EXPECT_EQ(FieldOf(kText, "Huge:"), std::nullopt);
  EXPECT_EQ(FieldOf(kText, "None:"), std::nullopt);
  EXPECT_EQ(FieldOf("", "A:"), std::nullopt);
}

TEST(RegularFile, IsOpenedWithoutWaitingAndOthersAreNamed) {
  const TempFolder folder;
  std::ofstream(folder.File("file")) << "content";
  EXPECT_EQ(ReadRegularFile(folder.File("file"), 7).value(), "content");
  EXPECT_EQ(ReadRegularFile(folder.File("file"), 6).error().code, Errc::kInvalidFile);
  ASSERT_EQ(mkfifo(folder.File("pipe").c_str(), 0600), 0);
  for (const auto& [path, what] :
       {std::pair(folder.File("pipe"), "a pipe"), std::pair(folder.path().string(), "a folder"),
        std::pair(std::string("/dev/null"), "a device"),
        std::pair(folder.File("none"), "No such file")}) {
    const auto opened = OpenRegularFile(path);
    ASSERT_FALSE(opened) << path;
    EXPECT_EQ(opened.error().code, Errc::kIo);
    EXPECT_TRUE(opened.error().message.contains(what)) << opened.error().message;
  }
}

TEST(RegularFile, ANameThatNoFileCanHaveIsAbsent) {
  const TempFolder folder;
  EXPECT_TRUE(IsAbsent(folder.File("none")));
  EXPECT_TRUE(IsAbsent(folder.File("none/below")));
  EXPECT_TRUE(IsAbsent(folder.File(std::string(256, 'n'))));
  EXPECT_FALSE(IsAbsent(folder.path().string()));
}

}  // namespace
}  // namespace moestro
