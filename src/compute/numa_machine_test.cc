// SPDX-License-Identifier: MIT
// The kernel's calls on the machine of the test: calls that change nothing, and calls that fail.
#include "compute/numa_machine.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/number.h"
#include "compute/host_memory.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

using Numbers = std::vector<uint32_t>;

// A /proc and a /sys made of files: two nodes of two cores each.
class NumaTopologyTest : public ::testing::Test {
 protected:
  NumaTopologyTest() {
    Put("sys/devices/system/node/online", "0-1\n");
    Put("sys/devices/system/node/has_memory", "0-1\n");
    Put("sys/devices/system/node/node0/cpulist", "0-1\n");
    Put("sys/devices/system/node/node1/cpulist", "2-3\n");
    Put("sys/devices/system/cpu/online", "0-3\n");
    Put("proc/self/status", "Name:\tx\nMems_allowed:\t3\nMems_allowed_list:\t0-1\n");
  }
  void Put(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_.path() / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void Drop(const std::string& name) const { std::filesystem::remove(folder_.path() / name); }
  NumaTopology Read(const Numbers& allowed = {0, 1, 2, 3}) const {
    return ReadNumaTopology(folder_.path().string(), allowed);
  }

  TempFolder folder_;
};

TEST(ParseCpuList, TakesWhatTheKernelWrites) {
  EXPECT_EQ(ParseCpuList("0-3,8,10-11\n"), (Numbers{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(ParseCpuList("7"), Numbers{7});
  EXPECT_EQ(ParseCpuList("\n"), Numbers{});
  EXPECT_EQ(ParseCpuList(""), Numbers{});
}

TEST(ParseCpuList, RefusesEverythingElse) {
  for (const char* text : {"0-4294967295",
                           "0-18446744073709551615",
                           "65536",
                           "99999999999999999999",
                           "-1",
                           "3-1",
                           "1,",
                           ",1",
                           "1,,2",
                           "1-",
                           "1-2-3",
                           "2,1",
                           "1,1",
                           "0-3,2",
                           "0 1",
                           " 0",
                           "a",
                           "0-b",
                           "0\n1",
                           "0x1"}) {
    EXPECT_EQ(ParseCpuList(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseCpuList(std::string("0\0", 2)), std::nullopt);
}

TEST_F(NumaTopologyTest, NodesHaveTheirCpusAndMemory) {
  const NumaTopology found = Read();
  ASSERT_EQ(found.nodes.size(), 2U);
  EXPECT_TRUE(found.is_whole);
  EXPECT_EQ(found.nodes[0], (NumaNode{.id = 0, .cpus = {0, 1}, .cores = 2, .has_memory = true}));
  EXPECT_EQ(found.nodes[1], (NumaNode{.id = 1, .cpus = {2, 3}, .cores = 2, .has_memory = true}));
}

TEST_F(NumaTopologyTest, HyperThreadsOfACoreCountOnce) {
  Put("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1\n");
  Put("sys/devices/system/cpu/cpu1/topology/thread_siblings_list", "0-1\n");
  Put("sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "rubbish");
  EXPECT_EQ(Read().nodes[0].cores, 1U);
  EXPECT_EQ(Read().nodes[1].cores, 2U);
}

TEST_F(NumaTopologyTest, ACpusetTakesCpusAndMemoryAway) {
  const NumaTopology part = Read({1, 2, 3});
  EXPECT_FALSE(part.is_whole);
  EXPECT_EQ(part.nodes[0].cpus, Numbers{1});
  Put("proc/self/status", "Mems_allowed_list:\t1\n");
  EXPECT_FALSE(Read().nodes[0].has_memory);
  EXPECT_TRUE(Read().nodes[1].has_memory);
  Drop("proc/self/status");  // no Mems_allowed_list: all nodes are allowed
  EXPECT_TRUE(Read().nodes[0].has_memory);
}

TEST_F(NumaTopologyTest, ACpuThatIsOfflineIsMissedByNobody) {
  Put("sys/devices/system/cpu/online", "0-2\n");
  Put("sys/devices/system/node/node1/cpulist", "2\n");
  const NumaTopology found = Read({0, 1, 2});
  EXPECT_TRUE(found.is_whole);
  EXPECT_EQ(found.nodes[1].cpus, Numbers{2});
}

TEST_F(NumaTopologyTest, ANodeMayHaveMemoryAloneOrCpusAlone) {
  Put("sys/devices/system/node/online", "0-3\n");
  Put("sys/devices/system/node/has_memory", "0,2\n");
  Put("proc/self/status", "Mems_allowed_list:\t0-3\n");
  Put("sys/devices/system/node/node2/cpulist", "\n");
  Put("sys/devices/system/node/node3/cpulist", "");
  const NumaTopology found = Read();
  ASSERT_EQ(found.nodes.size(), 4U);
  EXPECT_FALSE(found.nodes[1].has_memory);
  EXPECT_EQ(found.nodes[2], (NumaNode{.id = 2, .cpus = {}, .cores = 0, .has_memory = true}));
  EXPECT_TRUE(found.is_whole);
}

TEST_F(NumaTopologyTest, WhatIsMissingOrNonsenseLeavesNoNodes) {
  const auto expect_none = [&](const std::string& name, const std::string& was) {
    for (const char* text : {"0-4294967295\n", "0-", "x", "1-0\n"}) {
      Put(name, text);
      EXPECT_EQ(Read(), NumaTopology{}) << name << " " << text;
    }
    Drop(name);
    EXPECT_EQ(Read(), NumaTopology{}) << name;
    Put(name, was);
    EXPECT_EQ(Read().nodes.size(), 2U) << name;
  };
  expect_none("sys/devices/system/node/online", "0-1\n");
  expect_none("sys/devices/system/node/has_memory", "0-1\n");
  expect_none("sys/devices/system/node/node1/cpulist", "2-3\n");
  Put("proc/self/status", "Mems_allowed_list:\tall\n");
  EXPECT_EQ(Read(), NumaTopology{});
}

TEST_F(NumaTopologyTest, ACpuOfTwoNodesIsNonsense) {
  Put("sys/devices/system/node/node1/cpulist", "1-3\n");
  EXPECT_EQ(Read(), NumaTopology{});
}

TEST_F(NumaTopologyTest, AFileWithoutAnEndIsCutOff) {
  std::string list = "0";
  for (int i = 1; i < 60000; ++i) list += "," + std::to_string(i);
  Put("sys/devices/system/node/node1/cpulist", list);
  EXPECT_EQ(Read(), NumaTopology{});
}

TEST_F(NumaTopologyTest, OldKernelsNameNormalMemory) {
  Drop("sys/devices/system/node/has_memory");
  Put("sys/devices/system/node/has_normal_memory", "1\n");
  EXPECT_FALSE(Read().nodes[0].has_memory);
  EXPECT_TRUE(Read().nodes[1].has_memory);
}

TEST_F(NumaTopologyTest, WithoutAListOfCpusTheMachineIsNotOurs) {
  Drop("sys/devices/system/cpu/online");
  EXPECT_FALSE(Read().is_whole);
  EXPECT_EQ(Read().nodes.size(), 2U);
}

// Runs in a thread of its own, so that no other test gets the changed settings.
void InAThread(auto&& work) { std::jthread(work).join(); }

TEST(KernelNumaMachine, AThreadRunsOnTheCpusItIsGiven) {
  InAThread([] {
    KernelNumaMachine machine;
    std::vector<uint32_t> cpus;
    for (const NumaNode& node : machine.topology().nodes) cpus.append_range(node.cpus);
    if (cpus.empty()) GTEST_SKIP() << "no nodes are known";
    const uint32_t one = cpus.front();
    EXPECT_EQ(machine.RunOn({&one, 1}), 0);
    std::vector<uint32_t> left;
    for (const NumaNode& node : machine.topology().nodes) left.append_range(node.cpus);
    EXPECT_EQ(left, std::vector<uint32_t>{one});
    EXPECT_FALSE(cpus.size() > 1 && machine.topology().is_whole);
    EXPECT_EQ(machine.RunOn(cpus), 0);
  });
}

TEST(KernelNumaMachine, SetsThatMeanNothingAreRefused) {
  InAThread([] {
    KernelNumaMachine machine;
    const uint32_t far = 1U << 20;
    EXPECT_EQ(machine.RunOn({&far, 1}), EINVAL);
    EXPECT_EQ(machine.RunOn({}), EINVAL);
    EXPECT_EQ(machine.TakePages(NewPages::kPreferred, {&far, 1}), EINVAL);
    const uint32_t missing = 1023;
    EXPECT_NE(machine.TakePages(NewPages::kInterleaved, {&missing, 1}), 0);
  });
}

TEST(KernelNumaMachine, PagesAreTakenAsAsked) {
  InAThread([] {
    KernelNumaMachine machine;
    if (machine.has_chosen_pages()) GTEST_SKIP() << "this process has a memory policy";
    const NumaTopology here = machine.topology();
    if (here.nodes.empty()) GTEST_SKIP() << "no nodes are known";
    const uint32_t node = here.nodes.front().id;
    const int error = machine.TakePages(NewPages::kInterleaved, {&node, 1});
    if (error == EPERM || error == ENOSYS) GTEST_SKIP() << "not allowed here";
    ASSERT_EQ(error, 0);
    EXPECT_TRUE(machine.has_chosen_pages());
    EXPECT_EQ(machine.TakePages(NewPages::kPreferred, {&node, 1}), 0);
    EXPECT_TRUE(machine.has_chosen_pages());
    EXPECT_EQ(machine.TakePages(NewPages::kUsual, {}), 0);
    EXPECT_FALSE(machine.has_chosen_pages());
  });
}

TEST(KernelNumaMachine, TouchedPagesKeepTheirBytes) {
  KernelNumaMachine machine;
  const auto memory = HostMemory::Allocate(16 * kMiB);
  ASSERT_TRUE(memory);
  memory->data()[5000] = std::byte{7};
  EXPECT_EQ(machine.KeepSmall(memory->bytes()), 0);
  EXPECT_EQ(machine.Touch(memory->bytes().first(8 * kMiB)), 0);
  EXPECT_EQ(memory->data()[5000], std::byte{7});
  EXPECT_EQ(memory->data()[8 * kMiB - 1], std::byte{0});
}

}  // namespace
}  // namespace moestro
