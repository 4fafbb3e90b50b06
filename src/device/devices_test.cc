// SPDX-License-Identifier: MIT
#include "device/devices.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace moestro {
namespace {

const std::vector<DeviceInfo> kMany = {
    {.name = "RPC0", .backend = "RPC", .kind = DeviceKind::kRemote},
    {.name = "Vulkan0", .backend = "Vulkan", .kind = DeviceKind::kSoftware},
    {.name = "Vulkan1", .backend = "Vulkan", .kind = DeviceKind::kIntegrated},
    {.name = "CUDA0", .backend = "CUDA", .kind = DeviceKind::kDiscrete},
    {.name = "CUDA1", .backend = "CUDA", .kind = DeviceKind::kDiscrete},
    {.name = "CPU", .backend = "CPU", .kind = DeviceKind::kCpu},
};

TEST(ChooseDevice, AutoTakesTheFirstDiscreteOne) { EXPECT_EQ(ChooseDevice(kMany, "auto"), 3U); }

TEST(ChooseDevice, AutoTakesAnIntegratedOneRatherThanNoneAndNeverASoftwareOrRemoteOne) {
  EXPECT_EQ(ChooseDevice(std::span(kMany).first(3), "auto"), 2U);
  EXPECT_EQ(ChooseDevice(std::span(kMany).first(2), "auto"), 2U);  // none
}

TEST(ChooseDevice, ByNameOrBackendWhateverTheCase) {
  EXPECT_EQ(ChooseDevice(kMany, "cuda1"), 4U);
  EXPECT_EQ(ChooseDevice(kMany, "CUDA"), 3U);
  EXPECT_EQ(ChooseDevice(kMany, "vulkan"), 1U);
  EXPECT_EQ(ChooseDevice(kMany, "rpc0"), 0U);
  EXPECT_EQ(ChooseDevice(kMany, "CPU"), kMany.size());  // no device beside it
}

TEST(ChooseDevice, AnUnknownNameListsWhatThereIs) {
  const Result<size_t> unknown = ChooseDevice(kMany, "cuda2");
  ASSERT_FALSE(unknown);
  EXPECT_EQ(unknown.error().code, Errc::kUsage);
  EXPECT_NE(unknown.error().message.find("auto, cpu, RPC0, Vulkan0, Vulkan1, CUDA0, CUDA1"),
            std::string::npos)
      << unknown.error().message;
}

TEST(MayHaveGpu, LooksForNodesOfGpus) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / "may-have-gpu";
  fs::remove_all(root);
  EXPECT_FALSE(MayHaveGpu(root.string()));
  fs::create_directories(root / "dev/dri");
  std::ofstream(root / "dev/dri/card0") << "";
  EXPECT_FALSE(MayHaveGpu(root.string()));  // a screen, perhaps
  std::ofstream(root / "dev/dri/renderD128") << "";
  EXPECT_TRUE(MayHaveGpu(root.string()));
  fs::remove_all(root / "dev/dri");
  std::ofstream(root / "dev/nvidia0") << "";
  EXPECT_TRUE(MayHaveGpu(root.string()));
  fs::remove_all(root);
}

TEST(FindDevices, HasTheCpu) {
  int cpus = 0;
  for (const DeviceInfo& device : FindDevices()) {
    cpus += device.kind == DeviceKind::kCpu;
    EXPECT_FALSE(device.name.empty());
    EXPECT_LE(device.memory_free, device.memory_total) << device.name;
  }
  EXPECT_EQ(cpus, 1);
}

}  // namespace
}  // namespace moestro
