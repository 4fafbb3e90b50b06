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

// An expert takes 10 ms on the CPU and 1 ms on the device; a border, a launch and the wait for a
// router take 3 ms each. So a layer with a border takes 7 ms if the device has its expert, else 16.
LatencyModel ByHand(double wait = 3e-3) {
  return {.host = {.per_byte = 10e-9},
          .border = wait,
          .devices = {{.compute = {.per_byte = 1e-9}, .launch = wait}}};
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
  // Without, the device has the expert of a layer in half of the cases.
  const WholeChoice choice = ChooseWhole(TwoOfFour(), ByHand(), PlaceMode::kAuto, 0.05);
  EXPECT_EQ(choice.layers, 1U);
  EXPECT_NEAR(choice.without, 23e-3, 1e-9);
  EXPECT_NEAR(choice.seconds, 17e-3, 1e-9);
  EXPECT_NEAR(WholeSeconds(TwoOfFour(), ByHand(), 0), choice.without, 1e-12);
}

TEST(ChooseWhole, HotExpertsAreWorthMoreThanAWholeLayer) {
  const std::vector<double> hot = {998.0, 0.0, 998.0, 0.0};
  const WholeChoice choice = ChooseWhole(TwoOfFour(hot), ByHand(), PlaceMode::kAuto, 0.05);
  EXPECT_EQ(choice.layers, 0U);
  EXPECT_EQ(choice.seconds, choice.without);
  EXPECT_NEAR(choice.without, 2 * 7e-3, 1e-9);
}

TEST(ChooseWhole, FewUsesSayLittle) {
  // Without its own use an expert is one of three unused ones, for which one slot is left.
  const std::vector<double> once = {1.0, 0.0, 1.0, 0.0};
  const WholeChoice choice = ChooseWhole(TwoOfFour(once), ByHand(), PlaceMode::kAuto, 0.05);
  EXPECT_NEAR(choice.without, 2 * (1.0 / 3 * 7e-3 + 2.0 / 3 * 16e-3), 1e-9);
}

TEST(ChooseWhole, SlotsGoToTheHottestExpertsOfTheOtherLayers) {
  // The whole layer's own uses do not count, however hot: the third slot is for the first layer.
  WholeCase of = TwoOfFour();
  const std::vector<double> uses = {98.0, 0.0, 1e6, 1e6};
  of.uses = uses;
  of.slots = 3;
  EXPECT_NEAR(WholeSeconds(of, ByHand(), 1), 1e-3 + 7e-3, 1e-9);
}

TEST(ChooseWhole, AGainMustBeWorthIt) {
  // 15 ms without, 13 with one
  EXPECT_EQ(ChooseWhole(TwoOfFour(), ByHand(1e-3), PlaceMode::kAuto, 0.05).layers, 1U);
  // 11.4 ms without, 11.2 with one
  const WholeChoice choice = ChooseWhole(TwoOfFour(), ByHand(0.1e-3), PlaceMode::kAuto, 0.05);
  EXPECT_EQ(choice.layers, 0U);
  EXPECT_EQ(choice.seconds, choice.without);
}

TEST(ChooseWhole, NoneWhereTheModeOrTheMachineHasNone) {
  for (const PlaceMode mode : {PlaceMode::kCpu, PlaceMode::kCooperative, PlaceMode::kGpuCentric}) {
    EXPECT_EQ(ChooseWhole(TwoOfFour(), ByHand(), mode, 0.05).layers, 0U);
  }
  LatencyModel in_memory = ByHand();
  in_memory.border = 0.0;
  EXPECT_EQ(ChooseWhole(TwoOfFour(), in_memory, PlaceMode::kAuto, 0.05).layers, 0U);
  WholeCase none = TwoOfFour();
  none.most = 0;
  EXPECT_EQ(ChooseWhole(none, ByHand(), PlaceMode::kAuto, 0.05).layers, 0U);
}

}  // namespace
}  // namespace moestro
