// SPDX-License-Identifier: MIT
#include "offline/record/profile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "core/layer_plan.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

TEST(OutputNorms, AreMeansOverRowsAndTheLayersMeanWhereNoRowCame) {
  OutputNorms norms({.n_layer = 2, .n_expert = 3, .n_used = 2}, 2);
  LayerPlan plan{.layer = ExpertLayerId{0}};
  plan.experts = {
      {.key = {.layer = ExpertLayerId{0}, .expert = {2}}, .first_pair = 0, .n_pairs = 2},
      {.key = {.layer = ExpertLayerId{0}, .expert = {0}}, .first_pair = 2, .n_pairs = 1}};
  const std::vector<float> results = {3, 4, 0, 1, 6, 8};  // lengths 5, 1 and 10
  norms.Add({.plan = plan, .inputs = {}, .products = {}, .results = results});
  const ExpertNorms mean = norms.Mean();
  EXPECT_FLOAT_EQ(mean.of(ExpertLayerId{0}, {2}), 3.0F);
  EXPECT_FLOAT_EQ(mean.of(ExpertLayerId{0}, {0}), 10.0F);
  EXPECT_FLOAT_EQ(mean.of(ExpertLayerId{0}, {1}), 6.5F);
  EXPECT_FLOAT_EQ(mean.of(ExpertLayerId{1}, {1}), 1.0F);
}

class ProfileShardTest : public ::testing::Test {
 protected:
  static constexpr MoeShape kShape{.n_layer = 3, .n_expert = 5, .n_used = 2};
  static constexpr uint64_t kWindows = 6;
  static RecordedRouting NewRouting(bool has_norms) {
    RecordedRouting routing{.model = {.name = "m", .fingerprint = 3, .shape = kShape},
                            .experts = PathCounter(kShape)};
    if (has_norms) routing.norms.emplace(kShape, 1, true);
    return routing;
  }
  static void AddToken(RecordedRouting& routing, std::mt19937& random) {
    std::vector<ExpertId> ids;
    for (uint16_t l = 0; l < kShape.n_layer; ++l) {
      const auto first = static_cast<uint16_t>(random() % (kShape.n_expert - 1));
      ids.push_back({first});
      ids.push_back({static_cast<uint16_t>(first + 1)});
      LayerPlan plan{.layer = ExpertLayerId{l}};
      plan.experts = {
          {.key = {.layer = plan.layer, .expert = {first}}, .first_pair = 0, .n_pairs = 1}};
      const float result = static_cast<float>(random() % 1000) / 7.0F;
      if (routing.norms) {
        routing.norms->Add({.plan = plan, .inputs = {}, .products = {}, .results = {&result, 1}});
      }
    }
    routing.experts.Add(ids);
  }
  static void AddWindows(RecordedRouting& routing, const WindowRange& range) {
    for (uint64_t window = range.begin; window < range.end; ++window) {
      std::mt19937 random(static_cast<uint32_t>(window));
      for (size_t left = 5 + random() % 30; left > 0; --left) AddToken(routing, random);
      if (routing.norms) routing.norms->EndWindow();
    }
  }
  std::vector<FoundShard> Found(std::vector<std::string> paths) const {
    const auto found = FindShards(paths);
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(std::vector<FoundShard>());
  }
  std::vector<FoundShard> Write(uint32_t count, bool has_norms) const {
    std::vector<std::string> paths;
    for (uint32_t index = 1; index <= count; ++index) {
      const ShardInfo info = Info(index, count);
      RecordedRouting routing = NewRouting(has_norms);
      AddWindows(routing, info.range());
      paths.push_back(folder_.File(Format("{}", index)));
      EXPECT_TRUE(info.range().size() > 0 ? WriteProfileShard(paths.back(), info, routing)
                                          : WriteShard(paths.back(), info, {}));
    }
    return Found(paths);
  }
  static ShardInfo Info(uint32_t index, uint32_t count) {
    return {.command = ShardOf::kProfile,
            .shard = {.index = index, .count = count},
            .model = "m",
            .fingerprint = 3,
            .windows = kWindows};
  }
  ProfileFiles Files(const std::string& name) const {
    return {.paths = folder_.File(name + ".paths"), .norms = folder_.File(name + ".norms")};
  }
  TempFolder folder_;
};

