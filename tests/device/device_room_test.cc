// SPDX-License-Identifier: MIT
// Engines whose slots are short, in memory and on devices: no layer waits for a slot that is kept
// for later. What decide/slots/pool_room_test.cc does with planners alone, with all of the engine.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/text.h"
#include "decide/devices/lane_planner.h"
#include "native/native_engine.h"
#include "tests/device/device_testing.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/slow_reader_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {
namespace {

class DeviceRoom : public DeviceTest {
 protected:
  // Uses pay for a copy at once.
  static LatencyModel EagerCosts(size_t devices) {
    LatencyModel costs{.host = {.base = 1e-3}, .disk = {.base = 1e-4}};
    costs.devices.assign(devices, {.compute = {.base = 1e-5}, .copy = {.base = 2e-3}});
    return costs;
  }

  // The same on every machine.
  class Dice {
   public:
    explicit Dice(uint64_t seed) : random_(seed) {}
    uint64_t Below(uint64_t n) { return random_() % n; }
    uint64_t Between(uint64_t least, uint64_t most) { return least + Below(most - least + 1); }
    bool OneIn(uint64_t n) { return Below(n) == 0; }

   private:
    std::mt19937_64 random_;
  };

  struct Machine {
    TinySpec spec;
    bool has_low = false;
    EngineOptions options = {};
    uint32_t rows = 1;         // that decode
    uint32_t prompt_rows = 0;  // beside them in every second step
    // Nothing goes wrong before.
    std::shared_ptr<std::atomic<bool>> is_open = std::make_shared<std::atomic<bool>>(false);
    std::string text = {};
  };

  // Few of them, so that most are written once.
  static TinySpec RandomSpec(Dice& dice) {
    const std::vector<std::string> types = {"Q8_0", "Q4_0", "Q4_K_M"};
    const std::vector<std::string> archs = {"olmoe", "qwen3moe", "qwen2moe"};
    TinySpec spec{.arch = archs[dice.Below(archs.size())], .type = types[dice.Below(types.size())]};
    spec.used = static_cast<uint32_t>(dice.Between(1, 3));
    spec.experts = spec.used + 4;
    spec.layers = 6;
    spec.ff = 256;
    spec.vocab = 128;
    spec.skew = 0.5;
    return spec;
  }

  Machine RandomMachine(Dice& dice) {
    Machine m{.spec = RandomSpec(dice)};
    const bool is_pair = dice.OneIn(3) && has_two();
    const auto mode = dice.OneIn(4) ? PlaceMode::kGpuCentric : PlaceMode::kAuto;
    const uint64_t on_device = dice.Between(4, 14);
    m.options = OnDevice(m.spec, mode, on_device);
    EngineOptions& o = m.options;
    if (is_pair) o.device.name = names_[0] + "," + names_[1];
    LatencyModel costs = is_pair ? UnequalCosts() : MixedCosts();
    if (dice.OneIn(2)) costs = EagerCosts(is_pair ? 2 : 1);
    o.device.latency_model = CostsFile(costs);
    o.device.tiers = dice.OneIn(2) ? Tiers::kExclusive : Tiers::kInclusive;
    // A token's experts at least; most often hardly more.
    const double least = 100.0 * m.spec.used / (m.spec.experts * m.spec.layers);
    o.cache =
        CacheSize{.percent = std::min(
                      100.0, 2.1 * least + static_cast<double>(dice.Below(1 + dice.Below(40))))};
    o.prefetch = static_cast<uint32_t>(dice.Below(4));
    o.chunk = dice.OneIn(2) ? 0 : 4;
    m.rows = static_cast<uint32_t>(dice.OneIn(2) ? 1 : dice.Between(1, 5));
    m.prompt_rows = dice.OneIn(3) ? static_cast<uint32_t>(dice.Between(1, 9)) : 0;
    m.has_low = m.spec.type == "Q8_0" && dice.OneIn(2);
    if (m.has_low) o.lossy = {.t1 = 0.3, .t2 = 0.9, .upgrades = true};
    if (dice.OneIn(4)) o.lossy.prefer_resident = 0.1;
    if (m.spec.used > 1 && dice.OneIn(4)) o.little = {.n_used = 1, .gamma = 0.5};
    const auto fails = [&m](const std::function<bool()>& nth) {
      return [is_open = m.is_open, nth] { return is_open->load() && nth(); };
    };
    if (dice.OneIn(4)) o.device.faults.fails_launch = fails(EveryNth(7));
    if (dice.OneIn(4)) o.device.faults.fails_copy = fails(EveryNth(5));
    if (dice.OneIn(3)) {
      const auto seed = static_cast<uint32_t>(dice.Below(100));
      o.wrap_reader = [seed](std::unique_ptr<BlockReader> inner) {
        return std::make_unique<SlowReader>(std::move(inner), seed);
      };
    }
    m.text =
        Format("{} {}, {} of {}, cache {:.1f} %, {} slots on {}, {}, {}, rows {}+{}", m.spec.arch,
               m.spec.type, m.spec.used, m.spec.experts, o.cache->percent, on_device, o.device.name,
               NameOf(mode), NameOf(*o.device.tiers), m.rows, m.prompt_rows);
    return m;
  }

  std::string ModelOf(TinySpec spec, const std::string& type) {
    spec.type = type;
    const std::string key = Format("{} {} {}", spec.arch, type, spec.used);
    const auto known = models_.find(key);
    if (known != models_.end()) return known->second;
    return models_[key] = WriteTinyModel(folder_.path(), spec);
  }

