// SPDX-License-Identifier: MIT
// What experts cost on a device: measured, kept, followed; and the memory that copies come from.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "learned/machine_files.h"
#include "native/machine_probe.h"
#include "native/native_engine.h"
#include "tests/device/device_testing.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

using DeviceCostsTest = DeviceTest;

TEST_F(DeviceCostsTest, AreMeasuredInALittleTime) {
  const Result<DeviceProfile> profile = ProfileDevice(info_, {.threads = 2});
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_LT(profile->difference, 1e-3);
  EXPECT_GT(profile->latency.host.Seconds(1 << 20), 0.0);
  EXPECT_GT(profile->latency.devices.at(0).compute.Seconds(1 << 20), 0.0);
  EXPECT_GT(profile->latency.devices.at(0).copy.Seconds(1 << 20), 0.0);
  EXPECT_GT(profile->latency.border, 0.0);  // as in an engine, which takes these costs, too
  EXPECT_EQ(profile->latency.disk, Cost{});
  EXPECT_TRUE(CheckLatency(profile->latency));
}

// The file of the first start is found by the second, whatever it holds of other things.
TEST_F(DeviceCostsTest, TheSecondStartDoesNotMeasure) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const fs::path kept = folder_.path() / "cache" / "moestro";
  EngineOptions options = Measuring(spec, PlaceMode::kAuto, 20, kept);
  options.device.pins_slow_memory = true;  // a busy machine may not change what is measured
  const auto costs = [&] {
    const auto plan = NativeEngine::Plan(model, options);
    EXPECT_TRUE(plan) << plan.error().message;
    return plan && !plan->devices.empty() ? plan->devices.front() : DeviceBudget{};
  };
  // A launch among other work may take eight times as long; the costs are then measured again.
  const auto kept_costs = [&](DeviceBudget before) {
    for (int i = 0; i < 5; ++i) {
      const DeviceBudget next = costs();
      if (next.costs == CostSource::kKept) return std::pair(before, next);
      before = next;
    }
    ADD_FAILURE() << "every start measures";
    return std::pair(before, before);
  };
  const DeviceBudget measured = costs();
  EXPECT_EQ(measured.costs, CostSource::kMeasured);
  const auto [first, second] = kept_costs(measured);
  EXPECT_NEAR(second.latency.host.Seconds(kMiB) / first.latency.host.Seconds(kMiB), 1.0, 1e-4);
  EXPECT_GT(second.latency.disk.per_byte, 0.0);  // every start's own
  options.threads = 1;
  EXPECT_EQ(costs().costs, CostSource::kMeasured);
  options.threads = 2;
  for (const fs::directory_entry& file : fs::directory_iterator(kept)) {
    fs::resize_file(file.path(), fs::file_size(file.path()) / 2);
  }
  const DeviceBudget again = costs();
  EXPECT_EQ(again.costs, CostSource::kMeasured);
  (void)kept_costs(again);
  options.device.cost_folder = "";
  EXPECT_EQ(costs().costs, CostSource::kMeasured);
  options.device.latency_model = CostsFile(MixedCosts());
  EXPECT_EQ(costs().costs, CostSource::kFile);
}

// A start on a busy machine may have measured a launch at many times its time. Such costs would
// keep work from the device, and so would never be seen to be wrong.
TEST_F(DeviceCostsTest, CostsThatNoLongerHoldAreMeasuredAgain) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const std::string kept = folder_.path() / "cache";
  const EngineOptions options = Measuring(spec, PlaceMode::kAuto, 20, kept);
  const auto costs = [&] { return Decode(model, options, 1).memory.devices.at(0).costs; };
  EXPECT_EQ(costs(), CostSource::kMeasured);
  for (const double times : {300.0, 1.0 / 300.0}) {
    for (const auto& entry : fs::directory_iterator(kept)) {
      Result<LatencyFile> file = ReadLatency(entry.path());
      ASSERT_TRUE(file) << file.error().message;
      file->model.devices.front().launch *= times;
      file->model.devices.front().compute.base *= times;
      file->model.devices.front().compute.per_byte *= times;
      ASSERT_TRUE(WriteLatency(entry.path().string(), *file));
    }
    EXPECT_EQ(costs(), CostSource::kMeasured) << times;
  }
}

