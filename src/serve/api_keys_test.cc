// SPDX-License-Identifier: MIT
#include "serve/api_keys.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
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

}  // namespace
}  // namespace moestro
