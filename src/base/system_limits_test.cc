// SPDX-License-Identifier: MIT
#include "base/system_limits.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/number.h"
#include "tests/support/sanitized_testing.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

// A /proc and a /sys made of files.
class SystemLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    Put("proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 8388608 kB\n");
  }
  void Put(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void PutMemoryV2(const std::string& group, const std::string& limit, uint64_t used) {
    Put("sys/fs/cgroup/" + group + "/memory.max", limit + "\n");
    Put("sys/fs/cgroup/" + group + "/memory.current", std::to_string(used) + "\n");
  }
  std::string root() const { return folder_.path().string(); }

  TempFolder folder_;
};

TEST_F(SystemLimits, WithoutGroupsTheMachineDecides) {
  EXPECT_EQ(AvailableMemory(root()), 8 * kGiB);
  EXPECT_EQ(ProcessorQuota(root()), kNoQuota);
  EXPECT_EQ(ResidentMemory(root()), 0U);
}

// vm.overcommit_memory=2: memory that is free but not promised cannot be had.
TEST_F(SystemLimits, AKernelMayPromiseLessThanIsFree) {
  EXPECT_EQ(PromisedMemory(root()), std::nullopt);
  Put("proc/meminfo",
      "MemAvailable: 8388608 kB\nCommitLimit: 4194304 kB\nCommitted_AS: 3145728 kB\n");
  for (const char* promises_more : {"0", "1", "", "x"}) {
    Put("proc/sys/vm/overcommit_memory", promises_more);
    EXPECT_EQ(PromisedMemory(root()), std::nullopt);
    EXPECT_EQ(AvailableMemory(root()), 8 * kGiB);
  }
  Put("proc/sys/vm/overcommit_memory", "2\n");
  EXPECT_EQ(PromisedMemory(root()), 1 * kGiB);
  EXPECT_EQ(AvailableMemory(root()), 1 * kGiB);
  Put("proc/meminfo", "MemAvailable: 8388608 kB\nCommitLimit: 1 kB\nCommitted_AS: 2 kB\n");
  EXPECT_EQ(AvailableMemory(root()), 0U);
}

TEST_F(SystemLimits, WhatTheProcessTookIsInItsStatus) {
  Put("proc/self/status", "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\n");
  EXPECT_EQ(ResidentMemory(root()), 1 * kMiB);
  EXPECT_EQ(PeakResidentMemory(root()), 2 * kMiB);
}

TEST_F(SystemLimits, ALimitIsWhatTheGroupMayTakeHoweverMuchIsTaken) {
  EXPECT_EQ(MemoryLimit(root()), std::nullopt);
  Put("proc/self/cgroup", "0::/group/job\n");
  PutMemoryV2("group/job", "max", 100);
  EXPECT_EQ(MemoryLimit(root()), std::nullopt);
  PutMemoryV2("group", std::to_string(4 * kGiB), 1 * kGiB);
  EXPECT_EQ(MemoryLimit(root()), 4 * kGiB);
  Put("proc/self/cgroup", "4:memory:/old\n0::/group/job\n");
  Put("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(MemoryLimit(root()), 4 * kGiB);
  Put("sys/fs/cgroup/memory/old/memory.limit_in_bytes", std::to_string(2 * kGiB) + "\n");
  EXPECT_EQ(MemoryLimit(root()), 2 * kGiB);
}

TEST_F(SystemLimits, TheSmallestMemoryLimitOnTheWayUpCounts) {
  Put("proc/self/cgroup", "0::/group/job\n");
  PutMemoryV2("group/job", "max", 100);
  PutMemoryV2("group", std::to_string(4 * kGiB), 1 * kGiB);
  EXPECT_EQ(AvailableMemory(root()), 3 * kGiB);
  PutMemoryV2("group/job", std::to_string(2 * kGiB), 1 * kGiB);
  EXPECT_EQ(AvailableMemory(root()), 1 * kGiB);
  PutMemoryV2("group/job", std::to_string(1 * kGiB), 2 * kGiB);  // the limit was lowered
  EXPECT_EQ(AvailableMemory(root()), 0U);
}

TEST_F(SystemLimits, AGroupMaySlowItsProcessesDownBeforeItsLimit) {
  EXPECT_EQ(MemoryUntilSlowed(root()), UINT64_MAX);
  Put("proc/self/cgroup", "0::/group/job\n");
  PutMemoryV2("group/job", "max", 1 * kGiB);
  Put("sys/fs/cgroup/group/job/memory.high", "max\n");
  EXPECT_EQ(MemoryUntilSlowed(root()), UINT64_MAX);
  Put("sys/fs/cgroup/group/job/memory.high", std::to_string(3 * kGiB));
  EXPECT_EQ(MemoryUntilSlowed(root()), 2 * kGiB);
  EXPECT_EQ(UnhinderedMemory(root()), 2 * kGiB);
}

TEST_F(SystemLimits, PageCacheThatTheKernelDropsIsNotInUse) {
  Put("proc/self/cgroup", "4:memory:/job\n3:cpuset:/\n0::/\n");
  Put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(4 * kGiB));
  Put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(3 * kGiB));
  EXPECT_EQ(AvailableMemory(root()), 1 * kGiB);
  Put("sys/fs/cgroup/memory/job/memory.stat",
      "inactive_file 4096\ntotal_inactive_file " + std::to_string(1 * kGiB) + "\n");
  EXPECT_EQ(AvailableMemory(root()), 2 * kGiB);
}

