// SPDX-License-Identifier: MIT
// Devices from outside. Those that need one run on whatever ggml finds, a software one too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "tests/cli/program_testing.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using Arguments = std::vector<std::string>;
using testing::Finished;
using testing::kDemo;
using testing::Program;

class DeviceCliTest : public ::testing::Test {
 protected:
  // With the matrix cores of the software device the dense part stays on the CPU.
  DeviceCliTest() {
    setenv("GGML_VK_VISIBLE_DEVICES", "0", 1);
    setenv("GGML_VK_DISABLE_COOPMAT", "1", 1);
  }
  ~DeviceCliTest() override {
    unsetenv("GGML_VK_VISIBLE_DEVICES");
    unsetenv("GGML_VK_DISABLE_COOPMAT");
  }

  Finished RunProgram(const Arguments& arguments) const {
    return Program(folder_.path(), {.arguments = arguments}).Wait();
  }
  Finished Write(const std::string& device, const Arguments& more = {}) const {
    Arguments all = {"run",    kDemo, "-p",       "Once upon a time",
                     "-n",     "12",  "--cache",  "50%",
                     "--temp", "0",   "--ctx",    "128",
                     "-t",     "2",   "--device", device};
    all.insert(all.end(), more.begin(), more.end());
    return RunProgram(all);
  }
  // ggml's names of devices beside the CPU.
  std::vector<std::string> Devices() const {
    std::vector<std::string> names;
    const Finished listed = RunProgram({"devices", "--json"});
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    const Result<Json> json = Json::Parse(listed.out);
    if (!json) return names;
    const std::optional<JsonView> devices = json->Find("devices");
    for (size_t i = 0; devices && i < devices->size(); ++i) {
      const std::optional<JsonView> device = devices->At(i);
      if (device->Find("type")->text() == "cpu") continue;
      names.push_back(device->Find("name")->text().value_or(""));
    }
    return names;
  }
  // The first of them; empty: there is none.
  std::string Device() const {
    const std::vector<std::string> names = Devices();
    return names.empty() ? "" : names.front();
  }

  TempFolder folder_;
};

TEST_F(DeviceCliTest, TheCpuIsAlwaysListed) {
  const Finished listed = RunProgram({"devices"});
  EXPECT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_NE(listed.out.find("CPU"), std::string::npos) << listed.out;
}

TEST_F(DeviceCliTest, BadValuesAreUsageErrorsThatSayWhatIsKnown) {
  const Finished unknown = Write("nosuch7");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_NE(unknown.err.find("there is no device 'nosuch7'; known: auto, cpu"), std::string::npos)
      << unknown.err;
  EXPECT_EQ(Write("cpu", {"--vram", "0"}).exit_code, 2);
  EXPECT_EQ(Write("cpu", {"--vram", "much"}).exit_code, 2);
  const Finished place = Write("cpu", {"--place", "fast"});
  EXPECT_EQ(place.exit_code, 2);
  EXPECT_NE(place.err.find("cooperative"), std::string::npos) << place.err;
  EXPECT_EQ(RunProgram({"devices", "-o", (folder_.path() / "x.json").string()}).exit_code, 2);
}

TEST_F(DeviceCliTest, AutoTakesNoSoftwareDevice) {
  const Finished cpu = Write("cpu");
  const Finished found = Write("auto");
  EXPECT_EQ(found.exit_code, 0) << found.err;
  if (!std::filesystem::exists("/dev/dri") && !std::filesystem::exists("/dev/nvidia0")) {
    EXPECT_EQ(found.out, cpu.out);
    EXPECT_EQ(found.err.find("device "), std::string::npos) << found.err;
  }
}

