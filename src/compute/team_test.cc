// SPDX-License-Identifier: MIT
#include "compute/team.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "compute/cpu_device.h"

namespace moestro {
namespace {

TEST(Team, EveryThreadRunsOnceAndTheCallerIsThreadZero) {
  auto device = CpuDevice::Open(2);
  ASSERT_TRUE(device.has_value()) << device.error().message;
  auto team = Team::Create(*device);
  ASSERT_TRUE(team.has_value());
  const std::thread::id caller = std::this_thread::get_id();
  for (int round = 0; round < 3; ++round) {
    std::vector<std::atomic<int>> runs(2);
    std::atomic<bool> zero_is_caller{false};
    ASSERT_TRUE(team->Run([&](int thread, int n_threads) {
      EXPECT_EQ(n_threads, 2);
      runs[static_cast<size_t>(thread)].fetch_add(1);
      if (thread == 0) zero_is_caller = std::this_thread::get_id() == caller;
    }));
    EXPECT_EQ(runs[0].load(), 1);
    EXPECT_EQ(runs[1].load(), 1);
    EXPECT_TRUE(zero_is_caller.load());
  }
}

TEST(CpuDevice, RefusesMoreThreadsThanGgmlTakes) {
  EXPECT_TRUE(CpuDevice::Open(GGML_MAX_N_THREADS).has_value());
  const auto device = CpuDevice::Open(20000);
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code, Errc::kUsage);
  EXPECT_NE(device.error().message.find("20000 threads"), std::string::npos);
  EXPECT_NE(device.error().message.find("at most 512"), std::string::npos);
}

TEST(Team, WhatAThreadThrowsComesBackAsAnError) {
  auto device = CpuDevice::Open(3);
  ASSERT_TRUE(device) << device.error().message;
  auto team = Team::Create(*device);
  ASSERT_TRUE(team) << team.error().message;
  for (const int bad : {0, 2}) {
    std::atomic<int> others = 0;
    const Status ran = team->Run([&](int thread, int) {
      if (thread == bad) throw std::runtime_error("no room");
      ++others;
    });
    ASSERT_FALSE(ran);
    EXPECT_EQ(ran.error().code, Errc::kNoMemory);
    EXPECT_NE(ran.error().message.find("no room"), std::string::npos) << ran.error().message;
    EXPECT_EQ(others, 2);
    EXPECT_TRUE(team->Run([](int, int) {}));
  }
}

// Between the runs the caller works alone, for shorter and for longer than others spin.
TEST(Team, HeldThreadsRunWhatTheCallerGivesThem) {
  for (const uint32_t threads : {1U, 2U, 3U}) {
    auto device = CpuDevice::Open(threads);
    ASSERT_TRUE(device) << device.error().message;
    auto team = Team::Create(*device);
    ASSERT_TRUE(team) << team.error().message;
    for (int hold = 0; hold < 3; ++hold) {
      std::vector<std::atomic<int>> runs(threads);
      int bodies = 0;
      ASSERT_TRUE(team->Hold([&] {
        ++bodies;
        for (int round = 0; round < 100; ++round) {
          // Longer than a thread spins (30 us): it sleeps then.
          if (round % 25 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          EXPECT_TRUE(team->Run([&](int thread, int n_threads) {
            EXPECT_EQ(n_threads, static_cast<int>(threads));
            ++runs[static_cast<size_t>(thread)];
          }));
        }
        EXPECT_TRUE(team->Hold([&] { ++bodies; }));  // held already
      }));
      EXPECT_EQ(bodies, 2);
      for (const std::atomic<int>& n : runs) EXPECT_EQ(n, 100);
    }
    std::atomic<int> after{0};
    EXPECT_TRUE(team->Run([&](int, int) { ++after; }));
    EXPECT_EQ(after, static_cast<int>(threads));
  }
}

TEST(Team, WhatIsThrownWhileThreadsAreHeldEndsNoOtherThread) {
  auto device = CpuDevice::Open(3);
  ASSERT_TRUE(device) << device.error().message;
  auto team = Team::Create(*device);
  ASSERT_TRUE(team) << team.error().message;
  for (const int bad : {0, 2}) {
    std::atomic<int> others = 0;
    Status ran;
    EXPECT_TRUE(team->Hold([&] {
      ran = team->Run([&](int thread, int) {
        if (thread == bad) throw std::runtime_error("no room");
        ++others;
      });
      EXPECT_TRUE(team->Run([](int, int) {}));
    }));
    ASSERT_FALSE(ran);
    EXPECT_EQ(ran.error().code, Errc::kNoMemory);
    EXPECT_EQ(others, 2);
  }
  Status held;
  EXPECT_THROW(held = team->Hold([] { throw std::runtime_error("no room"); }), std::runtime_error);
  EXPECT_TRUE(team->Run([](int, int) {}));
}

}  // namespace
}  // namespace moestro
