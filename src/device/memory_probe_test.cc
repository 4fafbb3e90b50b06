// SPDX-License-Identifier: MIT
#include "device/memory_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "base/bytes.h"
#include "device/cpu_device.h"

namespace moestro {
namespace {

TEST(ProbeReadBandwidth, IsPositiveAndShort) {
  auto device = CpuDevice::Open(2);
  ASSERT_TRUE(device.has_value()) << device.error().message;
  auto team = Team::Create(*device);
  ASSERT_TRUE(team.has_value());
  for (const size_t size : {size_t{1}, size_t{100}, size_t{32 * kMiB}}) {
    const std::vector<std::byte> memory(size);
    const auto start = std::chrono::steady_clock::now();
    const auto bandwidth = ProbeReadBandwidth(*team, memory);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    ASSERT_TRUE(bandwidth) << bandwidth.error().message;
    EXPECT_GT(*bandwidth, 0.0);
    EXPECT_LT(took.count(), 5.0);  // 0.2, on a machine with nothing else to do
  }
}

TEST(ProbeReadBandwidth, RefusesNothing) {
  auto device = CpuDevice::Open(1);
  ASSERT_TRUE(device.has_value());
  auto team = Team::Create(*device);
  ASSERT_TRUE(team.has_value());
  const auto bandwidth = ProbeReadBandwidth(*team, {});
  ASSERT_FALSE(bandwidth);
  EXPECT_EQ(bandwidth.error().code, Errc::kInvalidRequest);
}

}  // namespace
}  // namespace moestro