TEST_F(DeviceCostsTest, AProfileOfAModelHasItsDiskAndIsKept) {
  const TinySpec spec = Spec("qwen3moe", "Q4_K");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const std::string kept = folder_.path() / "cache";
  // A busy machine may not change what is measured.
  const Result<DeviceProfile> profile = ProfileDevice(
      info_, {.threads = 2, .model = model, .cost_folder = kept, .pins_slow_memory = true});
  ASSERT_TRUE(profile) << profile.error().message;
  EXPECT_GT(profile->latency.disk.per_byte, 0.0);
  EngineOptions options = Measuring(spec, PlaceMode::kAuto, 20, kept);
  options.device.pins_slow_memory = true;
  const auto plan = NativeEngine::Plan(model, options);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->devices.at(0).costs, CostSource::kKept);
  EXPECT_EQ(plan->devices.at(0).from_pinned, profile->from_pinned);
  EXPECT_FALSE(ProfileDevice(info_, {.model = folder_.path() / "none.gguf"}));
}

// Every lane has work: slots for few experts on the device, and few in memory.
TEST_F(DeviceCostsTest, AreFollowedOnEveryLaneUnlessAFileFixesThem) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = Measuring(spec, PlaceMode::kGpuCentric, 9);
  options.cache = CacheSize{.percent = 30.0};
  options.prefetch = 0;
  const Run run = Decode(model, options, 1, 80);
  ASSERT_TRUE(run.status) << run.status.error().message;
  EXPECT_NE(run.lane_ratios.devices.at(0).copy, 1.0);
  EXPECT_NE(run.lane_ratios.disk, 1.0);
  EXPECT_GT(run.lane_ratios.host, 0.0);
  EXPECT_GT(run.lane_ratios.devices.at(0).compute, 0.0);

  options.device.latency_model = CostsFile(MixedCosts());
  const LaneRatios fixed{.devices = {{}}};
  EXPECT_EQ(Decode(model, options, 1, 40).lane_ratios, fixed);
}

// The real disk reads into the driver's memory, in pieces; and plain memory is the way out of a
// driver whose pages refuse that. Equal plans give equal bits.
TEST_F(DeviceCostsTest, CopiesAreFromPinnedMemoryUnlessTheDiskRefusesIt) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 12);
  options.device.pins_slow_memory = true;
  for (const char* reader : {"auto", "pread"}) {
    options.reader = reader;
    options.wrap_reader = {};
    const Run pinned = Decode(model, options, 4);
    ASSERT_TRUE(pinned.status) << pinned.status.error().message;
    EXPECT_TRUE(pinned.memory.devices.at(0).from_pinned || info_.backend != "Vulkan");
    options.wrap_reader = [](std::unique_ptr<BlockReader> inner) {
      return std::make_unique<FaultReader>(std::move(inner), FaultScript().ErrorAt(0, EFAULT));
    };
    const Run plain = Decode(model, options, 4);
    ASSERT_TRUE(plain.status) << plain.status.error().message;
    EXPECT_FALSE(plain.memory.devices.at(0).from_pinned);
    EXPECT_EQ(plain.logits, pinned.logits);
  }
}

TEST_F(DeviceCostsTest, WhenAutoLosesItsDeviceTheCpuGoesOn) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric);
  options.device.name = "auto";
  options.device.auto_takes_software = true;
  const auto launches = std::make_shared<int>(0);
  options.device.faults.fails_launch = [launches] { return ++*launches > 25; };
  const Run run = Decode(model, options, 4, 20);
  ExpectNear(run, Decode(model, OnCpu(), 4, 20), kEightBits, "lost");
  EXPECT_GT(run.device.on_device + run.device.copied, 0U);
  EXPECT_EQ(run.device.failures, 3U);  // after which nothing is tried any more
}

// Costs of an earlier start are used as they are, and forgotten after a run that found them wrong.
TEST_F(DeviceCostsTest, CostsThatARunFoundWrongAreForgotten) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const std::string kept = folder_.path() / "cache";
  const EngineOptions options = Measuring(spec, PlaceMode::kGpuCentric, 20, kept);
  // A launch among other work may take eight times as long; the costs are then measured again.
  Run run;
  const auto was_kept = [&] {
    return !run.memory.devices.empty() && run.memory.devices.at(0).costs == CostSource::kKept;
  };
  for (int i = 0; i < 5 && !was_kept(); ++i) {
    fs::remove_all(kept);
    ASSERT_TRUE(Decode(model, options, 1).status);
    size_t changed = 0;
    for (const auto& entry : fs::directory_iterator(kept)) {
      Result<LatencyFile> file = ReadLatency(entry.path());
      if (!file) continue;
      file->model.devices.front().copy.base += 1.0;  // a start does not try copies
      ASSERT_TRUE(WriteLatency(entry.path().string(), *file));
      ++changed;
    }
    ASSERT_EQ(changed, 1U);
    run = Decode(model, options, 1, 80);
    ASSERT_TRUE(run.status) << run.status.error().message;
  }
  EXPECT_TRUE(was_kept());
  EXPECT_LT(run.lane_ratios.devices.at(0).copy, 0.5);
  EXPECT_EQ(Decode(model, options, 1).memory.devices.at(0).costs, CostSource::kMeasured);
}

