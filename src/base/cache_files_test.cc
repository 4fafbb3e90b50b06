// SPDX-License-Identifier: MIT
#include "base/cache_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

TEST(CacheFolder, WhatIsMadeIsForThisUserAlone) {
  const TempFolder folder;
  const mode_t before = umask(0);
  EXPECT_FALSE(MakePrivateFolder(folder.File("a/b")));
  umask(before);
  EXPECT_EQ(fs::status(folder.File("a")).permissions(), fs::perms::owner_all);
  EXPECT_EQ(fs::status(folder.File("a/b")).permissions(), fs::perms::owner_all);
  EXPECT_FALSE(IsOpenToOthers(folder.File("a/b")));
  fs::permissions(folder.File("a/b"), fs::perms::others_exec, fs::perm_options::add);
  EXPECT_TRUE(IsOpenToOthers(folder.File("a/b")));
  EXPECT_FALSE(MakePrivateFolder(folder.File("a/b")));  // one that exists stays as it is
  EXPECT_TRUE(IsOpenToOthers(folder.File("a/b")));
  EXPECT_FALSE(MakePrivateFolder(folder.File("a/b/")));
}

TEST(CacheFolder, WhatCannotBeMadeIsSaid) {
  const TempFolder folder;
  std::ofstream(folder.File("file")) << "x";
  EXPECT_TRUE(MakePrivateFolder(folder.File("file")));
  EXPECT_TRUE(MakePrivateFolder(folder.File("file/a")));
  EXPECT_TRUE(MakePrivateFolder("/proc/self/absent/a"));
  EXPECT_TRUE(MakePrivateFolder(""));
}

}  // namespace
}  // namespace moestro
