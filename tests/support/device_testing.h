// SPDX-License-Identifier: MIT
// For tests that need a device beside the CPU: whatever ggml finds; a software Vulkan device will
// do (scripts/setup.sh device). Without one they are skipped.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "decide/devices/latency_model.h"
#include "devices/local_transport.h"
#include "engine/engine_options.h"
#include "engine/recorded_routing.h"
#include "learned/beside_model.h"
#include "learned/learned_tables.h"
#include "learned/machine_files.h"
#include "learned/path_counter.h"
#include "native/machine_probe.h"
#include "native/native_engine.h"
#include "tests/support/prompts_testing.h"
#include "tests/support/temp_folder_testing.h"
#include "tests/support/tiny_model_testing.h"

namespace moestro {

class DeviceFixture : public testing::Test {
 protected:
  // Mesa's software device has matrix cores whose products are wrong (docs/decisions/0004), so the
  // dense part would stay on the CPU. MOESTRO_TEST_MATRIX_CORES: with those that there are.
  DeviceFixture() {
    if (std::getenv("MOESTRO_TEST_MATRIX_CORES") != nullptr) return;
    setenv("GGML_VK_DISABLE_COOPMAT", "1", 0);
  }

  void SetUp() override {
    for (const DeviceInfo& info : ListDevices()) {
      if (info.kind == DeviceKind::kCpu || info.kind == DeviceKind::kRemote) continue;
      if (names_.empty()) info_ = info;
      if (info.backend == info_.backend) names_.push_back(info.name);
    }
    name_ = info_.name;
    if (!name_.empty()) return;
    // Where there must be one, its absence is a failure.
    if (std::getenv("MOESTRO_TEST_DEVICE") != nullptr) {
      FAIL() << "ggml finds no device; see 'scripts/setup.sh device'";
    }
    GTEST_SKIP() << "ggml finds no device; 'scripts/setup.sh device' installs a software one";
  }

  static TinySpec Spec(const std::string& arch, const std::string& type) {
    return {.arch = arch, .type = type, .layers = 3, .experts = 12, .used = 3, .ff = 256};
  }

  std::string CostsFile(const LatencyModel& model) const {
    const std::string path = folder_.path() / "costs.json";
    const std::vector<std::string> names(
        names_.begin(), names_.begin() + static_cast<std::ptrdiff_t>(model.devices.size()));
    const Status written =
        WriteLatency(path, {.machine = "test", .devices = names, .model = model});
    EXPECT_TRUE(written) << written.error().message;
    return path;
  }
  // Copying is dear and the CPU is slow: something is on every lane.
  static LatencyModel MixedCosts() {
    return {.host = {.base = 20e-6, .per_byte = 1e-10, .per_row = 0.5e-10},
            .disk = {.base = 50e-6, .per_byte = 5e-10},
            .devices = {{.compute = {.base = 5e-6, .per_byte = 0.2e-10, .per_row = 0.1e-10},
                         .copy = {.base = 10e-6, .per_byte = 0.5e-10},
                         .launch = 10e-6}}};
  }

  EngineOptions OnCpu() const {
    EngineOptions options;
    options.ctx = 128;
    options.threads = 2;
    options.sequences = 12;
    options.cache = CacheSize{.percent = 60.0};
    options.device.name = "cpu";
    return options;
  }
  // Experts alone; `slots`: about so many experts of 12 * 3 fit.
  EngineOptions OnDevice(const TinySpec& spec, PlaceMode place, uint64_t slots = 100) {
    EngineOptions options = OnCpu();
    options.device.name = name_;
    options.device.place = place;
    options.device.dense_on_cpu = true;
    options.device.latency_model = CostsFile(MixedCosts());
    const LaunchShape shape{.n_embd = spec.embd, .n_ff = spec.ff};
    const auto type = static_cast<uint64_t>(spec.type == "F16" ? 2 : 1);
    options.device.vram = {LocalTransport::WorkBytes(shape) +
                           slots * 3 * type * spec.embd * spec.ff};
    return options;
  }

  // Two devices of unequal speed; `slots`: on each.
  bool has_two() const { return names_.size() > 1; }
  static LatencyModel UnequalCosts() {
    LatencyModel costs = MixedCosts();
    DeviceCosts slower = costs.devices.front();
    slower.compute.per_byte *= 2.0;
    slower.copy.per_byte *= 1.5;
    costs.devices.push_back(slower);
    return costs;
  }
  EngineOptions OnTwo(const TinySpec& spec, PlaceMode place, uint64_t slots = 100) {
    EngineOptions options = OnDevice(spec, place, slots);
    options.device.name = names_[0] + "," + names_[1];
    options.device.latency_model = CostsFile(UnequalCosts());
    return options;
  }

  // What 'moestro profile' would leave beside the model.
  PathFile LearnPaths(const std::string& model) const {
    const auto engine = NativeEngine::Open(model, OnCpu());
    EXPECT_TRUE(engine) << engine.error().message;
    const ModelId& id = (*engine)->id();
    PathCounter counter(id.shape);
    RouteRecorder recorder(**engine, {.model = id}, [&](const TraceToken& token) -> Status {
      counter.Add(token.experts);
      return {};
    });
    EXPECT_TRUE(recorder.Record(SeededTokens(100, (*engine)->spec().n_vocab, 9), 0));
    PathFile paths{.model = id, .tokens = 100, .table = counter.Learn()};
    EXPECT_TRUE(WritePaths(PathsBeside(model), paths));
    return paths;
  }

  TempFolder folder_;
  DeviceInfo info_;
  std::string name_;                // its
  std::vector<std::string> names_;  // of all of its backend, it first
};

}  // namespace moestro
