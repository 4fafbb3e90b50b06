// SPDX-License-Identifier: MIT
#include "offline/shard/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace moestro {
namespace {

TEST(Shard, IsReadAsIOfN) {
  EXPECT_EQ(ParseShard("2/5").value(), (Shard{.index = 2, .count = 5}));
  EXPECT_EQ(ParseShard("1/1").value(), (Shard{.index = 1, .count = 1}));
  EXPECT_EQ(ParseShard("65536/65536").value().index, 65536U);
}

TEST(Shard, AnythingElseIsAUsageErrorThatNamesIt) {
  for (const std::string text : {"",
                                 "/",
                                 "1",
                                 "1/",
                                 "/3",
                                 "0/3",
                                 "4/3",
                                 "1/0",
                                 "-1/3",
                                 "1/-3",
                                 "+1/3",
                                 " 1/3",
                                 "1/3 ",
                                 "1/2/3",
                                 "1.0/3",
                                 "a/b",
                                 "1/1000000000",
                                 "1/65537",
                                 "99999999999999999999/3",
                                 "1/99999999999999999999"}) {
    const auto shard = ParseShard(text);
    ASSERT_FALSE(shard) << text;
    EXPECT_EQ(shard.error().code, Errc::kUsage) << text;
  }
  EXPECT_NE(ParseShard("4/3").error().message.find("shard 4 of 3 does not exist"),
            std::string::npos);
  EXPECT_NE(ParseShard("1/1000000000").error().message.find("from 1 to 65536"), std::string::npos);
}

TEST(WindowsOf, GivesEachWindowToOneShardInOrder) {
  for (const uint64_t windows : {1U, 2U, 7U, 64U, 1000U}) {
    for (const uint32_t count : {1U, 2U, 3U, 5U, 64U, 999U}) {
      uint64_t next = 0;
      uint64_t least = windows;
      uint64_t most = 0;
      for (uint32_t index = 1; index <= count; ++index) {
        const WindowRange range = WindowsOf({.index = index, .count = count}, windows);
        EXPECT_EQ(range.begin, next);
        next = range.end;
        least = std::min(least, range.size());
        most = std::max(most, range.size());
      }
      EXPECT_EQ(next, windows);
      EXPECT_LE(most - least, 1U) << windows << " in " << count;
    }
  }
  const uint64_t many = (uint64_t{1} << 40) - 1;
  EXPECT_EQ(WindowsOf({.index = kMostShards, .count = kMostShards}, many).end, many);
}

TEST(Shards, NeedWindowsThatDoNotDependOnEachOther) {
  EngineOptions options;
  EXPECT_TRUE(CheckShardable(options));
  options.little.is_half = true;
  EXPECT_TRUE(CheckShardable(options));
  options.little.misses = Misses::kDrop;
  EXPECT_EQ(CheckShardable(options).error().code, Errc::kUsage);
  options.little = {};
  options.lossy.prefer_resident = 0.1;
  EXPECT_EQ(CheckShardable(options).error().code, Errc::kUsage);
  options.lossy = {};
  options.lossy.drop_below = 0.1;
  EXPECT_FALSE(CheckShardable(options));
  options.lossy = {};
  options.low = "low.gguf";
  EXPECT_FALSE(CheckShardable(options));
}

TEST(SettingsText, ChangesWithWhatIsComputedAndWithNothingElse) {
  const EngineOptions options;
  const std::string text = SettingsText(options, {.n_ctx = 128});
  EXPECT_NE(text, SettingsText(options, {.n_ctx = 64}));
  EXPECT_NE(text, SettingsText(options, {.is_native = false, .n_ctx = 128}));
  EngineOptions other = options;
  other.kv_type = KvType::kQ8;
  EXPECT_NE(text, SettingsText(other, {.n_ctx = 128}));
  other = options;
  other.little.is_half = true;
  const std::string little = SettingsText(other, {.n_ctx = 128});
  EXPECT_NE(text, little);
  other.little.gamma = 0.5;
  EXPECT_NE(little, SettingsText(other, {.n_ctx = 128}));
  other = options;
  other.threads = 7;
  other.ram_bytes = 1 << 30;
  other.prefetch = 3;
  EXPECT_EQ(text, SettingsText(other, {.n_ctx = 128}));
}

}  // namespace
}  // namespace moestro
