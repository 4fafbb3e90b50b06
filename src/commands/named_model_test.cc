// SPDX-License-Identifier: MIT
#include "commands/named_model.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class DemoModelTest : public testing::Test {
 protected:
  DemoModelTest()
      : folder_(fs::temp_directory_path() /
                Format("moestro_demo_{}_{}", getpid(),
                       testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~DemoModelTest() override { fs::remove_all(folder_); }

  // Compared as one value: a mismatch must not print 24 MB.
  static bool IsTheModel(const std::string& path) {
    return ReadAll(path) == ReadAll(MOESTRO_SOURCE_DIR "/models/stories-moe-q8_0.gguf");
  }
  size_t FilesInFolder() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
};

TEST_F(DemoModelTest, UnpacksTheShippedFileOnceAndFindsItAgain) {
  const auto path = DemoModelPathIn(folder_);
  ASSERT_TRUE(path) << path.error().message;
  EXPECT_TRUE(path->starts_with(folder_.string()));
  EXPECT_TRUE(IsTheModel(*path));
  const auto written = fs::last_write_time(*path);
  EXPECT_EQ(DemoModelPathIn(folder_).value(), *path);
  EXPECT_EQ(fs::last_write_time(*path), written);
  EXPECT_EQ(FilesInFolder(), 1U);
}

// Of two servers that started at once with an empty folder, the first ended: its file was replaced.
TEST_F(DemoModelTest, ProgramsThatStartAtOnceUseTheSameFile) {
  std::mutex mutex;
  std::set<ino_t> files;
  std::vector<std::jthread> programs;
  for (int i = 0; i < 8; ++i) {
    programs.emplace_back([&] {
      struct stat info{};
      const auto path = DemoModelPathIn(folder_);
      ASSERT_TRUE(path && stat(path->c_str(), &info) == 0);
      const std::lock_guard lock(mutex);
      files.insert(info.st_ino);
    });
  }
  programs.clear();
  EXPECT_EQ(files.size(), 1U);
  EXPECT_EQ(FilesInFolder(), 1U);
}

TEST_F(DemoModelTest, ReplacesADamagedCopy) {
  const auto path = DemoModelPathIn(folder_);
  ASSERT_TRUE(path);
  std::fstream(*path, std::ios::binary | std::ios::in | std::ios::out).seekp(5000).put('!');
  ASSERT_FALSE(IsTheModel(*path));
  EXPECT_TRUE(IsTheModel(DemoModelPathIn(folder_).value()));
  fs::resize_file(*path, 100);
  EXPECT_TRUE(IsTheModel(DemoModelPathIn(folder_).value()));
  EXPECT_EQ(FilesInFolder(), 1U);
}

TEST_F(DemoModelTest, FallsBackToMemoryWhereNothingCanBeWritten) {
  std::ofstream(folder_) << "a file where the folder should be";
  for (const std::string& folder : {folder_.string(), std::string()}) {
    const auto path = DemoModelPathIn(folder);
    ASSERT_TRUE(path) << path.error().message;
    EXPECT_TRUE(path->starts_with("/proc/self/fd/"));
    EXPECT_TRUE(IsTheModel(*path));
  }
}

}  // namespace
}  // namespace moestro
