// SPDX-License-Identifier: MIT
#include "base/file_watch.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

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
