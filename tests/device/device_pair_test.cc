// SPDX-License-Identifier: MIT
// Engines with two devices beside the CPU: one software device that ggml shows twice will do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/number.h"
#include "decide/devices/device_tier.h"
#include "decide/devices/lane_planner.h"
#include "native/native_engine.h"
#include "tests/device/device_testing.h"
#include "tests/support/slow_reader_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class DevicePair : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (!IsSkipped() && !has_two()) GTEST_SKIP() << "there is one device";
  }
  // To the bit; says where and by how much they differ.
  static void ExpectSameBits(const Run& a, const Run& b, const std::string& what) {
    ASSERT_TRUE(a.status && b.status) << what;
    ASSERT_EQ(a.logits.size(), b.logits.size()) << what;
    const auto at = std::ranges::mismatch(a.logits, b.logits).in1 - a.logits.begin();
    if (static_cast<size_t>(at) == a.logits.size()) return;
    double largest = 0.0;
    for (size_t i = 0; i < a.logits.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(a.logits[i]) - b.logits[i]));
    }
    ADD_FAILURE() << what << ": first in row " << static_cast<size_t>(at) / a.n_vocab
                  << ", largest difference " << largest / Deviation(b.logits);
  }
  // Bytes for the dense part and half of the model's experts (of Q8_0).
  static uint64_t HalfOfExperts(const std::string& model, EngineOptions options) {
    options.device.vram = {256 * kMiB};
    options.device.runs_whole_layers = false;
    const auto plan = NativeEngine::Plan(model, options);
    EXPECT_TRUE(plan) << plan.error().message;
    const DeviceBudget& first = plan->devices.at(0);
    const TinySpec spec = Spec("", "Q8_0");
    const uint64_t expert = 3 * uint64_t{spec.embd} * spec.ff * 34 / 32;
    return first.bytes - first.slots / 2 * expert;
  }
  static void ExpectBothWork(const Run& run, const std::string& what) {
    ASSERT_EQ(run.device.each.size(), 2U) << what;
    for (const DeviceWork& its : run.device.each) EXPECT_GT(its.computed(), 0U) << what;
  }
};

// Few slots on each: experts move in nearly every step.
TEST_F(DevicePair, EveryModeIsAsOnTheCpuWithPoolsTooSmallForTheModel) {
  for (const std::string type : {"Q8_0", "Q4_0"}) {
    const TinySpec spec = Spec("olmoe", type);
    const std::string model = WriteTinyModel(folder_.path(), spec);
    for (const uint32_t rows : {1U, 4U}) {
      const Run cpu = Decode(model, OnCpu(), rows, 12);
      for (const PlaceMode mode : {PlaceMode::kAuto, PlaceMode::kGpuCentric}) {
        const std::string what =
            type + ", " + std::string(NameOf(mode)) + ", " + std::to_string(rows) + " rows";
        const Run run = Decode(model, OnTwo(spec, mode, 7), rows, 12);
        ExpectNear(run, cpu, kEightBits, what);
        ExpectBothWork(run, what);
        EXPECT_EQ(run.device.failures, 0U) << what;
        EXPECT_LT(run.memory.devices.at(0).slots + run.memory.devices.at(1).slots, 36U);
      }
    }
  }
}

// All experts on two devices, none of which holds them. A row takes all of its layer's, so no tie
// falls another way than on the CPU.
TEST_F(DevicePair, WhatOneCannotHoldTwoDo) {
  TinySpec spec = Spec("qwen3moe", "Q8_0");
  spec.used = spec.experts;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  LearnPaths(model);
  const Run run = Decode(model, OnTwo(spec, PlaceMode::kCooperative, 22), 4);
  ExpectNear(run, Decode(model, OnCpu(), 4), kEightBits, "both");
  ExpectBothWork(run, "both");
  EXPECT_EQ(run.device.filled, 36U);
  EXPECT_LT(run.memory.devices.at(0).slots, 36U);
  EXPECT_EQ(run.device.on_device, run.device.experts);
}

