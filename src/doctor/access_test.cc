// SPDX-License-Identifier: MIT
#include "doctor/access.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

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

const UserFacts kOwner = {.name = "anna", .id = 1000, .groups = {1000, 50}};
const UserFacts kMember = {.name = "bert", .id = 1001, .groups = {1001, 50}};
const UserFacts kStranger = {.name = "carl", .id = 1002, .groups = {1002}};
const UserFacts kRoot = {.name = "root", .id = 0, .groups = {0}};

PathStep Folder(uint32_t mode) {
  return {.path = "/models", .owner = 1000, .group = 50, .mode = mode};
}
PathStep File(uint32_t mode) {
  PathStep step = Folder(mode);
  step.path = "/models/a b.gguf";
  step.is_folder = false;
  step.is_target = true;
  return step;
}

std::string Bytes(const std::vector<std::vector<uint32_t>>& entries, uint32_t version = 2) {
  const auto add = [](std::string& to, uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) to += static_cast<char>(value >> (8 * i) & 255U);
  };
  std::string out;
  add(out, version, 4);
  for (const auto& entry : entries) {
    add(out, entry[0], 2);
    add(out, entry[1], 2);
    add(out, entry[2], 4);
  }
  return out;
}

TEST(BitsFor, OneThirdOfTheModeCounts) {
  EXPECT_EQ(BitsFor(kOwner, Folder(0740)), 7);
  EXPECT_EQ(BitsFor(kMember, Folder(0740)), 4);
  EXPECT_EQ(BitsFor(kStranger, Folder(0740)), 0);
  EXPECT_EQ(BitsFor(kRoot, Folder(0)), 7);
  // Who owns a file has not what others have.
  EXPECT_EQ(BitsFor(kOwner, Folder(0077)), 0);
  EXPECT_EQ(BitsFor(kMember, Folder(0707)), 0);
}

TEST(BitsFor, AListGivesMoreAndItsMaskLess) {
  PathStep step = Folder(0770);  // the middle is the mask
  step.list = ParseAccessList(
      Bytes({{1, 7, 0}, {2, 5, 1002}, {4, 0, 0}, {8, 6, 1001}, {16, 7, 0}, {32, 0, 0}}));
  ASSERT_TRUE(step.list);
  EXPECT_EQ(BitsFor(kOwner, step), 7);
  EXPECT_EQ(BitsFor(kStranger, step), 5);
  EXPECT_EQ(BitsFor(kMember, step), 6);  // of its own group, and of the folder's, which has none
  EXPECT_EQ(BitsFor({.name = "d", .id = 7, .groups = {7}}, step), 0);
  step.list->mask = 4;
  EXPECT_EQ(BitsFor(kStranger, step), 4);
  EXPECT_EQ(BitsFor(kMember, step), 4);
  EXPECT_EQ(BitsFor(kOwner, step), 7);
}

TEST(ParseAccessList, OtherBytesAreNone) {
  EXPECT_FALSE(ParseAccessList(""));
  EXPECT_FALSE(ParseAccessList("abc"));
  EXPECT_FALSE(ParseAccessList(Bytes({}, 1)));
  EXPECT_FALSE(ParseAccessList(Bytes({{2, 7, 5}}) + "x"));
  EXPECT_TRUE(ParseAccessList(Bytes({})));
  std::mt19937 random(5);
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = Bytes({{2, 7, 5}, {8, 7, 5}, {16, 7, 0}});
    bytes[4 + random() % (bytes.size() - 4)] = static_cast<char>(random());
    PathStep step = Folder(0750);
    step.list = ParseAccessList(bytes);
    ASSERT_TRUE(step.list);
    EXPECT_LE(BitsFor(kStranger, step), 7);
  }
}

TEST(FindGaps, NamesEachPartThatStops) {
  const std::vector<PathStep> steps = {Folder(0755), Folder(0700), File(0640)};
  EXPECT_TRUE(FindGaps(kOwner, steps).empty());
  const auto gaps = FindGaps(kStranger, steps);
  ASSERT_EQ(gaps.size(), 2U);
  EXPECT_EQ(gaps[0].path, "/models");
  EXPECT_EQ(gaps[0].bits, "x");
  EXPECT_EQ(gaps[1].path, "/models/a b.gguf");
  EXPECT_EQ(gaps[1].bits, "r");
  EXPECT_EQ(FindGaps(kMember, steps).size(), 1U);
}

// Models are named, so nobody needs a list of what is in their folder.
TEST(FindGaps, AFolderOfModelsMustBePassedOnly) {
  PathStep folder = Folder(0711);
  folder.is_target = true;
  EXPECT_TRUE(FindGaps(kStranger, {folder}).empty());
  folder.mode = 0700;
  EXPECT_EQ(FindGaps(kStranger, {folder})[0].bits, "x");
}

