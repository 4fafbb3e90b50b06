// SPDX-License-Identifier: MIT
#include "offline/eval/eval_shard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/format.h"
#include "tests/support/temp_folder_testing.h"
#include "text/divergence.h"

namespace moestro {
namespace {

class EvalShardTest : public ::testing::Test {
 protected:
  static constexpr size_t kVocab = 16;
  static constexpr uint64_t kWindows = 7;
  // Windows [begin, end) of a text, which are 1 to 200 tokens long.
  static void AddWindows(EvalStats& stats, const WindowRange& range, bool has_exact) {
    for (uint64_t window = range.begin; window < range.end; ++window) {
      std::mt19937 random(static_cast<uint32_t>(window));
      stats.BeginWindow();
      for (size_t left = 1 + random() % 200; left > 0; --left) {
        std::vector<float> lossy(kVocab);
        std::vector<float> exact(kVocab);
        for (size_t i = 0; i < kVocab; ++i) {
          exact[i] = static_cast<float>(random() % 1000) / 300.0F;
          lossy[i] = exact[i] + static_cast<float>(random() % 100) / 900.0F;
        }
        LogSoftmax(lossy, lossy);
        LogSoftmax(exact, exact);
        const auto next = static_cast<Token>(random() % kVocab);
        if (has_exact) {
          stats.Add(lossy, exact, next);
        } else {
          stats.Add(lossy, next);
        }
      }
    }
  }
  std::vector<FoundShard> Write(uint32_t count, const std::function<bool(uint32_t)>& has_exact,
                                const std::function<void(std::string&)>& change = {}) const {
    std::vector<std::string> paths;
    for (uint32_t index = 1; index <= count; ++index) {
      const ShardInfo info{.shard = {.index = index, .count = count}, .windows = kWindows};
      EvalStats stats(2000, 100);
      AddWindows(stats, info.range(), has_exact(index));
      std::string payload = info.range().size() > 0 ? EncodeSums(stats.Sums()) : "";
      if (change) change(payload);
      paths.push_back(folder_.File(Format("{}", index)));
      EXPECT_TRUE(WriteShard(paths.back(), info, payload));
    }
    const auto found = FindShards(paths);
    EXPECT_TRUE(found) << found.error().message;
    return found.value_or(std::vector<FoundShard>());
  }
  TempFolder folder_;
};

void ExpectSameBits(const Estimate& a, const Estimate& b) {
  EXPECT_EQ(std::bit_cast<uint64_t>(a.value), std::bit_cast<uint64_t>(b.value));
  EXPECT_EQ(std::bit_cast<uint64_t>(a.error), std::bit_cast<uint64_t>(b.error));
}

TEST_F(EvalShardTest, AnyNumberOfShardsGivesTheSameBits) {
  for (const bool has_exact : {false, true}) {
    EvalStats all(2000, 100);
    AddWindows(all, {.begin = 0, .end = kWindows}, has_exact);
    const EvalFigures whole = all.Figures();
    for (const uint32_t count : {1U, 2U, 3U, 5U, 20U}) {
      const auto merged = MergeEval(Write(count, [&](uint32_t) { return has_exact; }));
      ASSERT_TRUE(merged) << merged.error().message;
      EXPECT_EQ(merged->windows, kWindows);
      EXPECT_EQ(merged->figures.tokens, whole.tokens);
      ExpectSameBits(merged->figures.perplexity, whole.perplexity);
      ASSERT_EQ(merged->figures.against.has_value(), has_exact);
      if (!has_exact) continue;
      const EvalFigures::Against& a = *merged->figures.against;
      const EvalFigures::Against& b = *whole.against;
      EXPECT_EQ(a.exact_perplexity, b.exact_perplexity);
      EXPECT_EQ(a.kl_max, b.kl_max);
      ExpectSameBits(a.kl_mean, b.kl_mean);
      ExpectSameBits(a.kl_p99, b.kl_p99);
      ExpectSameBits(a.kl_p999, b.kl_p999);
      ExpectSameBits(a.delta_p_rms, b.delta_p_rms);
      ExpectSameBits(a.top1_agreement, b.top1_agreement);
    }
  }
}

TEST_F(EvalShardTest, PayloadsOfNoRunAreRefused) {
  const auto expect = [&](const std::function<void(std::string&)>& change,
                          const std::string& part) {
    const auto merged = MergeEval(Write(1, [](uint32_t) { return true; }, change));
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
  expect([](std::string& bytes) { bytes.resize(3); }, "ends too early");
  expect([](std::string& bytes) { bytes.resize(100); }, "none of a run");
  expect([](std::string& bytes) { bytes.pop_back(); }, "do not fill it");
  expect([](std::string& bytes) { bytes += "more"; }, "do not fill it");
  expect(put(0, uint32_t{2}), "none of a run");
  expect(put(0, uint32_t{0}), "do not fill it");
  expect(put(4, UINT64_MAX), "none of a run");
  expect(put(4, uint64_t{1}), "none of a run");
  for (const double tokens : {0.0, 65.0, 1.5, -1.0, std::nan(""), 1e300}) {
    expect(put(20, tokens), "a block of");
  }
  for (const float kl : {std::nanf(""), -1.0F}) {
    expect([kl](std::string& bytes) { std::memcpy(&bytes[bytes.size() - 4], &kl, 4); }, "is none");
  }
  expect(put(12, std::nan("")), "is none");
  const auto mixed = MergeEval(Write(2, [](uint32_t index) { return index == 1; }));
  ASSERT_FALSE(mixed);
  EXPECT_NE(mixed.error().message.find("only some"), std::string::npos);
}

}  // namespace
}  // namespace moestro
