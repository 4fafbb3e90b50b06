// SPDX-License-Identifier: MIT
// Experts on a device: the same logits as on the CPU within what rounding may do, the same bits
// for the same plans, and no harm when the device fails. Runs on whatever ggml finds.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/number.h"
#include "model/families/families.h"
#include "tests/device/device_testing.h"
#include "tests/support/product_testing.h"
#include "tests/support/slow_reader_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

// The cover has each kind of mixers, router, experts and norms.
std::vector<std::string> FamiliesOfPart(uint32_t part) {
  return CellsOfPart(part, TinyArchs(), TraitsOf);
}

class DeviceFamilies : public DeviceTest, public ::testing::WithParamInterface<std::string> {};

TEST_P(DeviceFamilies, AreAsOnTheCpu) {
  const std::string& arch = GetParam();
  const TinySpec spec = Spec(arch, "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Decode(model, OnCpu(), 4);
  const Run device = Decode(model, OnDevice(spec, PlaceMode::kGpuCentric), 4);
  const bool has_gate = HasGate(FindFamily(Families(), arch)->experts.activation);
  ExpectNear(device, cpu, has_gate ? kEightBits : kEightBitsSquared, arch);
  EXPECT_GT(device.device.on_device, 0U);
  EXPECT_EQ(device.device.failures, 0U);
}

MOESTRO_INSTANTIATE_PARTS(DeviceFamilies, FamiliesOfPart,
                          [](const auto& arch) { return CaseName(arch.param); });

TEST_F(DeviceTest, ExpertsOfTwoMatricesAreAsOnTheCpu) {
  const TinySpec spec = Spec("nemotron_h_moe", "F32");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  for (const PlaceMode place :
       {PlaceMode::kGpuCentric, PlaceMode::kCooperative, PlaceMode::kAuto}) {
    const Run device = Decode(model, OnDevice(spec, place, 8), 4);
    ExpectNear(device, Decode(model, OnCpu(), 4), kElevenBits, spec.arch);
    EXPECT_EQ(device.device.failures, 0U);
  }
}

class DeviceTypes : public DeviceTest, public ::testing::WithParamInterface<TypeAndRows> {};

// A row takes all of its layer's experts, so no tie falls another way than on the CPU.
TEST_P(DeviceTypes, AreAsOnTheCpu) {
  const auto& [type, rows] = GetParam();
  TinySpec spec = Spec("qwen3moe", type);
  spec.used = spec.experts = 4;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const uint32_t steps = 12 / rows + 1;
  const Run cpu = Decode(model, OnCpu(), rows, steps);
  const Run device = Decode(model, OnDevice(spec, PlaceMode::kGpuCentric), rows, steps);
  ExpectNear(device, cpu, type == "F16" ? kElevenBits : kEightBits, type);
  EXPECT_GT(device.device.on_device, device.device.experts / 2);
}

MOESTRO_INSTANTIATE_PARTS(DeviceTypes, TypesAndRowsOfPart, NameOfTypeAndRows);

TEST_F(DeviceTest, EveryModeIsAsOnTheCpuWithPoolsTooSmallForTheModel) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Decode(model, OnCpu(), 4);
  for (const PlaceMode mode :
       {PlaceMode::kAuto, PlaceMode::kGpuCentric, PlaceMode::kCooperative, PlaceMode::kCpu}) {
    const Run device = Decode(model, OnDevice(spec, mode, 12), 4);
    ExpectNear(device, cpu, kEightBits, std::string(NameOf(mode)));
    const DeviceStats& did = device.device;
    if (mode == PlaceMode::kCpu) {
      // Nothing ever comes there, so the CPU computes everything: to the bit.
      EXPECT_EQ(did.on_device + did.copied, 0U);
      EXPECT_EQ(device.logits, cpu.logits);
    } else if (mode == PlaceMode::kCooperative) {
      // What the prompts filled it with, and no more.
      EXPECT_EQ(did.copied, 0U);
      EXPECT_GT(did.filled, 0U);
      EXPECT_GT(did.on_device, 0U);
      EXPECT_LT(did.on_device, did.experts);
    } else {
      EXPECT_GT(did.copied, 0U) << NameOf(mode);
      EXPECT_LT(did.copied, did.experts) << NameOf(mode);
    }
  }
}