TEST(ShellWord, IsOneWordForAnyText) {
  EXPECT_EQ(ShellWord("/models/a-1.gguf"), "/models/a-1.gguf");
  EXPECT_EQ(ShellWord("/a b"), "'/a b'");
  EXPECT_EQ(ShellWord("a'; rm -rf /"), "'a'\\''; rm -rf /'");
  EXPECT_EQ(ShellWord("$(x)"), "'$(x)'");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("/mod\xc3\xa8les"), "$'/mod\\303\\250les'");
  EXPECT_EQ(ShellWord("/a'\\\n\x1b[2J$"), "$'/a\\'\\\\\\012\\033[2J$'");
}

const UserFacts kUnit = {.name = "moestro", .id = 4'000'000, .groups = {}, .is_known = false};
const UserFacts kHuman = {.name = "anna", .id = 1000, .groups = {1000}};

// Every folder down to a file that its owner alone, number 61200, may read from "private" on.
std::vector<PathStep> WayTo(const std::string& path) {
  std::vector<PathStep> steps = {{.path = "/", .mode = 0755}};
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1)) {
    const std::string folder = path.substr(0, end);
    steps.push_back({.path = folder, .mode = IsPrivateRoot(folder) ? 0700U : 0755U});
    if (folder.contains("/private/")) steps.back().owner = 61200;
  }
  steps.push_back({.path = path, .mode = 0600, .is_folder = false, .is_target = true});
  if (path.contains("/private/")) steps.back().owner = 61200;
  return steps;
}

TEST(ServiceView, AServiceIsOursOrHasAUserThatComesAndGoes) {
  EXPECT_TRUE(IsService(kUnit));
  EXPECT_TRUE(IsService({.name = "moestro", .id = 999}));
  EXPECT_TRUE(IsService({.name = "other", .id = 61184}));
  EXPECT_FALSE(IsService(kHuman));
  EXPECT_FALSE(IsService({.name = "root", .id = 0}));
}

TEST(ServiceView, ItsOwnFolderIsOpenToItWhileItRuns) {
  for (const char* path : {"/var/lib/private/moestro/a.gguf", "/var/lib/private/moestro/b/a.gguf",
                           "/var/cache/private/moestro/a.gguf"}) {
    const ServiceView view = ViewOf(kUnit, WayTo(path));
    EXPECT_EQ(view.hidden, "");
    EXPECT_TRUE(FindGaps(kUnit, view.steps).empty()) << path;
  }
  // A file that root put there and that root alone may read.
  std::vector<PathStep> steps = WayTo("/var/lib/private/moestro/a.gguf");
  steps.back().owner = 0;
  EXPECT_EQ(FindGaps(kUnit, ViewOf(kUnit, steps).steps).size(), 1U);
}

TEST(ServiceView, AnotherServicesFolderIsHidden) {
  const ServiceView view = ViewOf(kUnit, WayTo("/var/lib/private/other/a.gguf"));
  EXPECT_EQ(view.hidden, "/var/lib/private/other");
  EXPECT_EQ(view.setting, "DynamicUser");
}

TEST(ServiceView, HomesAndTemporaryFoldersAreHidden) {
  const std::string file = "/a.gguf";
  const std::string home = "/home";
  for (const auto& [folder, setting] :
       {std::pair(home + "/anna", "ProtectHome"), std::pair(std::string("/root"), "ProtectHome"),
        std::pair(std::string("/run/user/1000"), "ProtectHome"),
        std::pair(std::string("/tmp"), "PrivateTmp"),
        std::pair(std::string("/var/tmp"), "PrivateTmp")}) {
    EXPECT_EQ(ViewOf(kUnit, WayTo(folder + file)).setting, setting) << folder;
    EXPECT_EQ(ViewOf(kHuman, WayTo(folder + file)).hidden, "") << folder;
  }
  for (const char* folder : {"/homes", "/models/home", "/var/lib/moestro"}) {
    EXPECT_EQ(ViewOf(kUnit, WayTo(folder + file)).hidden, "") << folder;
  }
  // A link to elsewhere that lies in a home cannot be followed either.
  std::vector<PathStep> steps = WayTo(home + "/anna" + file);
  steps.pop_back();
  for (const PathStep& step : WayTo("/models" + file)) steps.push_back(step);
  EXPECT_EQ(ViewOf(kUnit, steps).hidden, home + "/anna");
}

TEST(ServiceView, EverybodyElseIsJudgedByAllBits) {
  const ServiceView view = ViewOf(kHuman, WayTo("/var/lib/private/moestro/a.gguf"));
  EXPECT_TRUE(std::ranges::contains(view.steps, "/var/lib/private", &PathStep::path));
  EXPECT_EQ(FindGaps(kHuman, view.steps).size(), 2U);
}

}  // namespace
}  // namespace moestro
