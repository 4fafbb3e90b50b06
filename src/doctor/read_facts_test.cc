// SPDX-License-Identifier: MIT
#include "doctor/read_facts.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "base/number.h"
#include "doctor/diagnose.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

namespace fs = std::filesystem;

// A machine made of files.
class ReadFacts : public ::testing::Test {
 protected:
  void Put(const std::string& name, const std::string& text) {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }
  SystemFacts Read() const {
    SystemFacts facts;
    ReadSystemFacts(folder_.path().string(), facts);
    return facts;
  }

  TempFolder folder_;
};

TEST_F(ReadFacts, NothingThereIsNothingKnown) {
  const SystemFacts facts = Read();
  EXPECT_EQ(facts.processor.online, 0U);
  EXPECT_EQ(facts.memory.machine, 0U);
  EXPECT_EQ(facts.memory.lockable, std::nullopt);
  EXPECT_TRUE(facts.graphics.nodes.empty());
  EXPECT_LT(WorstOf(Diagnose(facts)), Verdict::kBad);
}

TEST_F(ReadFacts, Processors) {
  Put("sys/devices/system/cpu/online", "0-7\n");
  Put("proc/self/status", "Name:\tx\nSeccomp:\t2\nCpus_allowed_list:\t0-3\n");
  Put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
  Put("sys/devices/system/cpu/cpu0/cpufreq/scaling_driver", "intel_pstate\n");
  Put("sys/devices/system/cpu/cpu0/cpufreq/energy_performance_preference", "power\n");
  Put("proc/cpuinfo", "processor: 0\nflags\t\t: fpu avx avx2\n");
  Put("proc/self/cgroup", "0::/job\n");
  Put("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  const SystemFacts facts = Read();
  EXPECT_EQ(facts.processor.online, 8U);
  EXPECT_EQ(facts.processor.allowed, 4U);
  EXPECT_DOUBLE_EQ(facts.processor.quota, 1.5);
  EXPECT_EQ(facts.processor.governor, "powersave");
  EXPECT_EQ(facts.processor.governor_driver, "intel_pstate");
  EXPECT_EQ(facts.processor.energy_preference, "power");
  EXPECT_TRUE(facts.processor.has_avx2);
  EXPECT_TRUE(facts.sandbox.has_filter);
}

// A board with four little and two big cores, hot and on a weak supply.
TEST_F(ReadFacts, Boards) {
  Put("proc/self/status", "Cpus_allowed_list:\t0-5\n");
  for (int cpu = 0; cpu < 6; ++cpu) {
    Put("sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/cpu_capacity",
        cpu < 4 ? "400\n" : "1024\n");
  }
  Put("sys/class/thermal/cooling_device0/type", "pwm-fan\n");
  Put("sys/class/thermal/cooling_device0/cur_state", "3\n");
  Put("sys/class/thermal/cooling_device1/type", "cpufreq-cpu4\n");
  Put("sys/class/thermal/cooling_device1/cur_state", "0\n");
  Put("sys/class/thermal/thermal_zone0/temp", "78500\n");
  Put("sys/class/thermal/thermal_zone0/trip_point_0_type", "active\n");
  Put("sys/class/thermal/thermal_zone0/trip_point_0_temp", "50000\n");
  Put("sys/class/thermal/thermal_zone0/trip_point_1_type", "passive\n");
  Put("sys/class/thermal/thermal_zone0/trip_point_1_temp", "80000\n");
  ProcessorFacts processor = Read().processor;
  EXPECT_EQ(processor.fast, 2U);
  EXPECT_TRUE(processor.slowed_by.empty());
  EXPECT_EQ(processor.hottest, 1.5);
  EXPECT_FALSE(processor.has_low_voltage);
  Put("sys/class/thermal/cooling_device1/cur_state", "2\n");
  Put("sys/class/hwmon/hwmon2/name", "rpi_volt\n");
  Put("sys/class/hwmon/hwmon2/in0_lcrit_alarm", "1\n");
  processor = Read().processor;
  EXPECT_EQ(processor.slowed_by, std::vector<std::string>{"cpufreq-cpu4"});
  EXPECT_TRUE(processor.has_low_voltage);
}

TEST_F(ReadFacts, SwapsAndPromises) {
  Put("proc/swaps",
      "Filename  Type  Size  Used  Priority\n/dev/zram0 partition 1 0 100\n"
      "/dev/mmcblk0p3\tpartition\t1\t0\t-2\n");
  Put("proc/sys/vm/overcommit_memory", "2\n");
  Put("proc/meminfo", "MemTotal: 4 kB\nCommitLimit: 3 kB\nCommitted_AS: 1 kB\n");
  const MemoryFacts memory = Read().memory;
  EXPECT_EQ(memory.swaps, (std::vector<std::string>{"/dev/zram0", "/dev/mmcblk0p3"}));
  EXPECT_EQ(memory.promised, 2 * kKiB);
}

TEST_F(ReadFacts, Memory) {
  Put("proc/meminfo",
      "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\nSwapTotal: 2097152 kB\nSwapFree: 1048576 "
      "kB\nHugePages_Free: 512\nHugepagesize: 2048 kB\n");
  Put("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  Put("proc/self/limits", "Limit  Soft\nMax locked memory         8388608    8388608   bytes\n");
  Put("proc/self/cgroup", "0::/job\n");
  Put("sys/fs/cgroup/job/memory.max", std::to_string(4 * kGiB));
  Put("sys/fs/cgroup/job/memory.high", std::to_string(2 * kGiB));
  Put("sys/fs/cgroup/job/memory.current", std::to_string(kGiB));
  const MemoryFacts memory = Read().memory;
  EXPECT_EQ(memory.machine, 16 * kGiB);
  EXPECT_EQ(memory.machine_free, 8 * kGiB);
  EXPECT_EQ(memory.here_free, 3 * kGiB);
  EXPECT_EQ(memory.until_slowed, 1 * kGiB);
  EXPECT_EQ(memory.swap_total, 2 * kGiB);
  EXPECT_EQ(memory.swap_free, 1 * kGiB);
  EXPECT_EQ(memory.reserved_free, 1 * kGiB);
  EXPECT_EQ(memory.transparent_pages, "never");
  EXPECT_EQ(memory.lockable, 8 * kMiB);
  Put("proc/self/limits", "Max locked memory         unlimited  unlimited bytes\n");
  EXPECT_EQ(Read().memory.lockable, UINT64_MAX);
}

TEST_F(ReadFacts, OldGroupsLimitMemoryToo) {
  Put("proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
  Put("proc/self/cgroup", "4:memory:/job\n");
  Put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(4 * kGiB));
  Put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", std::to_string(kGiB));
  EXPECT_EQ(Read().memory.here_free, 3 * kGiB);
}

TEST_F(ReadFacts, Containers) {
  EXPECT_EQ(Read().sandbox.container, "");
  Put("run/.containerenv", "");
  EXPECT_EQ(Read().sandbox.container, "podman");
  Put(".dockerenv", "");
  EXPECT_EQ(Read().sandbox.container, "docker");
  Put("run/systemd/container", "lxc\n");
  EXPECT_EQ(Read().sandbox.container, "lxc");
  Put("proc/sys/kernel/io_uring_disabled", "2\n");
  EXPECT_EQ(Read().ring.switched_off, 2);
  Put("proc/sys/kernel/io_uring_disabled", "many\n");
  EXPECT_EQ(Read().ring.switched_off, std::nullopt);
}

TEST_F(ReadFacts, Graphics) {
  Put("dev/dri/renderD128", "");
  Put("dev/dri/card0", "");
  Put("dev/kfd", "");
  const std::string pci = "sys/bus/pci/devices/";
  Put(pci + "0000:01:00.0/class", "0x030000\n");
  Put(pci + "0000:01:00.0/vendor", "0x1002\n");
  Put(pci + "0000:02:00.0/class", "0x030200\n");
  Put(pci + "0000:02:00.0/vendor", "0x10de\n");
  Put(pci + "0000:02:00.0/driver/x", "");
  Put(pci + "0000:03:00.0/class", "0x030000\n");  // of a virtual machine
  Put(pci + "0000:03:00.0/vendor", "0x1234\n");
  Put(pci + "0000:04:00.0/class", "0x020000\n");
  Put(pci + "0000:04:00.0/vendor", "0x8086\n");
  Put("usr/share/vulkan/icd.d/lvp_icd.json", "{}");
  Put("usr/share/vulkan/icd.d/radeon_icd.json", "{}");
  Put("etc/vulkan/icd.d/nvidia_icd.json", "{}");
  Put("etc/vulkan/icd.d/README", "");
  const GraphicsFacts facts = Read().graphics;
  ASSERT_EQ(facts.nodes.size(), 2U);
  EXPECT_EQ(facts.nodes[0].path, "/dev/dri/renderD128");
  EXPECT_TRUE(facts.nodes[0].is_usable);
  EXPECT_EQ(facts.nodes[1].path, "/dev/kfd");
  EXPECT_EQ(facts.driverless, std::vector<std::string>{"0000:01:00.0"});
  EXPECT_EQ(facts.vulkan_drivers, 2U);
}

// Files as amdgpu, xe, i915 and NVIDIA's driver have them.
TEST_F(ReadFacts, CardsThatHideMemoryOrThrottle) {
  const auto put_card = [&](const std::string& address, const std::string& vendor) {
    const std::string folder = "sys/bus/pci/devices/" + address + "/";
    Put(folder + "class", "0x030000\n");
    Put(folder + "vendor", vendor + "\n");
    Put(folder + "driver/x", "");
    return folder;
  };
  const std::string amd = put_card("0000:03:00.0", "0x1002");
  Put(amd + "mem_info_vram_total", "17163091968\n");
  Put(amd + "mem_info_vis_vram_total", "268435456\n");
  Put(amd + "power_dpm_force_performance_level", "low\n");
  Put(amd + "hwmon/hwmon4/temp1_input", "55000\n");
  Put(amd + "hwmon/hwmon4/temp1_crit", "100000\n");
  Put(amd + "hwmon/hwmon4/temp2_input", "109000\n");
  Put(amd + "hwmon/hwmon4/temp2_crit", "110000\n");
  Put(amd + "hwmon/hwmon4/power1_cap", "150000000\n");
  Put(amd + "hwmon/hwmon4/power1_cap_default", "263000000\n");
  const std::string xe = put_card("0000:04:00.0", "0x8086");
  Put(xe + "tile0/physical_vram_size_bytes", "0x400000000\n");
  Put(xe + "tile0/gt0/freq0/throttle/status", "1\n");
  Put(xe + "tile0/gt0/freq0/throttle/reason_thermal", "1\n");
  Put(xe + "tile0/gt1/freq0/throttle/reason_thermal", "1\n");
  Put(xe + "tile0/gt0/freq0/throttle/reason_pl1", "0\n");
  const std::string i915 = put_card("0000:05:00.0", "0x8086");
  Put(i915 + "drm/card1/gt/gt0/throttle_reason_status", "1\n");
  Put(i915 + "drm/card1/gt/gt0/throttle_reason_pl2", "1\n");
  const std::string nvidia = put_card("0000:06:00.0", "0x10de");
  Put(nvidia + "resource",
      "0x00000000f6000000 0x00000000f6ffffff 0x0000000000040200\n"
      "0x00000000e0000000 0x00000000efffffff 0x000000000014220c\n"
      "0x0000000000000000 0x0000000000000000 0x0000000000000000\n");
  Put("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module\n");
  Put("usr/share/vulkan/icd.d/intel_icd.json", "{}");

  const GraphicsFacts facts = Read().graphics;
  ASSERT_EQ(facts.cards.size(), 4U);
  EXPECT_EQ(facts.cards[0].memory, 17163091968U);
  EXPECT_EQ(facts.cards[0].visible, 256 * kMiB);
  EXPECT_EQ(facts.cards[0].level, "low");
  EXPECT_EQ(facts.cards[0].hottest, 1.0);
  EXPECT_EQ(facts.cards[0].power_limit, 150'000'000U);
  EXPECT_EQ(facts.cards[1].memory, 16 * kGiB);
  EXPECT_EQ(facts.cards[1].slowed_by, std::vector<std::string>{"thermal"});
  EXPECT_EQ(facts.cards[2].slowed_by, std::vector<std::string>{"pl2"});
  EXPECT_TRUE(facts.cards[3].is_nvidia);
  EXPECT_EQ(facts.cards[3].visible, 256 * kMiB);
  EXPECT_TRUE(facts.has_nvidia_driver);
  EXPECT_FALSE(facts.has_nvidia_vulkan);
  Put("usr/local/share/vulkan/icd.d/nvidia_icd.x86_64.json", "{}");
  EXPECT_TRUE(Read().graphics.has_nvidia_vulkan);
}

// Whatever lies where the kernel's files should.
TEST_F(ReadFacts, HugeAndBinaryFilesAreNothing) {
  const std::vector<std::string> names = {
      "proc/self/status",
      "proc/self/limits",
      "proc/self/cgroup",
      "proc/meminfo",
      "proc/cpuinfo",
      "sys/devices/system/cpu/online",
      "sys/devices/system/node/online",
      "sys/devices/system/node/has_memory",
      "sys/kernel/mm/transparent_hugepage/enabled",
      "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
      "proc/sys/kernel/io_uring_disabled",
      "run/systemd/container",
      "sys/bus/pci/devices/x/class",
      "sys/bus/pci/devices/y/resource",
      "sys/bus/pci/devices/y/mem_info_vram_total",
      "sys/bus/pci/devices/y/hwmon/hwmon0/temp1_crit",
      "sys/bus/pci/devices/y/hwmon/hwmon0/temp1_input",
      "sys/bus/pci/devices/y/hwmon/hwmon0/power1_cap",
      "sys/bus/pci/devices/y/tile0/physical_vram_size_bytes",
      "sys/bus/pci/devices/y/tile0/gt0/freq0/throttle/reason_x",
      "sys/bus/pci/devices/y/drm/card0/gt/gt0/throttle_reason_x"};
  Put("sys/bus/pci/devices/y/class", "0x030000\n");
  Put("sys/bus/pci/devices/y/vendor", "0x1002\n");
  Put("sys/bus/pci/devices/y/driver/x", "");
  std::mt19937 random(11);
  for (int round = 0; round < 8; ++round) {
    for (const std::string& name : names) {
      std::string bytes(random() % 200'000, '9');
      if (round % 2 == 0) {
        for (char& c : bytes) c = static_cast<char>(random());
      }
      if (name == "proc/meminfo") bytes = "MemTotal: " + bytes + "\nHugePages_Free: 999999999999";
      Put(name, bytes);
    }
    const SystemFacts facts = Read();
    EXPECT_LE(facts.memory.reserved_free, facts.memory.machine);
    EXPECT_LT(WorstOf(Diagnose(facts)), Verdict::kBad);
  }
}

TEST_F(ReadFacts, FoldersInPlaceOfFilesAreNothing) {
  for (const char* name : {"proc/self/status", "proc/meminfo", "proc/self/cgroup",
                           "sys/devices/system/cpu/online", "run/systemd/container"}) {
    fs::create_directories(folder_.path() / name);
  }
  EXPECT_EQ(Read().memory.machine, 0U);
}

TEST(ReadFactsOfThisMachine, AreThere) {
  SystemFacts facts;
  ReadSystemFacts("", facts);
  ReadFolderFacts("/no/folder/of-a-hub", facts);
  EXPECT_GT(facts.processor.online, 0U);
  EXPECT_GT(facts.processor.allowed, 0U);
  EXPECT_GT(facts.memory.machine, 0U);
  ASSERT_EQ(facts.folders.size(), 2U);
  EXPECT_EQ(facts.folders[1].path, "/no/folder/of-a-hub");
}

TEST(ReadFolderFacts, AFileInAFoldersPlaceTakesNoModels) {
  const TempFolder folder;
  const std::string file = (folder.path() / "hub").string();
  std::ofstream(file) << "no folder";
  SystemFacts facts;
  ReadFolderFacts(file, facts);
  EXPECT_FALSE(facts.folders.back().is_writable);
  ReadFolderFacts((folder.path() / "other").string(), facts);
  EXPECT_TRUE(facts.folders.back().is_writable);
}

TEST(RingStates, OfErrors) {
  EXPECT_EQ(RingStateOf(0), RingState::kWorks);
  EXPECT_EQ(RingStateOf(EPERM), RingState::kForbidden);
  EXPECT_EQ(RingStateOf(ENOSYS), RingState::kMissing);
  EXPECT_EQ(RingStateOf(ENOMEM), RingState::kFails);
}

TEST(VersionInName, IsWhatFollowsTheEnding) {
  EXPECT_EQ(VersionInName("/usr/lib/libllama.so.0.7.0"), "0.7.0");
  EXPECT_EQ(VersionInName("/usr/lib/libllama.so"), "");
  EXPECT_EQ(VersionInName(""), "");
}

TEST(ReadLibraryFacts, OfThisMachine) {
  SystemFacts facts;
  ReadLibraryFacts(facts);
  EXPECT_TRUE(facts.ggml.has_cpu);
  ASSERT_EQ(facts.ggml.libraries.size(), 2U);
  EXPECT_EQ(facts.ggml.libraries[0].running, facts.ggml.libraries[0].built);
  EXPECT_EQ(facts.ring.error.empty(), facts.ring.state == RingState::kWorks);
}

}  // namespace
}  // namespace moestro
