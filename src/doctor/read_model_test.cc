// SPDX-License-Identifier: MIT
#include "doctor/read_model.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class ReadModelTest : public ::testing::Test {
 protected:
  std::string Put(const std::string& name, const std::string& text = "x") {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
  }
  std::string root() const { return folder_.path().string(); }

  TempFolder folder_;
};

std::vector<std::string> PathsOf(const std::vector<PathStep>& steps) {
  std::vector<std::string> paths;
  for (const PathStep& step : steps) paths.push_back(step.path);
  return paths;
}

TEST_F(ReadModelTest, AWalkPassesEveryFolder) {
  const std::string path = Put("a/b/model.gguf");
  ASSERT_EQ(::chmod((root() + "/a").c_str(), 0710), 0);
  const auto steps = WalkPath(path);
  const auto paths = PathsOf(steps);
  ASSERT_GE(steps.size(), 4U);
  EXPECT_EQ(paths.front(), "/");
  EXPECT_EQ(paths.back(), path);
  EXPECT_TRUE(steps.back().is_target);
  EXPECT_FALSE(steps.back().is_folder);
  const auto a = std::ranges::find(steps, root() + "/a", &PathStep::path);
  ASSERT_NE(a, steps.end());
  EXPECT_EQ(a->mode, 0710U);
  EXPECT_TRUE(a->is_folder);
  EXPECT_FALSE(a->is_target);
  EXPECT_EQ(a->owner, ::geteuid());
  EXPECT_EQ(WalkPath(folder_.File("a/./b/../b/model.gguf")).size(), steps.size());
}

// The hub's folders: names are links to where the bytes are.
TEST_F(ReadModelTest, AWalkPassesTheFoldersOnBothSidesOfALink) {
  Put("blobs/1234");
  fs::create_directories(folder_.path() / "snapshots/main");
  fs::create_symlink("../../blobs/1234", folder_.path() / "snapshots/main/model.gguf");
  const auto steps = WalkPath(folder_.File("snapshots/main/model.gguf"));
  const auto paths = PathsOf(steps);
  for (const char* name : {"snapshots", "snapshots/main", "blobs", "blobs/1234"}) {
    EXPECT_TRUE(std::ranges::contains(paths, folder_.File(name))) << name;
  }
  EXPECT_EQ(steps.back().path, folder_.File("blobs/1234"));
  EXPECT_TRUE(steps.back().is_target);
}

TEST_F(ReadModelTest, LinksInACircleAndMissingFilesEnd) {
  fs::create_symlink("two", folder_.path() / "one");
  fs::create_symlink("one", folder_.path() / "two");
  EXPECT_TRUE(std::ranges::none_of(WalkPath(root() + "/one"), &PathStep::is_target));
  EXPECT_TRUE(std::ranges::none_of(WalkPath(root() + "/no/model.gguf"), &PathStep::is_target));
  EXPECT_FALSE(WalkPath("").empty());
}

TEST_F(ReadModelTest, ADiskIsTheWholeOfAPartition) {
  Put("sys/devices/pci/block/sda/queue/rotational", "1\n");
  Put("sys/devices/pci/block/sda/sda1/partition", "1\n");
  fs::create_directories(folder_.path() / "sys/dev/block");
  fs::create_symlink("../../devices/pci/block/sda/sda1", folder_.path() / "sys/dev/block/8:1");
  fs::create_symlink("../../devices/pci/block/sda", folder_.path() / "sys/dev/block/8:0");
  for (const uint32_t minor : {0U, 1U}) {
    const DiskFacts disk = ReadDisk(root(), {.major = 8, .minor = minor});
    EXPECT_EQ(disk.name, "sda");
    EXPECT_EQ(disk.is_rotational, true);
  }
  EXPECT_EQ(ReadDisk(root(), {.major = 9, .minor = 9}).name, "");
  EXPECT_EQ(ReadDisk(root(), {.source = "tmpfs"}).name, "");
}

TEST_F(ReadModelTest, CardsAreDisksOfTheirOwnKind) {
  fs::create_directories(folder_.path() / "sys/class/block");
  const auto card_of = [&](const std::string& name, const std::string& type) {
    const fs::path device = fs::path("sys/devices/mmc/block") / name;
    Put(device / "queue/rotational", "0\n");
    Put(device / "device/type", type);
    fs::create_symlink(folder_.path() / device, folder_.path() / "sys/class/block" / name);
    return ReadDisk(root(), {.source = "/dev/" + name}).card;
  };
  EXPECT_EQ(card_of("mmcblk0", "SD\n"), "SD");
  EXPECT_EQ(card_of("mmcblk1", "MMC\n"), "MMC");
  EXPECT_EQ(card_of("mmcblk2", ""), "SD");
  EXPECT_EQ(card_of("nvme0n1", "SD\n"), "");
}

