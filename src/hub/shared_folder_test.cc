// SPDX-License-Identifier: MIT
#include "hub/shared_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/output_file.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class SharedFolderTest : public ::testing::Test {
 protected:
  std::string Cache(const std::string& below) const { return cache_.path().string() + "/" + below; }
  Result<SharedFolder> Open(const std::string& below,
                            SharedFolder::Way way = SharedFolder::Way::kMake) const {
    return SharedFolder::Open(cache_.path().string(), Cache(below), way);
  }

  TempFolder cache_;
  TempFolder elsewhere_;
};

TEST_F(SharedFolderTest, IsMadeWithAllAboveIt) {
  ASSERT_TRUE(Open("a/b/c"));
  EXPECT_TRUE(fs::is_directory(Cache("a/b/c")));
  EXPECT_TRUE(Open("a/b/c", SharedFolder::Way::kNoLinks));
  EXPECT_FALSE(Open("a/none", SharedFolder::Way::kNoLinks));
  EXPECT_FALSE(fs::exists(Cache("a/none")));
}

TEST_F(SharedFolderTest, FollowsLinksOfThisUserAlone) {
  fs::create_directory_symlink(elsewhere_.path(), Cache("a"));
  ASSERT_TRUE(Open("a/b"));
  EXPECT_TRUE(fs::is_directory(elsewhere_.File("b")));
  const auto strict = Open("a/b", SharedFolder::Way::kNoLinks);
  ASSERT_FALSE(strict);
  EXPECT_TRUE(strict.error().message.contains("is a link")) << strict.error().message;
  if (geteuid() != 0) GTEST_SKIP() << "only root can make links of others";
  constexpr uid_t kOther = 12345;
  ASSERT_EQ(lchown(Cache("a").c_str(), kOther, kOther), 0);
  const auto planted = Open("a/b");
  ASSERT_FALSE(planted);
  EXPECT_TRUE(planted.error().message.contains("another user's link")) << planted.error().message;
}

TEST_F(SharedFolderTest, OpensNoFileThatLiesElsewhere) {
  const auto folder = Open("a");
  ASSERT_TRUE(folder);
  constexpr mode_t kMode = 0600;
  fs::create_symlink(elsewhere_.File("new"), Cache("a/link"));
  EXPECT_FALSE(folder->OpenFile("link", kMode));
  EXPECT_FALSE(fs::exists(elsewhere_.File("new")));
  std::ofstream(elsewhere_.File("precious")) << "precious";
  fs::create_hard_link(elsewhere_.File("precious"), Cache("a/hard"));
  EXPECT_FALSE(folder->OpenFile("hard", kMode));
  ASSERT_EQ(mkfifo(Cache("a/pipe").c_str(), kMode), 0);
  EXPECT_FALSE(folder->OpenFile("pipe", kMode));
  const auto file = folder->OpenFile("file", kMode);
  ASSERT_TRUE(file);
  EXPECT_TRUE(folder->Names("file", file->get()));
  EXPECT_FALSE(folder->Names("pipe", file->get()));
}

// The way to a folder may change while it is open.
TEST_F(SharedFolderTest, WhatIsDoneIsDoneInTheFolderThatWasOpened) {
  const auto folder = Open("a/b");
  ASSERT_TRUE(folder);
  fs::rename(Cache("a/b"), Cache("moved"));
  fs::create_directory_symlink(elsewhere_.path(), Cache("a/b"));
  auto output = OutputFile::Create(folder->Output("file"));
  ASSERT_TRUE(output) << output.error().message;
  ASSERT_TRUE(output->Publish());
  output->Keep();
  ASSERT_TRUE(folder->MakeLink("link", "file"));
  ASSERT_TRUE(folder->Rename("file", "renamed"));
  EXPECT_TRUE(elsewhere_.is_empty());
  EXPECT_TRUE(fs::exists(Cache("moved/renamed")));
  EXPECT_TRUE(folder->Remove("renamed"));
  EXPECT_TRUE(folder->Remove("renamed"));
}

// A planted link of a file's name is replaced, not followed.
TEST_F(SharedFolderTest, AnOutputReplacesALink) {
  const auto folder = Open("a");
  ASSERT_TRUE(folder);
  std::ofstream(elsewhere_.File("precious")) << "precious";
  fs::create_symlink(elsewhere_.File("precious"), Cache("a/file"));
  auto output = OutputFile::Create(folder->Output("file"));
  ASSERT_TRUE(output && output->Publish());
  output->Keep();
  EXPECT_EQ(ReadAll(elsewhere_.File("precious")), "precious");
  EXPECT_FALSE(fs::is_symlink(Cache("a/file")));
}

}  // namespace
}  // namespace moestro
