// SPDX-License-Identifier: MIT
#include "base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
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

class FileWatchTest : public ::testing::Test {
 protected:
  FileWatchTest() {
    Write(path_, "weights");
    const auto stamp = FileStamp::Of(path_);
    EXPECT_TRUE(stamp);
    watch_ = FileWatch({{.path = path_, .stamp = *stamp}}, clock_);
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  // Sets the file's own time a second later, whatever the file system's clock shows.
  void Touch() const {
    std::filesystem::last_write_time(
        path_, std::filesystem::last_write_time(path_) + std::chrono::seconds(1));
  }
  void ExpectsChange(const std::string& part) {
    const Status looked = watch_.Look();
    ASSERT_FALSE(looked);
    EXPECT_EQ(looked.error().code, Errc::kInvalidFile);
    EXPECT_TRUE(looked.error().message.contains(path_)) << looked.error().message;
    EXPECT_TRUE(looked.error().message.contains(part)) << looked.error().message;
  }

  TempFolder folder_;
  std::string path_ = folder_.File("model.gguf");
  double now_ = 100.0;
  Clock clock_ = [this] { return now_; };
  FileWatch watch_;
};

TEST_F(FileWatchTest, WhatStaysAsItIsIsNoChange) { EXPECT_TRUE(watch_.Look()); }

TEST_F(FileWatchTest, AnotherSizeIsAChange) {
  Write(path_, "other weights");
  ExpectsChange("size");
}

TEST_F(FileWatchTest, OtherBytesOfTheSameSizeAreAChange) {
  Write(path_, "Weights");
  Touch();
  ExpectsChange("written");
}

TEST_F(FileWatchTest, AnotherFileOfTheSameNameIsAChange) {
  const std::string other = folder_.File("other.gguf");
  Write(other, "weights");
  std::filesystem::last_write_time(other, std::filesystem::last_write_time(path_));
  std::filesystem::rename(other, path_);
  ExpectsChange("another file");
}

TEST_F(FileWatchTest, ALostNameIsNoChange) {
  std::filesystem::remove(path_);
  EXPECT_TRUE(watch_.Look());
}

TEST_F(FileWatchTest, LooksOnceASecond) {
  EXPECT_TRUE(watch_.LookNowAndThen());
  Write(path_, "other weights");
  now_ += 0.9;
  EXPECT_TRUE(watch_.LookNowAndThen());
  now_ += 0.2;
  EXPECT_FALSE(watch_.LookNowAndThen());
}

}  // namespace
}  // namespace moestro
