// SPDX-License-Identifier: MIT
#include "doctor/mounts.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace moestro {
namespace {

constexpr const char* kTable =
    "21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n"
    "22 21 0:21 / /proc rw - proc proc rw\n"
    "36 21 8:17 / /models rw,noatime master:1 propagate_from:2 - xfs /dev/sdb1 rw\n"
    "37 36 0:44 / /models/far rw - nfs4 server:/a\\040b rw,vers=4.2\n"
    "38 21 0:50 /@home /with\\040blank rw - btrfs /dev/nvme0n1p2 rw,compress=zstd:3\n";

std::string TypeAt(const std::string& path) {
  const auto mount = FindMount(ParseMounts(kTable), path);
  return mount ? mount->file_system : "none";
}

TEST(Mounts, TheLongestPointCounts) {
  EXPECT_EQ(TypeAt("/"), "ext4");
  EXPECT_EQ(TypeAt("/usr/a"), "ext4");
  EXPECT_EQ(TypeAt("/models/a.gguf"), "xfs");
  EXPECT_EQ(TypeAt("/models"), "xfs");
  EXPECT_EQ(TypeAt("/models2/a.gguf"), "ext4");
  EXPECT_EQ(TypeAt("/models/far/a.gguf"), "nfs4");
  EXPECT_EQ(TypeAt("relative"), "none");
}

TEST(Mounts, TheLastOfSeveralAtOnePointCounts) {
  const auto mounts =
      ParseMounts(std::string(kTable) + "40 21 0:60 / /models rw - tmpfs none rw\n");
  EXPECT_EQ(FindMount(mounts, "/models/a")->file_system, "tmpfs");
}

TEST(Mounts, FieldsAreTaken) {
  const auto mounts = ParseMounts(kTable);
  ASSERT_EQ(mounts.size(), 5U);
  EXPECT_EQ(mounts[2].major, 8U);
  EXPECT_EQ(mounts[2].minor, 17U);
  EXPECT_EQ(mounts[2].source, "/dev/sdb1");
  EXPECT_EQ(mounts[3].source, "server:/a b");
  EXPECT_EQ(mounts[4].point, "/with blank");
  EXPECT_EQ(mounts[4].options, "rw,rw,compress=zstd:3");
}

TEST(Mounts, LinesThatAreNoneAreLeftOut) {
  for (const char* line :
       {"", "\n\n", "21 1 8:1 / / rw - ext4", "21 1 8 / / rw - ext4 a b", "a b c d e f g h",
        "21 1 8:x / / rw - ext4 a b", "21 1 99999999999:1 / / rw - ext4 a b", "- - - - - - - - -",
        "21 1 8:1 / relative rw - ext4 a b"}) {
    EXPECT_TRUE(ParseMounts(line).empty()) << line;
  }
  EXPECT_EQ(ParseMounts("21 1 8:1 / /a\\04 rw - ext4 a b").front().point, "/a\\04");
  EXPECT_FALSE(FindMount({}, "/a"));
}

TEST(Mounts, AnyBytesAreRead) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text = kTable;
    for (int n = 0; n < 8; ++n) text[random() % text.size()] = static_cast<char>(random());
    for (const Mount& mount : ParseMounts(text)) EXPECT_FALSE(mount.point.empty());
  }
}

}  // namespace
}  // namespace moestro
