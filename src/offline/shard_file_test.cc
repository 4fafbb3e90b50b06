// SPDX-License-Identifier: MIT
#include "offline/shard_file.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "base/text.h"
#include "tests/support/temp_folder_testing.h"
#include "trace/trace_file.h"

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

class TraceShardsTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kWindows = 6;
  static constexpr size_t kWindowTokens = 4;
  static TraceInfo Info() {
    return {.model = {.name = "m", .fingerprint = 7, .shape = {2, 5, 2}},
            .expert_bytes = 10,
            .pools = {.pools = {{.matrix_bytes = {4, 4, 4}, .slots = 9}}},
            .depth = 1,
            .has_weights = true};
  }
  // Windows of the trace, each the start of a sequence.
  static void AddWindows(const WindowRange& range, const TraceSink& sink) {
    for (uint64_t t = range.begin * kWindowTokens; t < range.end * kWindowTokens; ++t) {
      const ExpertId a{static_cast<uint16_t>(t % 5)};
      const ExpertId b{static_cast<uint16_t>((t + 1 + t / 5 % 4) % 5)};
      const std::vector<ExpertId> experts = {a, b, b, a};
      const std::vector<ExpertId> predicted = {a, b};
      const float weight = static_cast<float>(t % 7) / 7.0F;
      const std::vector<float> weights = {weight, 1.0F - weight, weight, 0.5F};
      const Status added = sink({.starts_sequence = t % kWindowTokens == 0,
                                 .experts = experts,
                                 .weights = weights,
                                 .predicted = predicted});
      ASSERT_TRUE(added) << added.error().message;
    }
  }
  std::vector<FoundShard> Write(
      uint32_t count, const std::function<void(uint32_t, TraceInfo&)>& change = {}) const {
    std::vector<std::string> paths;
    for (uint32_t index = 1; index <= count; ++index) {
      const ShardInfo shard{.command = ShardOf::kTrace,
                            .shard = {.index = index, .count = count},
                            .windows = kWindows};
      const uint64_t tokens = shard.range().size() * kWindowTokens;
      TraceInfo info = Info();
      if (change) change(index, info);
      paths.push_back(folder_.File(Format("{}.shard", index)));
      auto file = BeginShard(paths.back(), shard, tokens > 0 ? TraceBytes(info, tokens) : 0);
      EXPECT_TRUE(file);
      if (tokens == 0) {
        EXPECT_TRUE(file->Finish());
        continue;
      }
      auto writer = TraceWriter::Create(*std::move(file), info, tokens);
      EXPECT_TRUE(writer);
      AddWindows(shard.range(), [&](const TraceToken& token) { return writer->Add(token); });
      EXPECT_TRUE(writer->Finish());
    }
    const auto found = FindShards(paths);
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(std::vector<FoundShard>());
  }
  std::string Whole() const {
    auto trace = Trace::Create(Info());
    EXPECT_TRUE(trace);
    AddWindows({.begin = 0, .end = kWindows},
               [&](const TraceToken& token) { return trace->Add(token); });
    EXPECT_TRUE(WriteTrace(folder_.File("whole"), *trace));
    return ReadAll(folder_.File("whole"));
  }
  TempFolder folder_;
};

TEST_F(TraceShardsTest, AnyNumberOfShardsGivesTheSameBytes) {
  for (const uint32_t count : {1U, 2U, 3U, 5U, 20U}) {
    const auto tokens = MergeTraces(Write(count), folder_.File("merged"));
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_EQ(*tokens, kWindows * kWindowTokens);
    EXPECT_EQ(ReadAll(folder_.File("merged")), Whole()) << count;
  }
}

TEST_F(TraceShardsTest, SlotsAreThoseOfTheFirstShard) {
  const auto merged = MergeTraces(
      Write(3, [](uint32_t index, TraceInfo& info) { info.pools.pools.front().slots = 8 + index; }),
      folder_.File("merged"));
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(ReadAll(folder_.File("merged")), Whole());
}

TEST_F(TraceShardsTest, EnginesThatRecordedOtherThingsAreRefused) {
  const auto merged = MergeTraces(Write(3,
                                        [](uint32_t index, TraceInfo& info) {
                                          if (index == 2) info.expert_bytes = 11;
                                        }),
                                  folder_.File("merged"));
  ASSERT_FALSE(merged);
  EXPECT_EQ(merged.error().code, Errc::kInvalidRequest);
  EXPECT_NE(merged.error().message.find("2.shard"), std::string::npos) << merged.error().message;
  EXPECT_FALSE(std::filesystem::exists(folder_.File("merged")));
}

TEST_F(TraceShardsTest, PayloadsThatAreNoTraceLeaveNothingBehind) {
  const auto written = Write(1);
  auto payload = ShardPayload::Open(written.front());
  ASSERT_TRUE(payload);
  const std::string good = payload->Take(payload->left()).value();
  const ShardInfo info{.command = ShardOf::kTrace, .windows = kWindows};
  const auto expect = [&](const std::string& bytes, const std::string& part) {
    ASSERT_TRUE(WriteShard(folder_.File("changed"), info, bytes));
    const auto found = FindShards(std::vector{folder_.File("changed")});
    ASSERT_TRUE(found) << found.error().message;
    const auto merged = MergeTraces(*found, folder_.File("merged"));
    ASSERT_FALSE(merged) << part;
    // The shard's checksum may stand where the trace's version should.
    EXPECT_TRUE(merged.error().code == Errc::kInvalidFile ||
                merged.error().code == Errc::kUnsupported);
    EXPECT_NE(merged.error().message.find(part), std::string::npos) << merged.error().message;
    EXPECT_FALSE(std::filesystem::exists(folder_.File("merged")));
  };
  expect("x", "not a trace");
  for (size_t length = 1; length < good.size(); ++length) {
    expect(good.substr(0, length), "changed");
  }
  expect(good + "more", "it should have 24 tokens");
  auto empty = TraceWriter::Create(folder_.File("empty"), Info(), 0);
  ASSERT_TRUE(empty && empty->Finish());
  const std::string none = ReadAll(folder_.File("empty"));
  expect(none.substr(0, none.size() - kChecksumBytes), "0 tokens in 6 windows");
  std::string bytes = good;
  bytes[bytes.size() - 6] = 'x';  // an id of the last layer
  expect(bytes, "token 23: ");
}

}  // namespace
}  // namespace moestro