  // A prompt for each sequence, then steps of a row of each, with rows of a prompt beside them.
  static Status Run(NativeEngine& engine, const Machine& m) {
    std::vector<Sequence> sequences;
    uint32_t seed = 1;
    const auto tokens = [&](uint32_t n) { return SeededTokens(n, engine.spec().n_vocab, seed++); };
    for (uint32_t s = 0; s < m.rows; ++s) {
      sequences.push_back(engine.NewSequence());
      TRY_STATUS(engine.Step(RowsOf(sequences.back(), tokens(2 + s), RowKind::kPrompt)));
    }
    for (int step = 0; step < 8; ++step) {
      Batch batch;
      for (const Sequence& sequence : sequences) {
        batch.rows.push_back({.sequence = sequence.id(),
                              .position = sequence.position(),
                              .token = tokens(1).front(),
                              .wants_logits = true});
      }
      const Sequence prompt = engine.NewSequence();
      if (m.prompt_rows > 0 && step % 2 == 1) {
        batch.rows.append_range(RowsOf(prompt, tokens(m.prompt_rows), RowKind::kPrompt).rows);
      }
      TRY_STATUS(engine.Step(batch));
    }
    return {};
  }

  // MOESTRO_MACHINE: one of them alone.
  void RunMachines(uint64_t n) {
    const char* chosen = std::getenv("MOESTRO_MACHINE");
    const uint64_t first = chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
    const uint64_t last = chosen != nullptr ? first : n;
    for (uint64_t seed = first; seed <= last; ++seed) {
      Dice dice(seed);
      Machine machine = RandomMachine(dice);
      // Said before it runs: a check that fails ends the program.
      std::fprintf(stderr, "MOESTRO_MACHINE=%llu: %s\n", static_cast<unsigned long long>(seed),
                   machine.text.c_str());
      if (machine.has_low) machine.options.low = ModelOf(machine.spec, "Q4_0");
      const auto engine =
          NativeEngine::Open(ModelOf(machine.spec, machine.spec.type), machine.options);
      ASSERT_TRUE(engine) << engine.error().message;
      *machine.is_open = true;
      const Status ran = Run(**engine, machine);
      const DeviceFaults& faults = machine.options.device.faults;
      const bool may_be_lost = faults.fails_launch || faults.fails_copy;
      EXPECT_TRUE(ran || (may_be_lost && ran.error().code == Errc::kDevice)) << ran.error().message;
    }
  }

  std::map<std::string, std::string> models_;
};

// With ggml's CPU backend, which is there always and starts at once.
class CpuAsDevice : public DeviceRoom {
 protected:
  void SetUp() override {
    name_ = "ggml-cpu";
    names_ = {"CPU"};
  }
};

// MOESTRO_MACHINES=300: how many.
TEST_F(CpuAsDevice, NoneOfManyRandomMachinesStops) {
  const char* many = std::getenv("MOESTRO_MACHINES");
  RunMachines(many != nullptr ? std::strtoull(many, nullptr, 10) : 60);
}

// Promotions of the first layers kept the slots that the last ones needed.
TEST_F(DeviceRoom, CopiesForLaterLeaveLayersTheirSlots) {
  TinySpec spec = Spec("olmoe", "Q8_0");
  spec.layers = 6;
  const std::string model = WriteTinyModel(folder_.path(), spec);
  EngineOptions options = OnDevice(spec, PlaceMode::kAuto, 7);
  options.device.latency_model = CostsFile(EagerCosts(1));
  for (const double percent : {4.5, 6.0, 10.0}) {  // of 72: three slots, four, seven
    options.cache = CacheSize{.percent = percent};
    for (const uint32_t rows : {1U, 3U}) {
      const auto run = Decode(model, options, rows, 12);
      EXPECT_TRUE(run.status) << run.status.error().message;
    }
  }
}

// The next layer's experts, read ahead for a prompt, kept every slot while this layer's came back
// from the device that had them.
TEST_F(DeviceRoom, ALostDevicesPromptFindsSlotsInMemory) {
  const TinySpec spec = Spec("olmoe", "Q8_0");
  const std::string model = WriteTinyModel(folder_.path(), spec);
  LearnPaths(model);
  EngineOptions options = OnDevice(spec, PlaceMode::kGpuCentric);  // room for all
  options.device.name = "auto";
  options.device.auto_takes_software = true;
  options.cache = CacheSize{.percent = 9.0};  // three of 36
  auto working = std::make_shared<std::atomic<bool>>(false);
  options.device.faults.fails_launch = [working] { return working->load(); };
  const auto engine = NativeEngine::Open(model, options);
  ASSERT_TRUE(engine) << engine.error().message;
  *working = true;
  Sequence sequence = (*engine)->NewSequence();
  const std::vector<Token> prompt = SeededTokens(40, (*engine)->spec().n_vocab, 3);
  const Status done = (*engine)->Step(RowsOf(sequence, prompt, RowKind::kPrompt));
  EXPECT_TRUE(done) << done.error().message;
  EXPECT_GT((*engine)->learned().device.failures, 0U);
}

// On whatever device there is; a software one starts slowly.
TEST_F(DeviceRoom, NoneOfAFewRandomMachinesStops) { RunMachines(3); }

}  // namespace
}  // namespace moestro
