// SPDX-License-Identifier: MIT
#include "offline/shard/shard_file.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/format.h"
#include "base/hash.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class ShardFileTest : public ::testing::Test {
 protected:
  static ShardInfo Info(uint32_t index, uint32_t count = 3) {
    return {.command = ShardOf::kTrace,
            .shard = {.index = index, .count = count},
            .model = "m.gguf",
            .fingerprint = 7,
            .weights = 8,
            .text_hash = 9,
            .windows = 10,
            .settings = "ctx 64\nkv-type f16\n"};
  }
  std::string Write(const std::string& name, const ShardInfo& info,
                    const std::string& payload = "abc") const {
    std::string path = folder_.File(name);
    const Status written = WriteShard(path, info, payload);
    EXPECT_TRUE(written) << written.error().message;
    return path;
  }
  // Bytes as they are, or with the checksum that belongs to them in place of the last eight.
  std::string WriteBytes(std::string bytes, bool has_sum = true) const {
    if (has_sum) {
      bytes.resize(bytes.size() - kChecksumBytes);
      Fnv1a sum;
      sum.Add(bytes);
      AppendNumber(bytes, sum.value());
    }
    std::string path = folder_.File("bytes");
    WriteAll(path, bytes);
    return path;
  }
  static void ExpectError(const std::vector<std::string>& paths, Errc code,
                          const std::string& part) {
    const auto found = FindShards(paths);
    ASSERT_FALSE(found) << part;
    EXPECT_EQ(found.error().code, code) << found.error().message;
    EXPECT_NE(found.error().message.find(part), std::string::npos) << "wanted " << part << "\n"
                                                                   << found.error().message;
    EXPECT_FALSE(found.error().message.contains('\n'));
  }
  TempFolder folder_;
};

TEST_F(ShardFileTest, AllShardsOfARunComeInOrder) {
  const std::string b = Write("b", Info(2), "two");
  const std::string c = Write("c", Info(3), "three");
  const std::string a = Write("a", Info(1), "one");
  const auto found = FindShards(std::vector{c, a, b});
  ASSERT_TRUE(found) << found.error().message;
  ASSERT_EQ(found->size(), 3U);
  EXPECT_EQ((*found)[0].info, Info(1));
  EXPECT_EQ((*found)[2].path, c);
  auto payload = ShardPayload::Open((*found)[2]);
  ASSERT_TRUE(payload);
  EXPECT_EQ(payload->Take(2).value(), "th");
  EXPECT_FALSE(payload->CheckEnd());
  EXPECT_EQ(payload->Take(4).error().code, Errc::kInvalidFile);
  EXPECT_EQ(payload->Take(3).value(), "ree");
  EXPECT_TRUE(payload->CheckEnd());
}

TEST_F(ShardFileTest, AShardWithoutWindowsHasNoPayload) {
  std::vector<std::string> paths;
  for (uint32_t i = 1; i <= 20; ++i) {
    const ShardInfo info = Info(i, 20);
    paths.push_back(Write(Format("{}", i), info, info.range().size() > 0 ? "x" : ""));
  }
  EXPECT_TRUE(FindShards(paths));
  ExpectError({Write("a", Info(1, 20), "x")}, Errc::kInvalidFile, "contradict each other");
  ExpectError({Write("b", Info(1), "")}, Errc::kInvalidFile, "contradict each other");
}

TEST_F(ShardFileTest, ATwiceOrMissingShardIsRefused) {
  const std::string a = Write("a", Info(1));
  const std::string b = Write("b", Info(2));
  ExpectError({a, b, a}, Errc::kInvalidRequest, "are both shard 1 of 3; give each shard once");
  ExpectError({a, b}, Errc::kInvalidRequest, "1 of 3 shards are missing: 3/3;");
  ExpectError({Write("c", Info(3))}, Errc::kInvalidRequest, "missing: 1/3, 2/3;");
  ExpectError({Write("d", Info(9, 65536), "")}, Errc::kInvalidRequest,
              "65535 of 65536 shards are missing: 1/65536, 2/65536, 3/65536, 4/65536, 5/65536, "
              "6/65536, 7/65536, 8/65536, ...;");
}

