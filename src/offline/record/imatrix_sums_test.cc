// SPDX-License-Identifier: MIT
#include "offline/record/imatrix_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "core/layer_plan.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

class ImatrixShardTest : public ::testing::Test {
 protected:
  static constexpr uint32_t kExperts = 3;
  static constexpr uint32_t kEmbd = 5;
  static constexpr uint64_t kWindows = 6;
  static inline const std::vector<uint32_t> kFf = {2, 4};
  static ImatrixRun NewRun() {
    ImatrixRun run{.info = {.datasets = {"a.txt", "b\xc3\xa4.txt"}, .chunk_size = 64},
                   .sums = ImatrixSums({.n_experts = kExperts, .n_embd = kEmbd, .n_ff = kFf})};
    for (uint32_t l = 0; l < 2; ++l) {
      for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
        run.places.push_back({.name = Format("blk.{}.{}.weight", l, static_cast<int>(m)),
                              .matrix = m,
                              .layer = l,
                              .n_experts = kExperts});
      }
    }
    return run;
  }
  // What each token of these windows gives one expert of each layer.
  static void AddWindows(ImatrixRun& run, const WindowRange& range) {
    for (uint64_t window = range.begin; window < range.end; ++window) {
      std::mt19937 random(static_cast<uint32_t>(window));
      const auto floats = [&](size_t n) {
        std::vector<float> values(n);
        for (float& v : values) v = static_cast<float>(random() % 2000) / 7.0F - 100.0F;
        return values;
      };
      for (int token = 0; token < 50; ++token, ++run.tokens) {
        for (uint16_t l = 0; l < 2; ++l) {
          LayerPlan plan{.layer = ExpertLayerId{l}};
          const ExpertId expert{static_cast<uint16_t>(random() % (kExperts - 1))};  // one is unused
          plan.experts = {
              {.key = {.layer = plan.layer, .expert = expert}, .first_pair = 0, .n_pairs = 1}};
          plan.row_of = {0};
          const auto inputs = floats(kEmbd);
          const auto products = floats(kFf[l]);
          run.sums.Add({.plan = plan, .inputs = inputs, .products = products, .results = {}});
        }
      }
    }
  }
  std::vector<FoundShard> Write(uint32_t count,
                                const std::function<void(ImatrixRun&)>& change = {}) const {
    std::vector<std::string> paths;
    for (uint32_t index = 1; index <= count; ++index) {
      const ShardInfo info{.command = ShardOf::kImatrix,
                           .shard = {.index = index, .count = count},
                           .windows = kWindows};
      ImatrixRun run = NewRun();
      AddWindows(run, info.range());
      if (change) change(run);
      paths.push_back(folder_.File(Format("{}", index)));
      EXPECT_TRUE(info.range().size() > 0 ? WriteImatrixShard(paths.back(), info, run)
                                          : WriteShard(paths.back(), info, {}));
    }
    const auto found = FindShards(paths);
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(std::vector<FoundShard>());
  }
  void ExpectDamaged(const std::function<void(ImatrixRun&)>& change,
                     const std::string& part) const {
    const auto merged = MergeImatrix(Write(1, change));
    ASSERT_FALSE(merged) << part;
    EXPECT_EQ(merged.error().code, Errc::kInvalidFile);
    EXPECT_NE(merged.error().message.find(part), std::string::npos) << merged.error().message;
  }
  TempFolder folder_;
};

void ExpectNear(std::span<const double> a, std::span<const double> b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12 * b[i]) << i;
}

TEST_F(ImatrixShardTest, SumsDifferByTheirRoundingAndCountsNotAtAll) {
  ImatrixRun whole = NewRun();
  AddWindows(whole, {.begin = 0, .end = kWindows});
  for (const uint32_t count : {1U, 2U, 3U, 5U, 20U}) {
    const auto merged = MergeImatrix(Write(count));
    ASSERT_TRUE(merged) << merged.error().message;
    EXPECT_EQ(merged->tokens, whole.tokens);
    EXPECT_EQ(merged->info.datasets, whole.info.datasets);
    EXPECT_EQ(merged->info.chunk_count, kWindows);
    EXPECT_EQ(merged->info.chunk_size, 64U);
    for (size_t l = 0; l < 2; ++l) {
      EXPECT_EQ(merged->sums.layer(l).counts, whole.sums.layer(l).counts);
      EXPECT_EQ(merged->sums.layer(l).counts[kExperts - 1], 0U);
      ExpectNear(merged->sums.layer(l).inputs, whole.sums.layer(l).inputs);
      ExpectNear(merged->sums.layer(l).products, whole.sums.layer(l).products);
    }
    ASSERT_EQ(merged->places.size(), whole.places.size());
    EXPECT_EQ(merged->places[4].name, "blk.1.1.weight");
    EXPECT_EQ(merged->places[4].layer, 1U);
  }
}

