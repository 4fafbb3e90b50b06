// SPDX-License-Identifier: MIT
#include "serve/api_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

TEST(ApiKeys, KnowsKeysInFullOnly) {
  const std::vector<std::string> keys = {"first", "second", "aa"};
  for (const char* known : {"first", "second", "aa"}) EXPECT_TRUE(IsKnownKey(keys, known));
  for (const char* other : {"", "f", "firs", "first ", "firstfirst", "First", "second2", "a", "aaa",
                            "aaaa", "fi\x72sT", "econd"}) {
    EXPECT_FALSE(IsKnownKey(keys, other)) << other;
  }
  EXPECT_FALSE(IsKnownKey({}, ""));
  EXPECT_FALSE(IsKnownKey({}, "a"));
  EXPECT_FALSE(IsKnownKey(keys, std::string(1 << 20, 'a')));
  EXPECT_FALSE(IsKnownKey(keys, std::string("first\0", 6)));
}

TEST(ApiKeys, TheSchemeHasNoCase) {
  EXPECT_EQ(BearerOf("Bearer a b"), "a b");
  EXPECT_EQ(BearerOf("bearer KEY"), "KEY");
  EXPECT_EQ(BearerOf("BEARER  KEY"), "KEY");
  EXPECT_EQ(BearerOf("Basic KEY"), "");
  EXPECT_EQ(BearerOf("Bearer"), "");
  EXPECT_EQ(BearerOf(""), "");
}

TEST(ApiKeys, ReadsAKeyALine) {
  const TempFolder folder;
  const std::string path = folder.File("keys");
  std::ofstream(path) << "first\r\n\nsecond  \nlast";
  EXPECT_EQ(*ReadKeyFile(path), (std::vector<std::string>{"first", "second", "last"}));
  std::ofstream(path) << "\n \n";
  EXPECT_EQ(ReadKeyFile(path).error().code, Errc::kUsage);
  EXPECT_EQ(ReadKeyFile(folder.File("absent")).error().code, Errc::kIo);
}

TEST(ApiKeys, WhatNoClientCanSendIsNamedByItsLine) {
  const TempFolder folder;
  const std::string path = folder.File("keys");
  const auto read = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
    return ReadKeyFile(path);
  };
  EXPECT_EQ(*read("# of the editor\nfirst\t \n#second\na b#c\n"),
            (std::vector<std::string>{"first", "a b#c"}));
  EXPECT_EQ(read("# none\n").error().code, Errc::kUsage);
  for (const auto& [bytes, line, secret] :
       {std::tuple("\xef\xbb\xbf"
                   "first\n",
                   "line 1", "first"),
        std::tuple("first\n\n second\n", "line 3", "second"),
        std::tuple("first\nsec\tond\n", "line 2", "ond"),
        std::tuple("\tfirst\n", "line 1", "first"), std::tuple("caf\xc3\xa9\n", "line 1", "caf"),
        std::tuple("first\rsecond\r", "line 1", "second"),
        std::tuple("\xff\xfe"
                   "f",
                   "line 1", "\xff")}) {
    const auto keys = read(bytes);
    ASSERT_FALSE(keys) << bytes;
    EXPECT_EQ(keys.error().code, Errc::kUsage);
    EXPECT_TRUE(keys.error().message.contains(line)) << keys.error().message;
    EXPECT_FALSE(keys.error().message.contains(secret)) << "a message repeats no key";
  }
  EXPECT_EQ(ReadKeyFile("/dev/zero").error().code, Errc::kUsage) << "it has no end";
}

// The mode of a credential is systemd's, and chmod cannot change it.
TEST(ApiKeys, ACredentialsModeIsNoWarning) {
  const TempFolder folder;
  const std::string path = folder.File("keys");
  std::ofstream(path) << "first";
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  const auto said = [&](const char* credentials) {
    setenv("CREDENTIALS_DIRECTORY", credentials, 1);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(ReadKeyFile(path));
    unsetenv("CREDENTIALS_DIRECTORY");
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(said(folder.path().c_str()), "");
  for (const char* elsewhere : {"", "/", "/run", "keys"}) {
    EXPECT_TRUE(said(elsewhere).contains("chmod 600")) << elsewhere;
  }
}

}  // namespace
}  // namespace moestro