TEST_F(SystemLimits, TheSmallestProcessorQuotaOnTheWayUpCounts) {
  Put("proc/self/cgroup", "0::/group/job\n");
  Put("sys/fs/cgroup/cpu.max", "max 100000\n");
  Put("sys/fs/cgroup/group/job/cpu.max", "150000 100000\n");
  EXPECT_DOUBLE_EQ(ProcessorQuota(root()), 1.5);
  Put("sys/fs/cgroup/group/cpu.max", "100000 200000\n");
  EXPECT_DOUBLE_EQ(ProcessorQuota(root()), 0.5);
}

TEST_F(SystemLimits, OldGroupsHaveQuotasToo) {
  Put("proc/self/cgroup", "2:cpuset:/other\n1:cpu,cpuacct:/job\n");
  Put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  Put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(ProcessorQuota(root()), kNoQuota);
  Put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "300000\n");
  EXPECT_DOUBLE_EQ(ProcessorQuota(root()), 3.0);
}

// A container sees its own group as the root of the tree, under the host's name for it.
TEST_F(SystemLimits, GroupsThatAreNotThereHoldNoLimit) {
  Put("proc/self/cgroup", "0::/../host/name\n");
  Put("sys/fs/cgroup/cpu.max", "200000 100000\n");
  PutMemoryV2("", std::to_string(2 * kGiB), 0);
  EXPECT_DOUBLE_EQ(ProcessorQuota(root()), 2.0);
  EXPECT_EQ(AvailableMemory(root()), 2 * kGiB);
}

TEST_F(SystemLimits, NonsenseIsNoLimit) {
  Put("proc/self/cgroup", "nonsense\n0::/job\n::\n");
  Put("sys/fs/cgroup/job/cpu.max", "many\n");
  Put("sys/fs/cgroup/job/memory.max", "-\n");
  Put("sys/fs/cgroup/job/memory.current", "");
  EXPECT_EQ(ProcessorQuota(root()), kNoQuota);
  EXPECT_EQ(AvailableMemory(root()), 8 * kGiB);
}

TEST(SystemLimitsOfThisMachine, AreThere) {
  EXPECT_GT(AvailableMemory(), 0U);
  EXPECT_GT(ResidentMemory(), 0U);
  EXPECT_GE(PeakResidentMemory(), ResidentMemory() / 2);
  EXPECT_GT(ProcessorQuota(), 0.0);
}

// Without this call the C library would keep blocks no larger than one that was freed before.
TEST(SystemLimitsOfThisMachine, LargeBlocksAreReturnedAtOnce) {
  if constexpr (kIsSanitized) GTEST_SKIP() << "a sanitizer has its own allocator";
  ReturnLargeBlocksAtOnce();
  constexpr size_t kBytes = size_t{8} << 20U;
  std::vector<std::string> blocks;
  blocks.emplace_back(2 * kBytes, 'x');
  blocks.clear();
  for (int i = 0; i < 8; ++i) blocks.emplace_back(kBytes, 'x');
  const std::string last(kBytes, 'x');  // else the end of the heap would be cut off
  const uint64_t before = ResidentMemory();
  blocks.clear();
  EXPECT_LT(ResidentMemory() + 7 * kBytes, before);
  EXPECT_EQ(last.back(), 'x');
}