TEST_F(DeviceCliTest, ARunSaysWhatTheDeviceDid) {
  const std::string device = Device();
  if (device.empty()) GTEST_SKIP() << "ggml finds no device";
  const Finished run = Write(device, {"--place", "gpu-centric", "--vram", "64M", "--explain"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.err.find("device   " + device), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("attention and head there"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("(" + device + ", "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("predicted us: CPU"), std::string::npos) << run.err;

  const Finished experts = Write(device, {"--dense", "cpu", "--vram", "64M"});
  EXPECT_EQ(experts.exit_code, 0) << experts.err;
  EXPECT_NE(experts.err.find("attention and head on the CPU"), std::string::npos) << experts.err;
  const Finished small = Write(device, {"--vram", "30M"});
  EXPECT_EQ(small.exit_code, 0) << small.err;
  EXPECT_NE(small.err.find("the CPU computes the dense part"), std::string::npos) << small.err;
  EXPECT_EQ(Write(device, {"--dense", "gpu"}).exit_code, 2);

  const Finished large = Write(device, {"--vram", "100T"});
  EXPECT_EQ(large.exit_code, 1);
  EXPECT_NE(large.err.find("free on " + device), std::string::npos) << large.err;
}

TEST_F(DeviceCliTest, TheBudgetHoldsWithADriverInTheProcess) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const std::string device = Device();
  if (device.empty()) GTEST_SKIP() << "ggml finds no device";
  for (const char* dense : {"cpu", "auto"}) {
    const Arguments bench = {"bench",   kDemo,         "--ram", "260M",   "--device",
                             device,    "--dense",     dense,   "--vram", "64M",
                             "--place", "gpu-centric", "-p",    "24",     "-n",
                             "24",      "-c",          "256",   "-t",     "2"};
    // The first run compiles shaders, which takes memory of its own; the driver keeps them.
    Arguments first = bench;
    std::ranges::replace(first, std::string("260M"), std::string("700M"));
    EXPECT_EQ(RunProgram(first).exit_code, 0);
    const Finished run = RunProgram(bench);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_LE(run.peak_bytes, 260U << 20) << dense;
  }
}

// Experts pass through memory on their way there.
TEST_F(DeviceCliTest, TheBudgetHoldsWhileTheDeviceIsFilled) {
  if (kIsSanitized) GTEST_SKIP() << "sanitizers take memory of their own";
  const std::string device = Device();
  if (device.empty()) GTEST_SKIP() << "ggml finds no device";
  const std::string paths = folder_.File("demo.paths");
  const Finished learned = RunProgram(
      {"profile", "--trace", MOESTRO_SOURCE_DIR "/bench/traces/demo-maths.trace", "-o", paths});
  ASSERT_EQ(learned.exit_code, 0) << learned.err;
  const Arguments bench = {"bench",   kDemo, "--ram",  "260M", "--device", device,
                           "--dense", "cpu", "--vram", "40M",  "--place",  "cooperative",
                           "--paths", paths, "-p",     "24",   "-n",       "24",
                           "-c",      "256", "-t",     "2",    "--json"};
  Arguments first = bench;
  std::ranges::replace(first, std::string("260M"), std::string("700M"));
  EXPECT_EQ(RunProgram(first).exit_code, 0);  // compiles shaders
  const Finished run = RunProgram(bench);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_LE(run.peak_bytes, 260U << 20);
  const Result<Json> json = Json::Parse(run.out);
  ASSERT_TRUE(json) << run.out;
  EXPECT_GT(json->Find("devices")->At(0)->Find("filled")->number().value_or(0), 20.0) << run.out;
}

TEST_F(DeviceCliTest, AProfileBecomesAFileThatARunTakes) {
  const std::string device = Device();
  if (device.empty()) GTEST_SKIP() << "ggml finds no device";
  const std::string file = (folder_.path() / "costs.json").string();
  const Finished profiled = RunProgram({"devices", "--profile", "-o", file, "-t", "2"});
  EXPECT_EQ(profiled.exit_code, 0) << profiled.err;
  EXPECT_NE(profiled.out.find("launch"), std::string::npos) << profiled.out;
  const Finished first = Write(device, {"--latency-model", file, "--vram", "64M"});
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_NE(first.err.find("has no costs of the disk"), std::string::npos) << first.err;
  EXPECT_EQ(Write(device, {"--latency-model", file, "--vram", "64M"}).out, first.out);
  EXPECT_EQ(Write(device, {"--latency-model", file + ".nosuch"}).exit_code, 1);
}

// With a model its experts and its disk are measured, and what a run measures is there already.
TEST_F(DeviceCliTest, AProfileOfAModelIsWhatARunMeasures) {
  const std::string device = Device();
  if (device.empty()) GTEST_SKIP() << "ggml finds no device";
  const Finished measured = Write(device, {"--vram", "64M"});
  EXPECT_NE(measured.err.find("costs measured"), std::string::npos) << measured.err;
  // Costs are kept apart for pinned and plain memory, and a busy machine may change which of them
  // is taken; so it is the third start at the latest that measures nothing.
  const auto later = [&] {
    Finished run = Write(device, {"--vram", "64M"});
    return run.err.contains("costs measured") ? Write(device, {"--vram", "64M"}) : run;
  };
  const Finished again = later();
  EXPECT_NE(again.err.find("costs from an earlier start"), std::string::npos) << again.err;

  const std::string file = (folder_.path() / "costs.json").string();
  const Finished profiled = RunProgram({"devices", kDemo, "--profile", "-o", file, "-t", "2"});
  EXPECT_EQ(profiled.exit_code, 0) << profiled.err;
  EXPECT_NE(profiled.out.find("disk"), std::string::npos) << profiled.out;
  const Finished fixed = Write(device, {"--vram", "64M", "--latency-model", file});
  EXPECT_EQ(fixed.err.find("has no costs of the disk"), std::string::npos) << fixed.err;
  EXPECT_NE(fixed.err.find("costs from a file"), std::string::npos) << fixed.err;
  const Finished kept = later();
  EXPECT_NE(kept.err.find("costs from an earlier start"), std::string::npos) << kept.err;
  EXPECT_EQ(RunProgram({"devices", kDemo}).exit_code, 2);
}

// The software device twice.
TEST_F(DeviceCliTest, ARunSaysWhatEachOfTwoDevicesDid) {
  setenv("GGML_VK_VISIBLE_DEVICES", "0,0", 1);
  const std::vector<std::string> names = Devices();
  if (names.size() < 2) GTEST_SKIP() << "there is one device";
  const std::string both = names[0] + "," + names[1];
  const std::string file = (folder_.path() / "costs.json").string();
  const Finished profiled = RunProgram({"devices", kDemo, "--profile", "-o", file, "-t", "2"});
  EXPECT_EQ(profiled.exit_code, 0) << profiled.err;
  const Finished run = Write(both, {"--place", "gpu-centric", "--vram", "36M,32M", "--dense", "cpu",
                                    "--latency-model", file, "--explain", "--seed", "1"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  for (size_t d = 0; d < 2; ++d) {
    EXPECT_NE(run.err.find("device   " + names[d] + ", "), std::string::npos) << run.err;
    // An expert with its weight, there already or brought; and what the device's lane took.
    EXPECT_NE(run.err.find(names[d] + ", 0."), std::string::npos) << run.err;
    EXPECT_NE(run.err.find(", " + names[d] + " "), std::string::npos) << run.err;
  }
  const Finished refused = Write(both + "," + names[0]);
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("names the device " + names[0] + " twice"), std::string::npos)
      << refused.err;
  const Finished sizes = Write(both, {"--vram", "64M,64M,64M"});
  EXPECT_EQ(sizes.exit_code, 1);
  EXPECT_NE(sizes.err.find("3 sizes for 2 devices"), std::string::npos) << sizes.err;
  EXPECT_EQ(Write(both, {"--vram", "64M,"}).exit_code, 2);
  EXPECT_EQ(Write(both, {"--vram", "64M,0"}).exit_code, 2);
}

TEST_F(DeviceCliTest, InspectSaysWhatFitsThere) {
  const Finished text = RunProgram({"inspect", kDemo});
  EXPECT_NE(text.out.find("--vram (about)"), std::string::npos) << text.out;
  const Result<Json> json = Json::Parse(RunProgram({"inspect", kDemo, "--json"}).out);
  ASSERT_TRUE(json);
  ASSERT_TRUE(json->Find("device_fits"));
  EXPECT_GT(json->Find("device_fits")->size(), 0U);
}

}  // namespace
}  // namespace moestro