TEST_F(DevicePair, EqualPlansGiveEqualBitsWhateverTheTiming) {
  const TinySpec spec = Spec("qwen2moe", "Q4_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnTwo(spec, PlaceMode::kGpuCentric, 8);
  options.cache = CacheSize{.percent = 100.0};
  LatencyModel costs = UnequalCosts();
  costs.disk = {};  // else who leaves a device goes back to memory in exclusive tiers
  options.device.latency_model = CostsFile(costs);
  const Run first = Decode(model, options, 4);
  ASSERT_TRUE(first.status) << first.status.error().message;
  ExpectBothWork(first, "first");
  EngineOptions slow = options;
  slow.threads = 1;
  slow.wrap_reader = [](std::unique_ptr<BlockReader> inner) {
    return std::make_unique<SlowReader>(std::move(inner), 3);
  };
  ExpectSameBits(Decode(model, slow, 4), first, "slow");
  // Who is in memory is copied first, so what is launched together is the tiers', and a device may
  // round activations to eight bits for some numbers of pairs.
  const GivenTokens no_prompts{.prompts = {0, 0, 0, 0}, .steps = 10};
  const Run inclusive = DecodeGiven(model, options, no_prompts);
  ExpectBothWork(inclusive, "inclusive");
  slow.device.tiers = Tiers::kExclusive;
  ExpectNear(DecodeGiven(model, slow, no_prompts), inclusive, kEightBits, "exclusive");
}

// Through slots that are neither's, and back to memory that both share.
TEST_F(DevicePair, ExclusiveTiersMoveExpertsToAndFromBoth) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnTwo(spec, PlaceMode::kGpuCentric, 7);
  options.device.tiers = Tiers::kExclusive;
  const Run quick = Decode(model, options, 4, 12);
  ExpectNear(quick, Decode(model, OnCpu(), 4, 12), kEightBits, "exclusive");
  ASSERT_EQ(quick.device.each.size(), 2U);
  for (const DeviceWork& its : quick.device.each) {
    EXPECT_GT(its.staged, 5U);
    EXPECT_GT(its.moved_back, 5U);
  }
  options.wrap_reader = [](std::unique_ptr<BlockReader> inner) {
    return std::make_unique<SlowReader>(std::move(inner), 3);
  };
  ExpectSameBits(Decode(model, options, 4, 12), quick, "slow");
}

// Rows stay on the first where it has all experts of a layer, and come back for the second's.
TEST_F(DevicePair, TheDensePartIsOnTheFirst) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnTwo(spec, PlaceMode::kGpuCentric, 12);
  options.device.dense_on_cpu = false;
  options.device.vram = {HalfOfExperts(model, options), options.device.vram.front()};
  const Run cpu = Decode(model, OnCpu(), 4, 20);
  const Run run = Decode(model, options, 4, 20);
  ExpectNear(run, cpu, kEightBits, "dense");
  ExpectBothWork(run, "dense");
  EXPECT_GT(run.memory.devices.at(0).dense, 0U);
  EXPECT_EQ(run.memory.devices.at(1).dense, 0U);
  EXPECT_LT(run.device.layers_there, 3U * 24U);
  // One row of three experts: the first device has them all now and then.
  EXPECT_GT(Decode(model, options, 1, 60).device.layers_there, 0U);
}

TEST_F(DevicePair, TheOthersGoOnWithoutALostOne) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Decode(model, OnCpu(), 4, 12);
  for (const size_t lost : {0U, 1U}) {
    EngineOptions options = OnTwo(spec, PlaceMode::kGpuCentric, 12);
    const auto launches = std::make_shared<int>(0);
    options.device.faults.fails_launch = [launches] { return ++*launches > 15; };
    options.device.faults_of = names_[lost];
    const Run named = Decode(model, options, 4, 12);
    ASSERT_FALSE(named.status);
    EXPECT_EQ(named.status.error().code, Errc::kDevice);
    EXPECT_NE(named.status.error().message.find("the device " + names_[lost] + " is lost"),
              std::string::npos)
        << named.status.error().message;

    *launches = 0;
    options.device.name = "auto";
    options.device.auto_takes_software = true;
    const Run run = Decode(model, options, 4, 12);
    ExpectNear(run, cpu, kEightBits, "lost");
    ASSERT_EQ(run.device.each.size(), 2U);
    EXPECT_EQ(run.device.failures, 3U);
    EXPECT_EQ(run.device.each[lost].failures, 3U);
    EXPECT_GT(run.device.each[1 - lost].computed(), 2 * run.device.each[lost].computed());
  }
}

// The layer ends before the second one has heard of it, with experts in memory that are to be
// copied there.
TEST_F(DevicePair, TheFirstFailsAgainAndAgainBesideTheSecond) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnTwo(spec, PlaceMode::kGpuCentric, 7);
  options.cache = CacheSize{.percent = 100.0};
  options.device.faults.fails_launch = EveryNth(7);
  options.device.faults_of = names_[0];
  const Run run = Decode(model, options, 4, 60);
  ExpectNear(run, Decode(model, OnCpu(), 4, 60), kEightBits, "failing");
  EXPECT_GT(run.device.failures, 10U);
  EXPECT_GT(run.device.each[1].copied, 10U);
}