TEST(PhysicalCores, IsAtLeastOne) { EXPECT_GE(PhysicalCores(), 1U); }

// A machine of CPUs with a number each in a file of their folders.
class FastCpusTest : public ::testing::Test {
 protected:
  void Put(uint32_t cpu, const std::string& name, const std::string& text) {
    const std::filesystem::path path =
        root_.path() / ("sys/devices/system/cpu/cpu" + std::to_string(cpu)) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  std::vector<uint32_t> Fast(const std::vector<uint32_t>& allowed) const {
    return FastCpus(allowed, root_.path().string());
  }

  TempFolder root_;
};

// Four Cortex-A55 and four Cortex-A76, as in RK3588.
TEST_F(FastCpusTest, AreTheBigOnes) {
  for (uint32_t cpu = 0; cpu < 8; ++cpu) Put(cpu, "cpu_capacity", cpu < 4 ? "414" : "1024");
  EXPECT_EQ(Fast({0, 1, 2, 3, 4, 5, 6, 7}), (std::vector<uint32_t>{4, 5, 6, 7}));
  EXPECT_EQ(Fast({2, 3, 6}), std::vector<uint32_t>{6});
  EXPECT_TRUE(Fast({0, 1, 2, 3}).empty());  // a process that has only little ones
  EXPECT_TRUE(Fast({4, 5}).empty());
}

TEST_F(FastCpusTest, WithoutCapacitiesHaveTheHighestClocks) {
  for (uint32_t cpu = 0; cpu < 6; ++cpu) {
    Put(cpu, "cpufreq/cpuinfo_max_freq", cpu < 2 ? "2200000" : "1400000");
  }
  EXPECT_EQ(Fast({0, 1, 2, 3, 4, 5}), (std::vector<uint32_t>{0, 1}));
  // Capacities count where every CPU has one.
  for (uint32_t cpu = 0; cpu < 5; ++cpu) Put(cpu, "cpu_capacity", cpu < 2 ? "400" : "1024");
  EXPECT_EQ(Fast({0, 1, 2, 3, 4, 5}), (std::vector<uint32_t>{0, 1}));
  Put(5, "cpu_capacity", "1024");
  EXPECT_EQ(Fast({0, 1, 2, 3, 4, 5}), (std::vector<uint32_t>{2, 3, 4, 5}));
}

// Cores that differ in their clocks alone compute together.
TEST_F(FastCpusTest, AreAllWhereTheyDifferLittle) {
  for (uint32_t cpu = 0; cpu < 4; ++cpu) {
    Put(cpu, "cpufreq/cpuinfo_max_freq", cpu < 2 ? "5200000" : "3900000");
  }
  EXPECT_TRUE(Fast({0, 1, 2, 3}).empty());
}

TEST_F(FastCpusTest, AreNotKnownFromSenselessFiles) {
  EXPECT_TRUE(Fast({0, 1}).empty());
  EXPECT_TRUE(Fast({}).empty());
  for (const char* text : {"", "much", "0", "-5", "nan"}) {
    Put(0, "cpu_capacity", "1024");
    Put(1, "cpu_capacity", text);
    EXPECT_TRUE(Fast({0, 1}).empty()) << text;
  }
}

// The first CPU of this process is big, the others are little.
TEST_F(FastCpusTest, GiveTheNumberOfThreads) {
  const std::vector<uint32_t> allowed = AllowedCpus();
  ASSERT_FALSE(allowed.empty());
  for (const uint32_t cpu : allowed) {
    Put(cpu, "cpu_capacity", cpu == allowed.front() ? "1024" : "400");
  }
  EXPECT_EQ(PhysicalCores(root_.path().string()), 1U);
}

// The quota is that of the process's own group, not of the tree's root.
TEST(PhysicalCores, KeepsToTheQuotaOfItsGroup) {
  const TempFolder root;
  std::filesystem::create_directories(root.path() / "proc/self");
  std::filesystem::create_directories(root.path() / "sys/fs/cgroup/job");
  std::ofstream(root.path() / "proc/self/cgroup") << "0::/job\n";
  std::ofstream(root.path() / "sys/fs/cgroup/job/cpu.max") << "100000 100000\n";
  EXPECT_EQ(PhysicalCores(root.path().string()), 1U);
}

}  // namespace
}  // namespace moestro