TEST_F(DeviceTest, AutoMovesExpertsThereThatAreUsedAgain) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kAuto, 14);
  // A copy never pays within a layer, but over many uses.
  LatencyModel costs = MixedCosts();
  costs.devices[0].copy.base = 100e-6;
  options.device.latency_model = CostsFile(costs);
  // Without a prompt the device is empty at first.
  const GivenTokens given{.prompts = {0}, .steps = 60};
  const Run device = DecodeGiven(model, options, given);
  ASSERT_TRUE(device.status) << device.status.error().message;
  EXPECT_GT(device.device.promotions, 5U);
  EXPECT_GT(device.device.on_device, 60U);
  ExpectNear(device, DecodeGiven(model, OnCpu(), given), kEightBits, "promotions");
}

// Delays change the order of arrivals, not what is planned.
TEST_F(DeviceTest, EqualPlansGiveEqualBitsWhateverTheTiming) {
  const TinySpec spec = Spec("qwen2moe", "Q4_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kAuto, 14);
  const Run first = Decode(model, options, 4);
  ASSERT_TRUE(first.status) << first.status.error().message;
  EXPECT_GT(first.device.on_device, 0U);
  EXPECT_LT(first.device.on_device + first.device.copied, first.device.experts);
  for (const uint32_t seed : {1U, 2U, 3U}) {
    options.wrap_reader = [seed](std::unique_ptr<BlockReader> inner) {
      return std::make_unique<SlowReader>(std::move(inner), seed);
    };
    options.threads = 1 + seed % 2;
    const Run slow = Decode(model, options, 4);
    EXPECT_EQ(slow.logits, first.logits) << seed;
  }
}

// Where experts come from changes no bit; what memory gives up comes from the disk again.
TEST_F(DeviceTest, ExclusiveTiersGiveTheSameBits) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 14);
  LatencyModel costs = MixedCosts();
  costs.disk = {};
  options.device.latency_model = CostsFile(costs);
  options.cache = CacheSize{.percent = 100.0};
  const Run both = Decode(model, options, 4);
  options.device.tiers = Tiers::kExclusive;
  const Run once = Decode(model, options, 4);
  ASSERT_TRUE(both.status && once.status);
  EXPECT_EQ(once.logits, both.logits);
  const auto read = [](const Run& run) {
    return run.stats.decode.bytes_read + run.stats.prefill.bytes_read;
  };
  EXPECT_GT(read(once), 2 * read(both));
  EXPECT_EQ(both.device.staged, 0U);
  EXPECT_GT(once.device.staged, once.device.copied / 2);
  EXPECT_EQ(once.device.moved_back, 0U);
  EXPECT_GT(once.memory.work, both.memory.work);  // its staging slots count

  // Unless reading it again would cost more than moving it back. Other experts are launched
  // together then.
  options.device.latency_model = CostsFile(MixedCosts());
  const Run back = Decode(model, options, 4);
  ExpectNear(back, Decode(model, OnCpu(), 4), kEightBits, "moved back");
  EXPECT_GT(back.device.moved_back, 20U);
  EXPECT_LT(read(back), read(once));
  EXPECT_EQ(Decode(model, options, 4).logits, back.logits);
}

TEST_F(DeviceTest, SlotsOfMemoryChooseTheTiersThatNobodyAskedFor) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 14);
  const auto tiers = [&](std::optional<Tiers> asked, double percent) {
    options.device.tiers = asked;
    options.cache = CacheSize{.percent = percent};
    const Run run = Decode(model, options, 1);
    EXPECT_TRUE(run.status);
    EXPECT_EQ(run.device.staged > 0, run.memory.tiers == Tiers::kExclusive) << percent;
    return run.memory.tiers;
  };
  EXPECT_EQ(tiers({}, 40.0), Tiers::kExclusive);
  EXPECT_EQ(tiers({}, 100.0), Tiers::kInclusive);
  EXPECT_EQ(tiers(Tiers::kInclusive, 40.0), Tiers::kInclusive);
}

// Copies that fail after reads past memory are read into memory's slots; low copies have a size of
// their own.
TEST_F(DeviceTest, ExclusiveTiersWithFaultsAndLowCopies) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 14);
  options.device.tiers = Tiers::kExclusive;
  options.device.faults.fails_copy = EveryNth(301);
  const Run faults = Decode(model, options, 4);
  ExpectNear(faults, Decode(model, OnCpu(), 4), kEightBits, "faults");
  EXPECT_GT(faults.device.failures, 0U);
  EXPECT_GT(faults.device.staged, 20U);

  options.device.faults = {};
  options.low = WriteTinyModel(folder_.path(), Spec("qwen3moe", "Q4_0"));
  options.lossy.t1 = 0.3;
  options.lossy.t2 = 1.0;
  const Run once = Decode(model, options, 1);
  options.device.tiers = Tiers::kInclusive;
  const Run both = Decode(model, options, 1);
  ASSERT_TRUE(once.status && both.status);
  EXPECT_GT(once.device.staged, 0U);
  EXPECT_EQ(once.logits.size(), both.logits.size());
}

