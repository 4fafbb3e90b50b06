// SPDX-License-Identifier: MIT
#include "decide/devices/whole_planner.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moestro {
namespace {

constexpr uint64_t kBytes = 1'000'000;

// A border of 1 ms against a CPU that would take some of the work.
TEST(WholeLayersPay, WhereABorderCostsMoreThanTheCpuSaves) {
  LatencyModel model{.host = {.per_byte = 1e-9},
                     .border = 1e-3,
                     .devices = {{.compute = {.per_byte = 0.5e-9}, .launch = 1e-4}}};
  // 4 ms; shared 3.1, a border and a wait
  EXPECT_TRUE(WholeLayersPay(model, PlaceMode::kAuto, kBytes, 8));
  model.border = 1e-5;
  EXPECT_FALSE(WholeLayersPay(model, PlaceMode::kAuto, kBytes, 8));
  EXPECT_TRUE(WholeLayersPay(model, PlaceMode::kGpuCentric, kBytes, 8));
  EXPECT_FALSE(WholeLayersPay(model, PlaceMode::kCooperative, kBytes, 8));
  model.border = 0.0;
  model.host.per_byte = 1.0;
  EXPECT_FALSE(WholeLayersPay(model, PlaceMode::kAuto, kBytes, 8));  // rows are in memory
}

// An expert takes 10 ms on the CPU and 1 ms on the device; a border 3 ms, as the wait for a router.
LatencyModel ByHand() {
  return {
      .host = {.per_byte = 10e-9}, .border = 3e-3, .devices = {{.compute = {.per_byte = 1e-9}}}};
}

// Two layers of two experts, of which a row uses one, and room for two experts.
WholeCase TwoOfFour(const std::vector<double>& uses = {}) {
  return {.n_layers = 2,
          .n_expert = 2,
          .n_used = 1,
          .bytes = kBytes,
          .slots = 2,
          .most = 1,
          .uses = uses};
}

TEST(ChooseWhole, AddsUpByHand) {
  // Without: in each layer the expert is there in half of the cases: 3 + (1 + 16 - 3) / 2.
  // One whole: 1, and 3 + 13 for the other.
  const WholeChoice choice = ChooseWhole(TwoOfFour(), ByHand(), PlaceMode::kAuto);
  EXPECT_EQ(choice.layers, 1U);
  EXPECT_NEAR(choice.without, 20e-3, 1e-9);
  EXPECT_NEAR(choice.seconds, 17e-3, 1e-9);
  EXPECT_NEAR(WholeSeconds(TwoOfFour(), ByHand(), 0), choice.without, 1e-12);
}

TEST(ChooseWhole, HotExpertsAreWorthMoreThanAWholeLayer) {
  const std::vector<double> hot = {998.0, 0.0, 998.0, 0.0};
  const WholeChoice choice = ChooseWhole(TwoOfFour(hot), ByHand(), PlaceMode::kAuto);
  EXPECT_EQ(choice.layers, 0U);
  EXPECT_EQ(choice.seconds, choice.without);
  EXPECT_NEAR(choice.without, 2 * (0.999 * 4e-3 + 0.001 * 16e-3), 1e-9);
}

TEST(ChooseWhole, FewUsesSayLittle) {
  const std::vector<double> once = {1.0, 0.0, 1.0, 0.0};  // two thirds of the uses to come
  const WholeChoice choice = ChooseWhole(TwoOfFour(once), ByHand(), PlaceMode::kAuto);
  EXPECT_NEAR(choice.without, 2 * (2.0 / 3 * 4e-3 + 1.0 / 3 * 16e-3), 1e-9);
}

TEST(ChooseWhole, SlotsGoToTheHottestExpertsOfTheOtherLayers) {
  // The whole layer's own uses do not count, however hot: the third slot is for the first layer.
  WholeCase of = TwoOfFour();
  const std::vector<double> uses = {98.0, 0.0, 1e6, 1e6};
  of.uses = uses;
  of.slots = 3;
  EXPECT_NEAR(WholeSeconds(of, ByHand(), 1), 1e-3 + 0.99 * 4e-3 + 0.01 * 16e-3, 1e-9);
}

TEST(ChooseWhole, AGainMustBeWorthIt) {
  LatencyModel model = ByHand();
  model.border = 1e-3;  // 14 without, 13 with one
  EXPECT_EQ(ChooseWhole(TwoOfFour(), model, PlaceMode::kAuto).layers, 1U);
  model.border = 0.1e-3;  // 11.3 without, 11.2 with one
  const WholeChoice choice = ChooseWhole(TwoOfFour(), model, PlaceMode::kAuto);
  EXPECT_EQ(choice.layers, 0U);
  EXPECT_EQ(choice.seconds, choice.without);
}

TEST(ChooseWhole, NoneWhereTheModeOrTheMachineHasNone) {
  for (const PlaceMode mode : {PlaceMode::kCpu, PlaceMode::kCooperative, PlaceMode::kGpuCentric}) {
    EXPECT_EQ(ChooseWhole(TwoOfFour(), ByHand(), mode).layers, 0U);
  }
  LatencyModel in_memory = ByHand();
  in_memory.border = 0.0;
  EXPECT_EQ(ChooseWhole(TwoOfFour(), in_memory, PlaceMode::kAuto).layers, 0U);
  WholeCase none = TwoOfFour();
  none.most = 0;
  EXPECT_EQ(ChooseWhole(none, ByHand(), PlaceMode::kAuto).layers, 0U);
}

}  // namespace
}  // namespace moestro