// A float's square is exact in F64, and F32 sums would lose small ones beside large ones.
TEST(ImatrixSums, KeepSmallSquaresBesideLargeOnes) {
  ImatrixSums sums({.n_experts = 1, .n_embd = 1, .n_ff = {1}});
  LayerPlan plan{.layer = ExpertLayerId{0}};
  plan.experts = {{.key = {}, .first_pair = 0, .n_pairs = 1}};
  plan.row_of = {0};
  for (const float value : {10000.0F, 0.1F}) {
    sums.Add({.plan = plan, .inputs = {&value, 1}, .products = {&value, 1}, .results = {}});
  }
  EXPECT_EQ(sums.layer(0).inputs[0], 1e8 + static_cast<double>(0.1F) * static_cast<double>(0.1F));
  EXPECT_EQ(sums.layer(0).counts[0], 2U);
}

TEST_F(ImatrixShardTest, WhatIsNoRunIsRefused) {
  const std::string none = "description of the model's tensors";
  ExpectDamaged([](ImatrixRun& run) { run.places[1].name = run.places[0].name; }, none);
  ExpectDamaged([](ImatrixRun& run) { run.places[1].name = std::string(60, 'a'); }, none);
  ExpectDamaged([](ImatrixRun& run) { run.places[1].name = std::string("a\0b", 3); }, none);
  ExpectDamaged([](ImatrixRun& run) { run.places[1].name = ""; }, none);
  ExpectDamaged([](ImatrixRun& run) { run.places[1].layer = 2; }, none);
  ExpectDamaged([](ImatrixRun& run) { run.places[1].first_expert = 1; }, none);
  ExpectDamaged([](ImatrixRun& run) { run.places[1].n_experts = UINT32_MAX; }, none);
  ExpectDamaged([](ImatrixRun& run) { run.places[1].n_experts = 0; }, none);
  ExpectDamaged([](ImatrixRun& run) { run.places[1].matrix = Matrix{3}; }, none);
  ExpectDamaged([](ImatrixRun& run) { run.sums.layer(1).inputs[3] = -1.0; }, "no sum of squares");
  ExpectDamaged([](ImatrixRun& run) { run.sums.layer(1).products[3] = std::nan(""); },
                "no sum of squares");
  ExpectDamaged([](ImatrixRun& run) { run.sums.layer(0).inputs[0] = HUGE_VAL; },
                "no sum of squares");
  ExpectDamaged([](ImatrixRun& run) { run.sums.layer(1).counts[0] = run.tokens + 1; },
                "of 300 tokens");
}

TEST_F(ImatrixShardTest, ShardsOfOtherTensorsAreRefused) {
  uint32_t written = 0;
  const auto merged = MergeImatrix(Write(2, [&](ImatrixRun& run) {
    if (written++ == 1) run.places[0].name = "another";
  }));
  ASSERT_FALSE(merged);
  EXPECT_EQ(merged.error().code, Errc::kInvalidRequest);
}

// Any bytes of the right length where the description was.
TEST_F(ImatrixShardTest, RandomPayloadsEndInAnError) {
  const ShardInfo info{.command = ShardOf::kImatrix, .windows = kWindows};
  const auto first = Write(1);
  auto payload = ShardPayload::Open(first.front());
  ASSERT_TRUE(payload);
  const std::string good = payload->Take(payload->left()).value();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good.substr(0, i % 3 == 0 ? random() % good.size() : good.size());
    for (int n = 0; n < 3 && !bytes.empty(); ++n) {
      bytes[random() % std::min<size_t>(bytes.size(), 200)] = static_cast<char>(random());
    }
    if (bytes.empty()) continue;
    ASSERT_TRUE(WriteShard(folder_.File("r"), info, bytes));
    const auto found = FindShards(std::vector{folder_.File("r")});
    ASSERT_TRUE(found);
    const auto merged = MergeImatrix(*found);
    if (!merged) {
      EXPECT_FALSE(merged.error().message.contains('\n'));
    }
  }
}

}  // namespace
}  // namespace moestro
