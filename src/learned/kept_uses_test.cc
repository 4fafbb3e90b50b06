// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "learned/kept_facts.h"
#include "tests/support/file_size_limit_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class KeptUsesTest : public ::testing::Test {
 protected:
  static ModelId Model() {
    return {.fingerprint = 7, .shape = {.n_layer = 2, .n_expert = 3, .n_used = 1}};
  }
  std::string cache() const { return folder_.File("cache"); }
  std::string file() const { return KeptUsesFile(cache(), Model()); }
  std::string Content() const {
    std::ifstream in(file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void Write(const std::string& content) const {
    std::ofstream(file(), std::ios::binary) << content;
  }

  TempFolder folder_;
  const std::vector<uint8_t> uses_ = {0, 1, 255, 10, 0, 128};
};

TEST_F(KeptUsesTest, WhatIsKeptIsFound) {
  EXPECT_TRUE(KeptUses(cache(), Model()).empty());
  KeepUses(cache(), Model(), uses_);
  EXPECT_EQ(KeptUses(cache(), Model()), uses_);
  std::vector<uint8_t> later = uses_;
  later[0] = 99;
  KeepUses(cache(), Model(), later);
  EXPECT_EQ(KeptUses(cache(), Model()), later);
  struct stat info{};
  ASSERT_EQ(::stat(file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600U);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache()), fs::directory_iterator()), 1);
}

TEST_F(KeptUsesTest, OtherModelsHaveOthers) {
  KeepUses(cache(), Model(), uses_);
  ModelId other = Model();
  other.fingerprint = 8;
  EXPECT_TRUE(KeptUses(cache(), other).empty());
  // A foreign file under this model's name.
  KeepUses(cache(), other, uses_);
  fs::rename(KeptUsesFile(cache(), other), file());
  EXPECT_TRUE(KeptUses(cache(), Model()).empty());
  // The same header and another shape.
  KeepUses(cache(), Model(), uses_);
  other = Model();
  other.shape.n_expert = 2;
  EXPECT_TRUE(KeptUses(cache(), other).empty());
}

TEST_F(KeptUsesTest, ADamagedFileIsNoHint) {
  KeepUses(cache(), Model(), uses_);
  const std::string good = Content();
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    Write(bad);
    EXPECT_TRUE(KeptUses(cache(), Model()).empty()) << "byte " << i;
    Write(good.substr(0, i));
    EXPECT_TRUE(KeptUses(cache(), Model()).empty()) << i << " bytes";
  }
  Write(good + "x");
  EXPECT_TRUE(KeptUses(cache(), Model()).empty());
  Write(good);
  EXPECT_EQ(KeptUses(cache(), Model()), uses_);
}

TEST_F(KeptUsesTest, FilesThatOthersCouldHaveMadeAreNotRead) {
  KeepUses(cache(), Model(), uses_);
  fs::permissions(file(), fs::perms::others_write, fs::perm_options::add);
  EXPECT_TRUE(KeptUses(cache(), Model()).empty());
  fs::permissions(file(), fs::perms::others_write, fs::perm_options::remove);
  fs::rename(file(), file() + "-moved");
  fs::create_symlink(file() + "-moved", file());
  EXPECT_TRUE(KeptUses(cache(), Model()).empty());
  fs::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_TRUE(KeptUses(cache(), Model()).empty());
  fs::remove(file());
  fs::create_directory(file());
  EXPECT_TRUE(KeptUses(cache(), Model()).empty());
  KeepUses(cache(), Model(), uses_);  // cannot: no more than a line in the log
  EXPECT_TRUE(fs::is_directory(file()));
  EXPECT_EQ(std::distance(fs::directory_iterator(cache()), fs::directory_iterator()), 2);
}

TEST_F(KeptUsesTest, AFullDiskLeavesTheFileBefore) {
  KeepUses(cache(), Model(), uses_);
  {
    const FileSizeLimit full(8);
    KeepUses(cache(), Model(), std::vector<uint8_t>(6, 1));
  }
  EXPECT_EQ(KeptUses(cache(), Model()), uses_);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache()), fs::directory_iterator()), 1);
}

TEST_F(KeptUsesTest, WithoutAFolderNothingIsKept) {
  KeepUses("", Model(), uses_);
  EXPECT_TRUE(KeptUses("", Model()).empty());
  KeepUses(cache(), Model(), std::vector<uint8_t>(5));  // of no shape
  EXPECT_FALSE(fs::exists(cache()));
}

}  // namespace
}  // namespace moestro
