// SPDX-License-Identifier: MIT
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "learned/kept_facts.h"
#include "learned/machine_files.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

CostKey Key() {
  return {.cpu = "a processor, 4 threads",
          .kernel = "avx2",
          .device = {.name = "Vulkan0",
                     .description = "a GPU (driver 1)",
                     .backend = "Vulkan",
                     .memory_total = 8ULL << 30,
                     .memory_free = 7ULL << 30},
          .pinned_by = "Vulkan0",
          .expert = {.types = {12, 12, 14}, .n_embd = 2048, .n_ff = 768}};
}

// Values that a file keeps to the bit.
LatencyModel Costs() {
  return {.host = {.base = 5e-6, .per_byte = 5e-11},
          .host_beside = 1.25,
          .devices = {{.compute = {.base = 2e-6, .per_byte = 2e-12},
                       .copy = {.per_byte = 1e-10},
                       .launch = 30e-6,
                       .copy_beside = 1.5}}};
}

class CostCacheTest : public testing::Test {
 protected:
  void Put(const std::string& bytes) const { WriteAll(CostFile(folder(), Key()), bytes); }
  std::string folder() const { return folder_.path() / "moestro"; }
  TempFolder folder_;
};

TEST_F(CostCacheTest, WhatWasKeptIsFoundAndTheFolderIsMade) {
  EXPECT_FALSE(KeptCosts(folder(), Key()));
  KeepCosts(folder(), Key(), Costs());
  const auto kept = KeptCosts(folder(), Key());
  ASSERT_TRUE(kept);
  EXPECT_NEAR(kept->host.per_byte, 5e-11, 1e-16);
  EXPECT_NEAR(kept->devices.at(0).launch, 30e-6, 1e-11);
  EXPECT_DOUBLE_EQ(kept->devices.at(0).copy_beside, 1.5);
  // A file like any other that --latency-model takes.
  EXPECT_TRUE(ReadLatency(CostFile(folder(), Key())));
}

TEST_F(CostCacheTest, TheDiskIsNotKept) {
  LatencyModel costs = Costs();
  costs.disk.per_byte = 1e-9;
  KeepCosts(folder(), Key(), costs);
  EXPECT_EQ(KeptCosts(folder(), Key())->disk, Cost{});
}

TEST_F(CostCacheTest, EveryPartOfTheKeyCounts) {
  KeepCosts(folder(), Key(), Costs());
  const std::vector<std::function<void(CostKey&)>> changes = {
      [](CostKey& k) { k.cpu = "a processor, 8 threads"; },
      [](CostKey& k) { k.kernel = "avx512"; },
      [](CostKey& k) { k.device.name = "Vulkan1"; },
      [](CostKey& k) { k.device.description = "a GPU (driver 2)"; },
      [](CostKey& k) { k.device.backend = "CUDA"; },
      [](CostKey& k) { k.device.memory_total = 16ULL << 30; },
      [](CostKey& k) { k.pinned_by = ""; },
      [](CostKey& k) { k.expert.types[2] = 12; },
      [](CostKey& k) { k.expert.n_embd = 4096; },
      [](CostKey& k) { k.expert.n_ff = 1024; }};
  for (size_t i = 0; i < changes.size(); ++i) {
    CostKey other = Key();
    changes[i](other);
    EXPECT_FALSE(KeptCosts(folder(), other)) << i;
  }
  // What is in use at the moment says nothing of speed.
  CostKey busy = Key();
  busy.device.memory_free = 0;
  EXPECT_TRUE(KeptCosts(folder(), busy));
}

TEST_F(CostCacheTest, OldOnesGiveWay) {
  KeepCosts(folder(), Key(), Costs());
  LatencyModel slower = Costs();
  slower.host_beside = 2.0;
  KeepCosts(folder(), Key(), slower);
  EXPECT_DOUBLE_EQ(KeptCosts(folder(), Key())->host_beside, 2.0);
}

TEST_F(CostCacheTest, DamagedAndForeignFilesAreAsNone) {
  KeepCosts(folder(), Key(), Costs());
  const std::string path = CostFile(folder(), Key());
  const std::string whole = ReadAll(path);
  for (const size_t length : {size_t{0}, size_t{1}, whole.size() / 2, whole.size() - 3}) {
    Put(whole.substr(0, length));
    EXPECT_FALSE(KeptCosts(folder(), Key())) << length;
  }
  Put("no JSON at all");
  EXPECT_FALSE(KeptCosts(folder(), Key()));
  // Of another key, under this one's name.
  CostKey other = Key();
  other.cpu = "another";
  KeepCosts(folder(), other, Costs());
  fs::copy_file(CostFile(folder(), other), path, fs::copy_options::overwrite_existing);
  EXPECT_FALSE(KeptCosts(folder(), Key()));
  // They are replaced.
  KeepCosts(folder(), Key(), Costs());
  EXPECT_TRUE(KeptCosts(folder(), Key()));
}

TEST_F(CostCacheTest, WithoutAFolderNothingIsKept) {
  KeepCosts("", Key(), Costs());
  EXPECT_FALSE(KeptCosts("", Key()));
  const std::string no_folder = folder_.File("file");
  std::ofstream(no_folder) << "not a folder";
  KeepCosts(no_folder, Key(), Costs());
  EXPECT_FALSE(KeptCosts(no_folder, Key()));
  ForgetCosts(no_folder, Key().device);
}

TEST_F(CostCacheTest, ADeviceIsForgottenInAllItsForms) {
  CostKey form = Key();
  form.expert.n_ff = 512;
  CostKey device = Key();
  device.device.name = "Vulkan1";
  for (const CostKey& key : {Key(), form, device}) KeepCosts(folder(), key, Costs());
  ForgetCosts(folder(), Key().device);
  EXPECT_FALSE(KeptCosts(folder(), Key()));
  EXPECT_FALSE(KeptCosts(folder(), form));
  EXPECT_TRUE(KeptCosts(folder(), device));
}

}  // namespace
}  // namespace moestro