TEST_F(ShardFileTest, AForeignShardIsRefusedAndTheDifferenceNamed) {
  const std::string a = Write("a", Info(1));
  const auto expect = [&](const ShardInfo& info, const std::string& part) {
    ExpectError({a, Write("b", info)}, Errc::kInvalidRequest, part);
  };
  ShardInfo info = Info(2);
  info.command = ShardOf::kEval;
  expect(info, "a shard of 'eval', but");
  info = Info(2);
  info.fingerprint = 6;
  info.model = "other\n.gguf";
  expect(info, "made with the model other?.gguf (fingerprint 0000000000000006)");
  info = Info(2);
  info.weights = 6;
  expect(info, "other weights");
  info = Info(2);
  info.settings = "ctx 64\nkv-type q8_0\n";
  expect(info, "made with 'kv-type q8_0', but");
  info.settings = "ctx 64\n";
  expect(info, "with 'kv-type f16'; merge the shards of one run");
  info = Info(2);
  info.text_hash = 6;
  expect(info, "another text");
  info = Info(2);
  info.windows = 11;
  expect(info, "another text");
  expect(Info(2, 4), "shard 2 of 4, but");
}

TEST_F(ShardFileTest, AFileThatIsCutShortOrLongerIsRefused) {
  const std::string bytes = ReadAll(Write("a", Info(1, 1), "payload"));
  for (size_t length = 0; length < bytes.size(); ++length) {
    const auto found = FindShards(std::vector{WriteBytes(bytes.substr(0, length), false)});
    ASSERT_FALSE(found) << length;
    EXPECT_EQ(found.error().code, Errc::kInvalidFile) << length;
  }
  ExpectError({WriteBytes(bytes + "x", false)}, Errc::kInvalidFile, "it should have 7 bytes");
  ExpectError({folder_.File("none")}, Errc::kIo, "none");
  ExpectError({folder_.path().string()}, Errc::kIo, "not a file");
}

TEST_F(ShardFileTest, AnyChangedByteIsRefused) {
  const std::string bytes = ReadAll(Write("a", Info(1, 1), "payload"));
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x40);
    EXPECT_FALSE(FindShards(std::vector{WriteBytes(changed, false)})) << at;
  }
}

// With a checksum that fits: somebody made it so.
TEST_F(ShardFileTest, NumbersOfNoShardAreRefused) {
  const std::string bytes = ReadAll(Write("a", Info(1, 1), "payload"));
  const auto with = [&](size_t at, auto number) {
    std::string changed = bytes;
    std::string raw;
    AppendNumber(raw, number);
    changed.replace(at, raw.size(), raw);
    return std::vector{WriteBytes(changed)};
  };
  ASSERT_TRUE(FindShards(with(12, uint32_t{4})));
  ExpectError(with(8, uint32_t{3}), Errc::kUnsupported, "newer than the 2");
  ExpectError(with(8, uint32_t{1}), Errc::kUnsupported, "older");
  ExpectError(with(12, uint32_t{0}), Errc::kInvalidFile, "command 0");
  ExpectError(with(12, uint32_t{5}), Errc::kInvalidFile, "command 5");
  ExpectError(with(16, uint32_t{0}), Errc::kInvalidFile, "shard 0 of 1 does not exist");
  ExpectError(with(16, uint32_t{2}), Errc::kInvalidFile, "shard 2 of 1 does not exist");
  ExpectError(with(20, UINT32_MAX), Errc::kInvalidFile, "does not exist");
  ExpectError(with(48, uint64_t{0}), Errc::kInvalidFile, "none of a shard");
  ExpectError(with(48, UINT64_MAX), Errc::kInvalidFile, "none of a shard");
  ExpectError(with(56, UINT64_MAX), Errc::kInvalidFile, "bytes of payload");
  ExpectError(with(56, UINT64_MAX - 72), Errc::kInvalidFile, "bytes of payload");
  ExpectError(with(64, UINT32_MAX), Errc::kInvalidFile, "none of a shard");
  ExpectError(with(68, UINT32_MAX), Errc::kInvalidFile, "none of a shard");
}

}  // namespace
}  // namespace moestro