TEST_F(ReadModelTest, ReadsAreMeasuredOfFilesThatAreLargeEnough) {
  Put("small", std::string(1000, 'x'));
  EXPECT_EQ(MeasureReads((folder_.path() / "small").string()), std::nullopt);
  EXPECT_EQ(MeasureReads((folder_.path() / "none").string()), std::nullopt);
  Put("large", std::string(size_t{20} << 20, 'x'));
  const std::optional<double> rate = MeasureReads((folder_.path() / "large").string());
  ASSERT_TRUE(rate);
  EXPECT_GT(*rate, 0.0);
}

// btrfs has no number of a disk, but names one.
TEST_F(ReadModelTest, ADiskIsFoundByItsName) {
  Put("sys/devices/nvme/block/nvme9n1/queue/rotational", "0\n");
  fs::create_directories(folder_.path() / "sys/class/block");
  fs::create_symlink("../../devices/nvme/block/nvme9n1",
                     folder_.path() / "sys/class/block/nvme9n1");
  const DiskFacts disk = ReadDisk(root(), {.source = "/dev/nvme9n1"});
  EXPECT_EQ(disk.name, "nvme9n1");
  EXPECT_EQ(disk.is_rotational, false);
  Put("sys/devices/nvme/block/nvme9n1/queue/rotational", std::string(9999, '0'));
  EXPECT_EQ(ReadDisk(root(), {.source = "/dev/nvme9n1"}).is_rotational, std::nullopt);
}

TEST_F(ReadModelTest, TheFileSystemIsTheMounts) {
  const std::string path = Put("model.gguf");
  Put("proc/self/mountinfo",
      Format("1 1 0:5 / / rw - ext4 /dev/x rw\n2 1 0:6 / {} rw - nfs4 server:/a rw\n", root()));
  const ModelFacts facts = ReadModel(root(), path, "");
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(facts.file_system, "nfs4");
  EXPECT_EQ(facts.mount, root());
  EXPECT_NE(facts.direct, DirectReads::kUnknown);
}

TEST_F(ReadModelTest, EveryPartIsLookedAt) {
  Put("m-00001-of-00003.gguf");
  Put("m-00002-of-00003.gguf");
  const std::string first = root() + "/m-00001-of-00003.gguf";
  EXPECT_TRUE(ReadModel(root(), first, "").error.contains("m-00003-of-00003.gguf"));
  Put("m-00003-of-00003.gguf");
  const ModelFacts facts = ReadModel(root(), first, "");
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(std::ranges::count_if(facts.steps, &PathStep::is_target), 3);
  // A number that nobody would make parts of is a name.
  EXPECT_EQ(ReadModel(root(), Put("n-00001-of-99999.gguf"), "").error, "");
}

TEST_F(ReadModelTest, AFolderIsLookedAtWithItsModels) {
  Put("models/a.gguf");
  Put("models/b.gguf");
  Put("models/note.txt");
  const ModelFacts facts = ReadModel(root(), root() + "/models", "");
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(std::ranges::count_if(facts.steps, &PathStep::is_target), 3);
}

TEST_F(ReadModelTest, ALinkThatLeadsOutOfTheFolderIsForeign) {
  Put("models/a.gguf");
  const std::string secret = Put("elsewhere/secret");
  fs::create_symlink(secret, folder_.path() / "models/b.gguf");
  for (const PathStep& step : ReadModel(root(), root() + "/models", "").steps) {
    EXPECT_EQ(step.is_foreign, step.path.starts_with(root() + "/elsewhere")) << step.path;
  }
  // Who names the link itself means what it leads to.
  const ModelFacts named = ReadModel(root(), root() + "/models/b.gguf", "");
  EXPECT_TRUE(std::ranges::none_of(named.steps, &PathStep::is_foreign));
}

TEST_F(ReadModelTest, TheModelsOfAFolderAreCounted) {
  Put("empty/note.txt");
  EXPECT_EQ(ReadModel(root(), root() + "/empty", "").models, 0U);
  const std::string file = Put("full/a.gguf");
  EXPECT_EQ(ReadModel(root(), root() + "/full", "").models, 1U);
  EXPECT_EQ(ReadModel(root(), file, "").models, std::nullopt);
}

TEST_F(ReadModelTest, WhatCannotBeOpenedIsSaid) {
  EXPECT_TRUE(ReadModel(root(), root() + "/none.gguf", "").error.contains("none.gguf"));
  ASSERT_EQ(::mkfifo((root() + "/pipe.gguf").c_str(), 0600), 0);
  EXPECT_TRUE(ReadModel(root(), root() + "/pipe.gguf", "").error.contains("regular"));
}

TEST(FindUser, ByNameNumberAndNothing) {
  EXPECT_EQ(FindUser("root").id, 0U);
  EXPECT_EQ(FindUser("0").name, "root");
  EXPECT_EQ(FindUser("").id, ::geteuid());
  const UserFacts nobody = FindUser("no-such-user-anywhere");
  EXPECT_FALSE(nobody.is_known);
  EXPECT_NE(nobody.id, 0U);
  EXPECT_TRUE(nobody.groups.empty());
  EXPECT_FALSE(FindUser(std::string(100'000, 'x')).is_known);
  EXPECT_FALSE(FindUser("-1").is_known);
  EXPECT_EQ(FindUser("123456789").id, 123456789U);
}

}  // namespace
}  // namespace moestro
