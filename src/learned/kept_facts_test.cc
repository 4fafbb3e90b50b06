// SPDX-License-Identifier: MIT
#include "learned/kept_facts.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

class KeptWeightsTest : public ::testing::Test {
 protected:
  KeptWeightsTest() {
    Write("some weights");
    Settle();
  }
  void Write(const char* bytes) const { std::ofstream(model()) << bytes; }
  // As if it had been written a while ago.
  void Settle() const {
    fs::last_write_time(model(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  }
  std::string model() const { return folder_.File("model.gguf"); }
  std::string cache() const { return folder_.File("cache"); }
  WeightsKey Key() const {
    return {.what = "model", .header = 7, .files = {FileVersion::Of(model()).value()}};
  }

  TempFolder folder_;
};

TEST_F(KeptWeightsTest, WhatIsKeptIsFound) {
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  KeepWeights(cache(), Key(), 0x123456789abcdef0);
  EXPECT_EQ(KeptWeights(cache(), Key()), 0x123456789abcdef0U);
  KeepWeights(cache(), Key(), 5);
  EXPECT_EQ(KeptWeights(cache(), Key()), 5U);
  EXPECT_EQ(std::distance(fs::directory_iterator(cache()), fs::directory_iterator()), 1);
}

TEST_F(KeptWeightsTest, AnyChangeOfTheFileForgetsIt) {
  KeepWeights(cache(), Key(), 5);
  const auto time = fs::last_write_time(model());
  fs::last_write_time(model(), time + std::chrono::nanoseconds(1));
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  KeepWeights(cache(), Key(), 5);
  Write("other weights");
  Settle();
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  // Written in place, with the same size and its old time.
  KeepWeights(cache(), Key(), 5);
  const auto kept_time = fs::last_write_time(model());
  Write("newer weights");
  fs::last_write_time(model(), kept_time);
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  // Another file under its name.
  KeepWeights(cache(), Key(), 5);
  std::ofstream(folder_.File("new")) << "newer weights";
  fs::last_write_time(folder_.File("new"), kept_time);
  fs::rename(folder_.File("new"), model());
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
}

TEST_F(KeptWeightsTest, EveryPartOfTheKeyCounts) {
  KeepWeights(cache(), Key(), 5);
  WeightsKey other = Key();
  other.what = "low copies";
  EXPECT_EQ(KeptWeights(cache(), other), std::nullopt);
  other = Key();
  other.header = 8;
  EXPECT_EQ(KeptWeights(cache(), other), std::nullopt);
  other = Key();
  other.files.push_back(other.files.front());
  EXPECT_EQ(KeptWeights(cache(), other), std::nullopt);
  EXPECT_EQ(KeptWeights(cache(), Key()), 5U);
}

// The clock of a file system ticks slowly: a second change within a tick would not show.
TEST_F(KeptWeightsTest, AFileThatHasJustChangedIsNotKept) {
  Write("fresh");
  KeepWeights(cache(), Key(), 5);
  EXPECT_EQ(KeptWeights(cache(), Key()), std::nullopt);
  EXPECT_FALSE(fs::exists(cache()));
}

TEST(KeptUsesTest, KeptForAModelOfThatShape) {
  const TempFolder folder;
  const std::string cache = folder.File("cache");
  const ModelId model{.fingerprint = 7, .shape = {.n_layer = 2, .n_expert = 3, .n_used = 1}};
  const std::vector<uint8_t> uses = {0, 1, 255, 10, 0, 128};
  EXPECT_TRUE(KeptUses(cache, model).empty());
  KeepUses(cache, model, std::vector<uint8_t>(5));  // of no shape
  EXPECT_FALSE(fs::exists(cache));
  KeepUses(cache, model, uses);
  EXPECT_EQ(KeptUses(cache, model), uses);
  ModelId other = model;
  other.fingerprint = 8;
  EXPECT_TRUE(KeptUses(cache, other).empty());
  other = model;
  other.shape.n_expert = 2;
  EXPECT_TRUE(KeptUses(cache, other).empty());
  KeepUses("", model, uses);
  EXPECT_TRUE(KeptUses("", model).empty());
}

const std::vector<PlannedSpeed> kPoints{{.share = 0.25, .low = 4.0, .high = 6.0},
                                        {.share = 0.75, .low = 16.0, .high = 24.0},
                                        {.share = 1.0, .low = 20.0, .high = 26.0}};

TEST(KeptPlan, SpeedsBetweenPoints) {
  EXPECT_FALSE(SpeedAt({}, 0.5));
  EXPECT_FALSE(SpeedAt(kPoints, 0.1));
  EXPECT_EQ(SpeedAt(kPoints, 0.75), kPoints[1]);
  EXPECT_EQ(SpeedAt(kPoints, 1.0), kPoints[2]);
  const auto between = SpeedAt(kPoints, 0.5);
  ASSERT_TRUE(between);
  EXPECT_NEAR(between->low, 8.0, 1e-9);
  EXPECT_NEAR(between->high, 12.0, 1e-9);
}

TEST(KeptPlan, KeptForAModelAndItsThreads) {
  const TempFolder folder;
  const std::string kept = folder.File("cache");
  EXPECT_TRUE(KeptPlan(kept, 7, 2).empty());
  KeepPlan(kept, 7, 2, kPoints);
  EXPECT_EQ(KeptPlan(kept, 7, 2), kPoints);
  EXPECT_TRUE(KeptPlan(kept, 8, 2).empty());
  EXPECT_TRUE(KeptPlan(kept, 7, 4).empty());
  KeepPlan(kept, 7, 2, {});
  EXPECT_TRUE(KeptPlan(kept, 7, 2).empty());
  EXPECT_TRUE(KeptPlan("", 7, 2).empty());
}

TEST(KeptCachingTest, KeptForAModel) {
  constexpr SeenCaching kSeen{.share = 0.25, .missing = 0.125};
  const TempFolder folder;
  const std::string kept = folder.File("cache");
  EXPECT_FALSE(KeptCaching(kept, 7));
  KeepCaching(kept, 7, kSeen);
  EXPECT_EQ(KeptCaching(kept, 7), kSeen);
  EXPECT_FALSE(KeptCaching(kept, 8));
  EXPECT_FALSE(KeptCaching("", 7));
}

}  // namespace
}  // namespace moestro