// The CPU goes on alone only if the first one is lost with keys and values.
TEST_F(DevicePair, KeysAndValuesAreLostWithTheFirstAlone) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Decode(model, OnCpu(), 4, 12);
  for (const size_t lost : {0U, 1U}) {
    EngineOptions options = OnTwo(spec, PlaceMode::kGpuCentric, 12);
    options.device.dense_on_cpu = false;
    options.device.vram = {HalfOfExperts(model, options)};
    options.device.name = "auto";
    options.device.auto_takes_software = true;
    const auto launches = std::make_shared<int>(0);
    options.device.faults.fails_launch = [launches] { return ++*launches > 20; };
    options.device.faults_of = names_[lost];
    const Run run = Decode(model, options, 4, 12);
    ExpectNear(run, cpu, kEightBits, "lost");
    EXPECT_EQ(run.memory.devices.size(), lost == 0 ? 0U : 2U);
  }
}

TEST_F(DevicePair, OneThatComputesWronglyIsLeftOut) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  for (const size_t wrong : {0U, 1U}) {
    EngineOptions options = OnTwo(spec, PlaceMode::kGpuCentric, 12);
    options.device.faults.spoils_results = true;
    options.device.faults_of = names_[wrong];
    const Run named = Decode(model, options, 1);
    ASSERT_FALSE(named.status);
    EXPECT_NE(named.status.error().message.find(names_[wrong]), std::string::npos);
    options.device.name = "auto";
    options.device.auto_takes_software = true;
    const Run run = Decode(model, options, 4);
    ExpectNear(run, Decode(model, OnCpu(), 4), kEightBits, "one");
    ASSERT_EQ(run.memory.devices.size(), 1U);
    EXPECT_EQ(run.memory.devices.front().info.name, names_[1 - wrong]);
    EXPECT_GT(run.device.copied, 0U);
  }
}

TEST_F(DevicePair, EachIsMeasuredAndKept) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = Measuring(spec, PlaceMode::kGpuCentric, 7, folder_.path() / "costs");
  options.device.name = names_[0] + "," + names_[1];
  options.device.pins_slow_memory = true;  // a busy machine may not change what is measured
  const auto first = NativeEngine::Plan(model, options);
  ASSERT_TRUE(first) << first.error().message;
  // A launch among other work may take eight times as long; the costs are then measured again.
  Run second;
  std::vector<bool> were_kept(2);
  for (int i = 0; i < 5 && std::ranges::contains(were_kept, false); ++i) {
    second = Decode(model, options, 4, 20);
    ASSERT_TRUE(second.status) << second.status.error().message;
    ASSERT_EQ(second.memory.devices.size(), 2U);
    for (size_t d = 0; d < 2; ++d) {
      if (second.memory.devices[d].costs == CostSource::kKept) were_kept[d] = true;
    }
  }
  ASSERT_EQ(first->devices.size(), 2U);
  for (size_t d = 0; d < 2; ++d) {
    EXPECT_EQ(first->devices[d].costs, CostSource::kMeasured) << d;
    EXPECT_TRUE(were_kept[d]) << d;
    EXPECT_GT(first->devices[d].latency.devices.at(0).compute.Seconds(kMiB), 0.0);
  }
  // Followed: the one that measured faster may get nearly all copies.
  const std::vector<LaneRatios::Device>& ratios = second.lane_ratios.devices;
  ASSERT_EQ(ratios.size(), 2U);
  EXPECT_TRUE(ratios[0].copy != 1.0 || ratios[1].copy != 1.0);
}

TEST_F(DevicePair, EachHasItsSizeOrAllHaveOne) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnTwo(spec, PlaceMode::kAuto, 10);
  const uint64_t size = options.device.vram.front();
  const auto same = NativeEngine::Plan(model, options);
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->devices.at(0).slots, same->devices.at(1).slots);
  options.device.vram = {size, size + 10 * 3 * uint64_t{spec.embd} * spec.ff};
  const auto unequal = NativeEngine::Plan(model, options);
  ASSERT_TRUE(unequal) << unequal.error().message;
  EXPECT_EQ(unequal->devices.at(0).slots, same->devices.at(0).slots);
  EXPECT_GT(unequal->devices.at(1).slots, same->devices.at(1).slots + 5);
  options.device.vram = {size, size, size};
  const auto refused = NativeEngine::Plan(model, options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kInvalidRequest);
  EXPECT_NE(refused.error().message.find("3 sizes for 2 devices"), std::string::npos);
}

TEST_F(DevicePair, BadSettingsAreNamed) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const auto expect = [&](const EngineOptions& options, const std::string& part) {
    const auto refused = NativeEngine::Plan(model, options);
    ASSERT_FALSE(refused) << part;
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  };
  EngineOptions options = OnTwo(spec, PlaceMode::kAuto);
  options.device.name = name_ + "," + name_;
  expect(options, "twice");
  options.device.name = name_ + ",nosuch7";
  expect(options, "there is no device 'nosuch7'");
  options.device.name = names_[0] + "," + names_[1];
  options.device.latency_model = CostsFile(MixedCosts());  // of the first
  expect(options, "no costs of the device " + names_[1]);
}

}  // namespace
}  // namespace moestro
