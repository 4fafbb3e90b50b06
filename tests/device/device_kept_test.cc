// SPDX-License-Identifier: MIT
// To whom keys and values belong when devices compute: which settings count
// (docs/sequence-format.md has the table), and what a lost device changes.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "base/number.h"
#include "engine/append.h"
#include "tests/device/device_testing.h"

namespace moestro {
namespace {

class DeviceKeptTest : public DeviceTest {
 protected:
  static KvOrigin OriginOf(const std::string& model, const EngineOptions& options) {
    const auto engine = NativeEngine::Open(model, options);
    EXPECT_TRUE(engine) << engine.error().message;
    const auto origin = engine ? (*engine)->kv_origin() : std::unexpected(engine.error());
    EXPECT_TRUE(origin) << origin.error().message;
    return origin.value_or(KvOrigin());
  }
};

TEST_F(DeviceKeptTest, ModesOfDevicesCountAndNothingElseThatTimingDecides) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const EngineOptions base = Measuring(spec, PlaceMode::kAuto, 20);
  const KvOrigin origin = OriginOf(model, base);
  const auto counts = [&](const std::function<void(EngineOptions&)>& change) {
    EngineOptions options = base;
    change(options);
    const KvOrigin other = OriginOf(model, options);
    EXPECT_EQ(other.weights, origin.weights);
    return other.choices != origin.choices;
  };
  EXPECT_TRUE(counts([&](EngineOptions& o) { o.device.name = "cpu"; }));
  EXPECT_TRUE(counts([&](EngineOptions& o) { o.device.place = PlaceMode::kCooperative; }));
  EXPECT_TRUE(counts([&](EngineOptions& o) { o.device.tiers = Tiers::kExclusive; }));
  EXPECT_TRUE(counts([&](EngineOptions& o) { o.device.latency_model = CostsFile(MixedCosts()); }));
  EXPECT_FALSE(counts([&](EngineOptions& o) { o.device.vram.front() *= 2; }));
  EXPECT_FALSE(counts([&](EngineOptions& o) { o.cache = CacheSize{.percent = 80.0}; }));
  EXPECT_FALSE(counts([&](EngineOptions& o) { o.threads = 1; }));
  EXPECT_FALSE(counts([&](EngineOptions& o) { o.prefetch = 0; }));
}

// Equal runs then give equal bits, so what decides them counts.
TEST_F(DeviceKeptTest, WithAFileOfCostsPlacesCount) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const EngineOptions base = OnDevice(spec, PlaceMode::kAuto, 20);
  const KvOrigin origin = OriginOf(model, base);
  const auto counts = [&](const std::function<void(EngineOptions&)>& change) {
    EngineOptions options = base;
    change(options);
    return OriginOf(model, options).choices != origin.choices;
  };
  EXPECT_FALSE(counts([](EngineOptions&) {}));
  EXPECT_TRUE(counts([&](EngineOptions& o) { o.device.vram.front() *= 2; }));
  EXPECT_TRUE(counts([&](EngineOptions& o) { o.cache = CacheSize{.percent = 80.0}; }));
  EXPECT_TRUE(counts([&](EngineOptions& o) { o.prefetch = 0; }));
  EXPECT_TRUE(counts([&](EngineOptions& o) {
    LatencyModel costs = MixedCosts();
    costs.host.base *= 2.0;
    o.device.latency_model = CostsFile(costs);
  }));
}

// The CPU starts again and computes all sequences anew: what it keeps from then on is its own.
TEST_F(DeviceKeptTest, ALostDeviceIsNoLongerTheOwner) {
  const TinySpec spec = Spec("qwen3moe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  const KvOrigin on_cpu = OriginOf(model, OnCpu());
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric);
  options.device.vram = {256 * kMiB};
  options.device.dense_on_cpu = false;
  options.device.name = "auto";
  options.device.auto_takes_software = true;
  auto launches = std::make_shared<std::atomic<int>>(0);
  options.device.faults.fails_launch = [launches] { return ++*launches > 10; };
  const auto engine = NativeEngine::Open(model, options);
  ASSERT_TRUE(engine) << engine.error().message;
  ASSERT_NE((*engine)->kv_origin()->choices, on_cpu.choices);
  Sequence sequence = (*engine)->NewSequence();
  for (const Token token : SeededTokens(30, (*engine)->spec().n_vocab, 4)) {
    const auto logits = Append(**engine, sequence, {&token, 1});
    ASSERT_TRUE(logits) << logits.error().message;
  }
  EXPECT_EQ(*(*engine)->kv_origin(), on_cpu);
  const std::string saved = folder_.path() / "saved";
  ASSERT_TRUE((*engine)->SaveSequence(sequence, "", saved));
  EXPECT_TRUE((*NativeEngine::Open(model, OnCpu()))->RestoreSequence(saved));
}

}  // namespace
}  // namespace moestro
