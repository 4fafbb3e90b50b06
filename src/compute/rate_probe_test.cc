// SPDX-License-Identifier: MIT
#include "compute/rate_probe.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/number.h"
#include "compute/cpu_device.h"

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

class RateProbeTest : public testing::Test {
 protected:
  Result<std::vector<KernelRate>> Rates(const std::vector<std::string>& types) {
    TRY(KernelProbe probe, KernelProbe::Create(*team_, types));
    for (int round = 0; round < 2; ++round) TRY_STATUS(probe.Round());
    return probe.rates();
  }

  void SetUp() override {
    auto device = CpuDevice::Open(2);
    ASSERT_TRUE(device) << device.error().message;
    device_.emplace(*std::move(device));
    auto team = Team::Create(*device_);
    ASSERT_TRUE(team) << team.error().message;
    team_.emplace(*std::move(team));
  }

  std::optional<CpuDevice> device_;
  std::optional<Team> team_;
};

// Tokens of a prompt share the reads of weights: more weights are multiplied per second than decode
// reads.
TEST_F(RateProbeTest, EveryTypeHasBothRates) {
  const std::vector<std::string> types{"f32",  "f16",    "bf16",    "q8_0",   "q4_0", "q4_K",
                                       "q6_K", "iq4_xs", "iq3_xxs", "iq2_xs", "mxfp4"};
  const auto rates = Rates(types);
  ASSERT_TRUE(rates) << rates.error().message;
  ASSERT_EQ(rates->size(), types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    EXPECT_EQ((*rates)[i].type, types[i]);
    EXPECT_GT((*rates)[i].decode, 0.0);
    EXPECT_GT((*rates)[i].prompt, 0.0);
  }
}

TEST_F(RateProbeTest, ThreadsTakeAMomentToComeTogether) {
  const auto barrier = ProbeBarrier(*team_);
  ASSERT_TRUE(barrier) << barrier.error().message;
  EXPECT_GT(*barrier, 0.0);
  EXPECT_LT(*barrier, 1.0);
}

TEST_F(RateProbeTest, AnUnknownTypeIsNamed) {
  const auto rates = Rates({"q9_Z"});
  ASSERT_FALSE(rates);
  EXPECT_NE(rates.error().message.find("q9_Z"), std::string::npos);
}

TEST_F(RateProbeTest, ATypeThatIsNotMultipliedIsLeftOut) {
  const auto rates = Rates({"i32", "q8_0"});
  ASSERT_TRUE(rates) << rates.error().message;
  ASSERT_EQ(rates->size(), 1U);
  EXPECT_EQ(rates->front().type, "q8_0");
}

}  // namespace
}  // namespace moestro