// Costs from a file: where the device takes a second for an expert, no token is for the device.
TEST_F(DeviceCostsTest, AutoLeavesADearDeviceForTheCpuAtTheStart) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kAuto);
  options.device.dense_on_cpu = false;
  options.device.vram = {256 * kMiB};
  options.device.auto_takes_software = true;
  LatencyModel costs = MixedCosts();
  const auto devices_of = [&](const std::string& name) {
    options.device.latency_model = CostsFile(costs);
    options.device.name = name;
    const auto engine = NativeEngine::Open(model, options);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? (*engine)->facts().memory.devices : std::vector<DeviceBudget>();
  };
  costs.devices.front().launch = 0.0;
  costs.border = 1e-9;
  costs.host = {.base = 1.0};
  EXPECT_EQ(devices_of("auto").size(), 1U);
  costs.host = {.base = 1e-6};
  costs.devices.front().compute.base = 1.0;
  EXPECT_TRUE(devices_of("auto").empty());
  const auto plan = NativeEngine::Plan(model, options);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_TRUE(plan->devices.empty());
  const std::vector<DeviceBudget> by_name = devices_of(info_.name);
  ASSERT_EQ(by_name.size(), 1U);  // a user has asked for the device
  ASSERT_TRUE(by_name.front().ways);
  EXPECT_GT(by_name.front().ways->Of(DeviceWay::kWhole), 1.0);
  EXPECT_LT(by_name.front().ways->Of(DeviceWay::kCpu), 0.1);
}

// A clock that ticks a second at every look makes tokens slower than the CPU's promise, which is
// measured by another clock: the run goes on without the device, with the bits of a run that never
// had one.
TEST_F(DeviceCostsTest, AutoLeavesASlowDeviceWhileDecoding) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = Measuring(spec, PlaceMode::kAuto, 20);
  options.device.dense_on_cpu = false;
  options.device.vram = {256 * kMiB};
  options.device.name = "auto";
  options.device.auto_takes_software = true;
  options.ctx = 512;
  const auto now = std::make_shared<std::atomic<int>>(0);
  options.clock = [now] { return static_cast<double>(now->fetch_add(1)); };
  constexpr uint32_t kSteps = WayWatch::kTokens * (WayWatch::kFirstWindows + 1) + 8;
  auto engine = NativeEngine::Open(model, options);
  ASSERT_TRUE(engine) << engine.error().message;
  ASSERT_FALSE((*engine)->facts().memory.devices.empty());
  const Run run = Decode(engine, 1, kSteps);
  ASSERT_TRUE(run.status) << run.status.error().message;
  EXPECT_TRUE((*engine)->facts().memory.devices.empty());
  EngineOptions alone = OnCpu();
  alone.ctx = options.ctx;
  const Run cpu = Decode(model, alone, 1, kSteps);
  ASSERT_EQ(run.logits.size(), cpu.logits.size());
  const auto last = [&](const Run& of) {
    return std::vector<float>(of.logits.end() - 4 * of.n_vocab, of.logits.end());
  };
  EXPECT_EQ(last(run), last(cpu));
  ExpectNear(run, cpu, kEightBits, "all");
}

// Copies of the device's own, from pinned slots and through the ring, with copies that fail under
// way: the plans are the same, and so are the bits.
TEST_F(DeviceCostsTest, TheDevicesOwnCopiesGiveTheSameBits) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 12);
  const Run blocking = Decode(model, options, 4, 40);
  ASSERT_TRUE(blocking.status) << blocking.status.error().message;
  options.device.queues_slow_copies = true;
  for (const bool is_pinned : {false, true}) {
    options.device.pins_slow_memory = is_pinned;
    options.wrap_reader = {};
    if (!is_pinned) {
      options.wrap_reader = [](std::unique_ptr<BlockReader> inner) {
        return std::make_unique<FaultReader>(std::move(inner), FaultScript().ErrorAt(0, EFAULT));
      };
    }
    const Run own = Decode(model, options, 4, 40);
    ASSERT_TRUE(own.status) << own.status.error().message;
    EXPECT_EQ(own.logits, blocking.logits) << is_pinned;
    EXPECT_EQ(own.device.copied, blocking.device.copied);

    EngineOptions faulty = options;
    faulty.device.faults.fails_copy = EveryNth(97);
    const Run faults = Decode(model, faulty, 4, 40);
    ExpectNear(faults, blocking, kEightBits, "faults");
    EXPECT_GT(faults.device.failures, 0U);
  }
}

}  // namespace
}  // namespace moestro
