// SPDX-License-Identifier: MIT
#include "commands/commands.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

constexpr uid_t kRoot = 0;
constexpr uid_t kUser = 1000;
constexpr uid_t kStranger = 4000;

struct stat Facts(uid_t user, mode_t mode, gid_t group = 100) {
  struct stat facts = {};
  facts.st_uid = user;
  facts.st_gid = group;
  facts.st_mode = mode;
  return facts;
}

// Both programs of one owner in that owner's folder.
LabFiles FilesOf(uid_t owner) {
  return {.program = Facts(owner, S_IFREG | 0755),
          .folder = Facts(owner, S_IFDIR | 0755),
          .link = Facts(owner, S_IFREG | 0755),
          .lab = Facts(owner, S_IFREG | 0755)};
}

TEST(StartLab, TrustsWhatTheProgramsOwnerPutBesideIt) {
  EXPECT_EQ(ReasonForDistrust(FilesOf(kRoot), kUser), "");
  EXPECT_EQ(ReasonForDistrust(FilesOf(kUser), kUser), "");
  // 'sudo build/moestro', and a colleague's programs.
  EXPECT_EQ(ReasonForDistrust(FilesOf(kUser), kRoot), "");
  EXPECT_EQ(ReasonForDistrust(FilesOf(kStranger), kUser), "");
  // A link to the package's.
  LabFiles linked = FilesOf(kUser);
  linked.link = Facts(kUser, S_IFLNK | 0777);
  linked.lab = Facts(kRoot, S_IFREG | 0755);
  EXPECT_EQ(ReasonForDistrust(linked, kUser), "");
}

TEST(StartLab, StartsNoStrangersForSomebodyWithMoreRights) {
  for (const uid_t user : {kRoot, kUser}) {
    LabFiles files = FilesOf(user);
    files.lab.st_uid = kStranger;
    EXPECT_EQ(ReasonForDistrust(files, user), "it belongs to user 4000, who is not this program's");
    files = FilesOf(user);
    files.link = Facts(kStranger, S_IFLNK | 0777);  // to a file of root's, in a folder as /tmp
    EXPECT_EQ(ReasonForDistrust(files, user), "it belongs to user 4000, who is not this program's");
    // A second name of a program with the set-user-ID bit, in a stranger's folder.
    files = FilesOf(user);
    files.folder.st_uid = kStranger;
    EXPECT_EQ(ReasonForDistrust(files, user),
              "its folder belongs to user 4000, who is not this program's");
  }
}

TEST(StartLab, StartsNoneThatOthersMayWrite) {
  LabFiles files = FilesOf(kUser);
  files.folder.st_mode |= S_IWOTH;
  EXPECT_EQ(ReasonForDistrust(files, kUser), "anybody may write to its folder");
  files.folder.st_mode |= S_ISVTX;  // as /tmp: only owners rename and remove
  EXPECT_EQ(ReasonForDistrust(files, kUser), "");
  files.lab.st_mode |= S_IWOTH;
  EXPECT_EQ(ReasonForDistrust(files, kUser), "anybody may write to it");
  // Where anybody may write to all files, the program is no better than the laboratory.
  files = FilesOf(kUser);
  for (struct stat* facts : {&files.program, &files.folder, &files.link, &files.lab}) {
    facts->st_mode |= 0777;
  }
  EXPECT_EQ(ReasonForDistrust(files, kUser), "");
  files = FilesOf(kUser);
  files.lab.st_mode |= S_IWGRP;  // umask 002
  EXPECT_EQ(ReasonForDistrust(files, kUser), "");
  files.lab.st_gid = 7;
  EXPECT_EQ(ReasonForDistrust(files, kUser),
            "group 7, which is not this program's, may write to it");
}

TEST(StartLab, StartsAPlainFileAlone) {
  for (const mode_t kind : {S_IFDIR, S_IFIFO, S_IFSOCK, S_IFCHR}) {
    LabFiles files = FilesOf(kUser);
    files.link = Facts(kUser, kind | 0755);
    files.lab = files.link;
    EXPECT_EQ(ReasonForDistrust(files, kUser), "it is no plain file");
  }
}

}  // namespace
}  // namespace moestro
