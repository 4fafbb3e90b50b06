// SPDX-License-Identifier: MIT
#include "device/rate_probe.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "device/cpu_device.h"

namespace moestro {
namespace {

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
