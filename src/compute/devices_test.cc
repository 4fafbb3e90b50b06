// SPDX-License-Identifier: MIT
#include "compute/devices.h"

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

using Indices = std::vector<size_t>;

TEST(ChooseDevices, AutoTakesTheDiscreteOnes) {
  EXPECT_EQ(ChooseDevices(kMany, "auto"), (Indices{3, 4}));
}

TEST(ChooseDevices, AutoTakesIntegratedOnesRatherThanNoneAndNeverSoftwareOrRemoteOnes) {
  EXPECT_EQ(ChooseDevices(std::span(kMany).first(3), "auto"), Indices{2});
  EXPECT_EQ(ChooseDevices(std::span(kMany).first(2), "auto"), Indices{});
  EXPECT_EQ(ChooseDevices(std::span(kMany).first(2), "auto", true), Indices{1});
}

// Two plug-ins list the same cards, the larger card second.
TEST(ChooseDevices, AutoTakesOneBackendAndTheLargestFirst) {
  const auto card = [](const char* name, const char* backend, uint64_t memory) {
    return DeviceInfo{.name = name, .backend = backend, .memory_total = memory};
  };
  const std::vector<DeviceInfo> twice = {card("Vulkan0", "Vulkan", 7),
                                         card("Vulkan1", "Vulkan", 15), card("CUDA0", "CUDA", 8),
                                         card("CUDA1", "CUDA", 16)};
  EXPECT_EQ(ChooseDevices(twice, "auto"), (Indices{3, 2}));
}

TEST(ChooseDevices, ByNameOrBackendWhateverTheCase) {
  EXPECT_EQ(ChooseDevices(kMany, "cuda1"), Indices{4});
  EXPECT_EQ(ChooseDevices(kMany, "CUDA"), Indices{3});
  EXPECT_EQ(ChooseDevices(kMany, "vulkan"), Indices{1});
  EXPECT_EQ(ChooseDevices(kMany, "rpc0"), Indices{0});
  EXPECT_EQ(ChooseDevices(kMany, "CPU"), Indices{});  // no device beside it
  EXPECT_EQ(ChooseDevices(kMany, "cuda1,Vulkan1,rpc"), (Indices{4, 2, 0}));
}

TEST(ChooseDevices, AnUnknownNameListsWhatThereIs) {
  for (const char* names : {"cuda2", "cuda0,cuda2", "cuda0,", ",", ""}) {
    const auto unknown = ChooseDevices(kMany, names);
    ASSERT_FALSE(unknown) << names;
    EXPECT_EQ(unknown.error().code, Errc::kUsage);
    EXPECT_NE(unknown.error().message.find("auto, cpu, RPC0, Vulkan0, Vulkan1, CUDA0, CUDA1"),
              std::string::npos)
        << unknown.error().message;
  }
}

TEST(ChooseDevices, NoDeviceTwiceAndNothingBesideAutoAndCpu) {
  const auto expect = [](const char* names, const char* part) {
    const auto refused = ChooseDevices(kMany, names);
    ASSERT_FALSE(refused) << names;
    EXPECT_EQ(refused.error().code, Errc::kUsage);
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  };
  expect("CUDA0,CUDA1,cuda0", "the device CUDA0 twice");
  expect("cuda,CUDA0", "the device CUDA0 twice");
  expect("auto,CUDA0", "'auto' stands alone");
  expect("CUDA0,cpu", "'cpu' stands alone");
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