TEST_F(ProfileShardTest, AnyNumberOfShardsGivesTheSameFiles) {
  for (const bool has_norms : {true, false}) {
    RecordedRouting all = NewRouting(has_norms);
    AddWindows(all, {.begin = 0, .end = kWindows});
    const auto whole = LearnProfile(all, all.model, Files("whole"));
    ASSERT_TRUE(whole) << whole.error().message;
    for (const uint32_t count : {1U, 2U, 3U, 5U, 20U}) {
      const auto routing = MergeProfile(Write(count, has_norms));
      ASSERT_TRUE(routing) << routing.error().message;
      const auto merged = LearnProfile(*routing, routing->model, Files("merged"));
      ASSERT_TRUE(merged) << merged.error().message;
      EXPECT_EQ(merged->paths, whole->paths);
      EXPECT_EQ(merged->recall.paths, whole->recall.paths);
      EXPECT_EQ(ReadAll(merged->written.paths.text()), ReadAll(whole->written.paths.text()));
      EXPECT_EQ(merged->written.norms.empty(), !has_norms);
      if (!has_norms) continue;
      EXPECT_EQ(ReadAll(merged->written.norms.text()), ReadAll(whole->written.norms.text()));
    }
  }
}

// A path that is seen once is not kept, but one that each shard has seen once is.
TEST_F(ProfileShardTest, PathsAreDroppedOnlyOnceAllAreCounted) {
  std::vector<std::string> paths;
  size_t most = 0;  // of one shard alone
  for (uint32_t index = 1; index <= kWindows; ++index) {
    RecordedRouting routing = NewRouting(false);
    std::mt19937 random(1);  // the same token in each
    AddToken(routing, random);
    paths.push_back(folder_.File(Format("{}", index)));
    ASSERT_TRUE(WriteProfileShard(paths.back(), Info(index, kWindows), routing));
    most = std::max(most, routing.experts.Learn().keys());
  }
  const auto merged = MergeProfile(Found(paths));
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->experts.tokens(), kWindows);
  EXPECT_GT(merged->experts.Learn().keys(), most);
}

TEST_F(ProfileShardTest, PayloadsOfNoRunAreRefused) {
  const auto written = Write(1, true);
  auto payload = ShardPayload::Open(written.front());
  ASSERT_TRUE(payload);
  const std::string good = payload->Take(payload->left()).value();
  const auto expect = [&](const std::function<void(std::string&)>& change,
                          const std::string& part) {
    std::string bytes = good;
    change(bytes);
    ASSERT_TRUE(WriteShard(folder_.File("changed"), Info(1, 1), bytes));
    const auto merged = MergeProfile(Found({folder_.File("changed")}));
    ASSERT_FALSE(merged) << part;
    EXPECT_EQ(merged.error().code, Errc::kInvalidFile);
    EXPECT_NE(merged.error().message.find(part), std::string::npos) << merged.error().message;
  };
  const auto put = [](size_t at, auto number) {
    return [at, number](std::string& bytes) {
      std::string raw;
      AppendNumber(raw, number);
      bytes.replace(at, raw.size(), raw);
    };
  };
  const std::string sizes = "do not fill it";
  expect([](std::string& bytes) { bytes.resize(10); }, "ends too early");
  expect([](std::string& bytes) { bytes.pop_back(); }, sizes);
  expect([](std::string& bytes) { bytes += "more"; }, sizes);
  expect(put(0, uint32_t{0}), sizes);
  expect(put(0, UINT32_MAX), sizes);
  expect(put(4, uint32_t{4096}), sizes);
  expect(put(8, uint32_t{6}), sizes);
  expect(put(12, kShape.n_layer), sizes);
  expect(put(16, uint64_t{0}), sizes);
  expect(put(16, UINT64_MAX), sizes);
  expect(put(24, uint32_t{0}), sizes);
  expect(put(24, uint32_t{2}), sizes);
  expect(put(28, uint8_t{1}), "token 0 was routed to what are no experts");  // no source
  expect(put(29, uint8_t{5}), "token 0 was routed to what are no experts");
  expect([](std::string& bytes) { bytes[29] = bytes[30]; }, "no experts");
  expect(put(good.size() - 8, -1.0), "no sum of lengths");
  const size_t counts = good.size() - kShape.experts() * 8 * (1 + kWindows);
  expect(put(counts, UINT64_MAX), "more rows than there are tokens");
}

}  // namespace
}  // namespace moestro