TEST_F(DeviceTest, LowCopiesAreComputedThereToo) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const std::string low = WriteTinyModel(folder_.path(), Spec("qwen3moe", "Q4_0"));
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 30);
  options.low = low;
  options.lossy.t1 = 0.3;
  options.lossy.t2 = 1.0;
  const Run first = Decode(model, options, 1);
  ASSERT_TRUE(first.status) << first.status.error().message;
  EXPECT_GT(first.device.on_device + first.device.copied, first.device.experts / 2);
  EngineOptions cpu = OnCpu();
  cpu.low = low;
  cpu.lossy = options.lossy;
  EXPECT_TRUE(Decode(model, cpu, 1).status);
}

TEST_F(DeviceTest, FailedCopiesAndLaunchesAreComputedByTheCpu) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const Run cpu = Decode(model, OnCpu(), 4);
  for (const bool is_copy : {true, false}) {
    EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 12);
    (is_copy ? options.device.faults.fails_copy : options.device.faults.fails_launch) =
        EveryNth(is_copy ? 301 : 23);
    const Run device = Decode(model, options, 4);
    ExpectNear(device, cpu, kEightBits, is_copy ? "copies" : "launches");
    EXPECT_GT(device.device.failures, 0U);
    EXPECT_GT(device.device.on_device, 0U);
  }
}

// Slots for little more than one layer's experts of a step, so that nearly all of them move in
// every step, while every n-th copy fails.
TEST_F(DeviceTest, AHundredStepsOfMovingExpertsWithFaults) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric, 9);
  options.device.faults.fails_copy = EveryNth(97);
  const Run device = Decode(model, options, 4, 100);
  ExpectNear(device, Decode(model, OnCpu(), 4, 100), kEightBits, "moving");
  EXPECT_GT(device.device.failures, 5U);
  EXPECT_GT(device.device.copied, 500U);
}

TEST_F(DeviceTest, ADeviceThatWasAskedForByNameEndsTheRunWhenItIsLost) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric);
  const auto launches = std::make_shared<int>(0);
  options.device.faults.fails_launch = [launches] { return ++*launches > 15; };
  const Run named = Decode(model, options, 1);
  ASSERT_FALSE(named.status);
  EXPECT_EQ(named.status.error().code, Errc::kDevice);
}

TEST_F(DeviceTest, ADeviceThatComputesWronglyIsNotUsed) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric);
  options.device.faults.spoils_results = true;
  const Run device = Decode(model, options, 1);
  ASSERT_FALSE(device.status);
  EXPECT_NE(device.status.error().message.find("as the CPU does"), std::string::npos)
      << device.status.error().message;
}

TEST_F(DeviceTest, BadSettingsAreNamed) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kAuto);
  options.device.name = "nosuch7";
  const Run unknown = Decode(model, options, 1);
  ASSERT_FALSE(unknown.status);
  EXPECT_EQ(unknown.status.error().code, Errc::kUsage);
  EXPECT_NE(unknown.status.error().message.find(name_), std::string::npos);

  options.device.name = name_;
  options.device.vram = {uint64_t{1} << 50};
  const Run large = Decode(model, options, 1);
  ASSERT_FALSE(large.status);
  EXPECT_EQ(large.status.error().code, Errc::kInvalidRequest);
  EXPECT_NE(large.status.error().message.find("free on"), std::string::npos);

  options.device.vram = {1 * kMiB};
  const Run small = Decode(model, options, 1);
  ASSERT_FALSE(small.status);
  EXPECT_NE(small.status.error().message.find("raise --vram"), std::string::npos);

  options = OnDevice(spec, PlaceMode::kAuto);
  options.device.latency_model = folder_.path() / "nosuch.json";
  const Run missing = Decode(model, options, 1);
  ASSERT_FALSE(missing.status);
  EXPECT_EQ(missing.status.error().code, Errc::kIo);
}

// The name decides whatever its case; a bare backend means its first device.
TEST_F(DeviceTest, NamesMayBeShortAndInAnyCase) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kAuto);
  options.device.name = "vUlKaN";
  EXPECT_TRUE(Decode(model, options, 1, 2).status);
}

}  // namespace
}  // namespace moestro
