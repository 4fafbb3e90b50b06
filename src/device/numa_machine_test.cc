// SPDX-License-Identifier: MIT
// The kernel's calls on the machine of the test: calls that change nothing, and calls that fail.
#include "device/numa_machine.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <thread>
#include <vector>

#include "base/bytes.h"
#include "device/host_memory.h"

namespace moestro {
namespace {

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
