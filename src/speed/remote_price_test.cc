// SPDX-License-Identifier: MIT
#include "speed/remote_price.h"

#include <gtest/gtest.h>

#include <string>

#include "base/number.h"
#include "speed/predict_speed.h"

namespace moestro {
namespace {

// Qwen3-30B-A3B's sizes in Q4_0, on a disk of 1 GB/s.
ModelNeeds PricedNeeds() {
  constexpr MoeShape kShape{.n_layer = 48, .n_expert = 128, .n_used = 8};
  constexpr uint64_t kExpertBytes = 2654208;
  const uint64_t token = kExpertBytes * kShape.n_used * kShape.n_layer;
  return {.family = "qwen3moe",
          .shape = kShape,
          .n_layer = 48,
          .dense = {{"q4_0", {.bytes = 900 * kMiB, .weights = 1600 * kMiB}}},
          .experts = {{"q4_0", {.bytes = token, .weights = token * 16 / 9}}},
          .expert_bytes = kExpertBytes,
          .all_experts = kExpertBytes * kShape.experts(),
          .row_bytes = 2048 * sizeof(float)};
}

class RemotePriceTest : public ::testing::Test {
 protected:
  RemotePrice Price(double share, const std::vector<uint64_t>& hosts, const Network& network) {
    const ModelNeeds needs = PricedNeeds();
    const MachineRates rates{.cpu = "some",
                             .threads = 2,
                             .memory = 16 * kGiB,
                             .disk = disk_,
                             .kernels = {{.type = "q4_0", .decode = 20e9, .prompt = 100e9}}};
    const auto predictor = SpeedPredictor::Create(needs.shape, needs.family, {}, rates);
    EXPECT_TRUE(predictor) << predictor.error().message;
    if (!predictor) return {};
    const uint64_t all = needs.shape.experts();
    const Fit fit{.ram = kGiB,
                  .slots = static_cast<uint64_t>(share * static_cast<double>(all)),
                  .experts = all};
    const auto price = predictor->PriceHosts(needs, fit, hosts, network);
    EXPECT_TRUE(price) << price.error().message;
    return price.value_or(RemotePrice());
  }
  double disk_ = 1e9;
};

TEST_F(RemotePriceTest, TwoBoxesBesideADiskPay) {
  const RemotePrice two = Price(0.25, {6 * kGiB, 6 * kGiB}, {.gigabits = 10, .round_trip = 1e-4});
  EXPECT_NEAR(two.share, 0.79, 0.01);
  EXPECT_TRUE(two.gain.pays());
  EXPECT_GT(two.gain.factor(), 2.0);
  const RemotePrice one = Price(0.25, {6 * kGiB}, {.gigabits = 10, .round_trip = 1e-4});
  EXPECT_LT(one.gain.factor(), two.gain.factor());
  EXPECT_DOUBLE_EQ(one.gain.without, two.gain.without);
}

TEST_F(RemotePriceTest, ASlowerNetworkGainsLess) {
  const double fast = Price(0.25, {6 * kGiB}, {.gigabits = 10, .round_trip = 1e-4}).gain.factor();
  const double slow = Price(0.25, {6 * kGiB}, {.gigabits = 0.1, .round_trip = 2e-3}).gain.factor();
  EXPECT_LT(slow, 0.9 * fast);
}

TEST_F(RemotePriceTest, WhereAllIsInMemoryNoHostPays) {
  EXPECT_FALSE(Price(1.0, {6 * kGiB}, {.gigabits = 1, .round_trip = 1e-3}).gain.pays());
}

TEST_F(RemotePriceTest, AHostWithoutRoomChangesNothing) {
  const RemotePrice none = Price(0.25, {kMiB}, {});
  EXPECT_EQ(none.share, 0.0);
  EXPECT_DOUBLE_EQ(none.gain.factor(), 1.0);
}

TEST(ParseNetwork, RatesAndRoundTrips) {
  EXPECT_EQ(ParseNetwork("1"), (Network{.gigabits = 1, .round_trip = 0.2e-3}));
  EXPECT_EQ(ParseNetwork("10"), (Network{.gigabits = 10, .round_trip = 0.1e-3}));
  EXPECT_EQ(ParseNetwork("2.5/3"), (Network{.gigabits = 2.5, .round_trip = 3e-3}));
  for (const std::string text :
       {"", "0", "-1", "x", "1/", "/1", "1/0", "1/2/3", "1e99", "inf", "nan", "1 ", "1/x"}) {
    const auto network = ParseNetwork(text);
    ASSERT_FALSE(network) << text;
    EXPECT_EQ(network.error().code, Errc::kUsage);
  }
}

}  // namespace
}  // namespace moestro
