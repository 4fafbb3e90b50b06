// SPDX-License-Identifier: MIT
#include "offline/record/trace_shards.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/format.h"
#include "tests/support/temp_folder_testing.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

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
