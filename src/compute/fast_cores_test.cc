// SPDX-License-Identifier: MIT
#include "compute/fast_cores.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <vector>

#include "compute/cpu_device.h"
#include "tests/support/numa_machine_testing.h"

namespace moestro {
namespace {

using Cpus = std::vector<uint32_t>;

// A team of two threads on a made-up machine of four little CPUs and some big ones.
class FastCoresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = CpuDevice::Open(2);
    ASSERT_TRUE(device);
    device_ = std::make_unique<CpuDevice>(*std::move(device));
    auto team = Team::Create(*device_);
    ASSERT_TRUE(team);
    team_ = std::make_unique<Team>(*std::move(team));
    machine_->kinds = {.all = {0, 1, 2, 3, 4, 5}, .fast = {4, 5}};
  }
  std::unique_ptr<FastCores> Begin() {
    auto part = FastCores::Begin(machine_, *team_);
    EXPECT_TRUE(part);
    return part ? *std::move(part) : nullptr;
  }
  void ExpectAllOn(const Cpus& cpus) const {
    const auto threads = machine_->threads();
    EXPECT_EQ(threads.size(), 2U);
    for (const NotedNumaMachine::Thread& thread : threads) EXPECT_EQ(thread.cpus, cpus);
  }

  std::shared_ptr<NotedNumaMachine> machine_ = std::make_shared<NotedNumaMachine>(1);
  std::unique_ptr<CpuDevice> device_;
  std::unique_ptr<Team> team_;
};

TEST_F(FastCoresTest, KeepTheTeamWhileTheyLive) {
  {
    const auto part = Begin();
    ASSERT_NE(part, nullptr);
    ExpectAllOn({4, 5});
  }
  ExpectAllOn({0, 1, 2, 3, 4, 5});
}

TEST_F(FastCoresTest, AreNoneWhereAllAreAlike) {
  machine_->kinds.fast = {};
  EXPECT_EQ(Begin(), nullptr);
  EXPECT_EQ(machine_->calls, 0);
}

// More threads than fast CPUs: the user asked for the little ones, too.
TEST_F(FastCoresTest, DoNotTakeMoreThreadsThanTheyAre) {
  machine_->kinds.fast = {5};
  EXPECT_EQ(Begin(), nullptr);
  EXPECT_EQ(machine_->calls, 0);
}

TEST_F(FastCoresTest, ThatTheKernelRefusesAreLeft) {
  machine_->fault.run_on = EPERM;
  EXPECT_EQ(Begin(), nullptr);
}

}  // namespace
}  // namespace moestro
