// SPDX-License-Identifier: MIT
#include "doctor/access.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace moestro {
namespace {

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

}  // namespace
}  // namespace moestro
