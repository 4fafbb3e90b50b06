// SPDX-License-Identifier: MIT
#include "sim/machine.h"

#include <gtest/gtest.h>

#include <vector>

#include "sim/lanes_testing.h"
#include "trace/trace.h"

namespace moestro {
namespace {

using Reads = Machine::Reads;

// A byte takes a second, a read is one part of at most 10.
MachineCosts Slow() { return {.bandwidth = 1.0, .io_depth = 2, .max_read = 10}; }

TEST(Machine, ReadsGoOnBesideComputation) {
  Machine machine(Slow());
  const Machine::Ticket read = machine.Read(4.0, true);
  machine.Compute(3.0, Reads::kMove);
  EXPECT_FALSE(machine.is_done(read));
  machine.Wait();
  EXPECT_TRUE(machine.is_done(read));
  EXPECT_DOUBLE_EQ(machine.now(), 4.0);
  EXPECT_DOUBLE_EQ(machine.waited(), 1.0);
  EXPECT_DOUBLE_EQ(machine.bytes_read(), 4.0);
}

TEST(Machine, OnlyWhatIsAtTheDiskGoesOnBesideTheDensePart) {
  Machine machine(Slow());
  std::vector<Machine::Ticket> reads;
  for (int i = 0; i < 3; ++i) reads.push_back(machine.Read(1.0, true));
  machine.Pump();
  machine.Compute(10.0, Reads::kStay);
  EXPECT_TRUE(machine.is_done(reads[0]) && machine.is_done(reads[1]));
  EXPECT_FALSE(machine.is_done(reads[2]));
  machine.Compute(0.5, Reads::kMove);
  EXPECT_FALSE(machine.is_done(reads[2]));
  machine.Compute(0.5, Reads::kMove);
  EXPECT_TRUE(machine.is_done(reads[2]));
}

TEST(Machine, BeforeADensePartItHandsOutWhatLastsThroughIt) {
  Machine machine(Slow());
  std::vector<Machine::Ticket> reads;
  for (int i = 0; i < 6; ++i) reads.push_back(machine.Read(3.0, i == 5));
  machine.PumpAhead(0.0);
  EXPECT_DOUBLE_EQ(machine.bytes_read(), 6.0);  // io_depth
  machine.PumpAhead(10.0);
  EXPECT_DOUBLE_EQ(machine.bytes_read(), 12.0);  // a part that is begun is read whole
  machine.Compute(12.0, Reads::kStay);
  EXPECT_TRUE(machine.is_done(reads[5]));  // it was urgent
  EXPECT_TRUE(machine.is_done(reads[2]));
  EXPECT_FALSE(machine.is_done(reads[3]));
  machine.PumpAhead(1e9);
  EXPECT_DOUBLE_EQ(machine.bytes_read(), 18.0);
}

TEST(Machine, DemandGoesBeforeSpeculationThatWaits) {
  Machine machine(Slow());
  const Machine::Ticket ahead = machine.Read(30.0, false);
  machine.Pump();  // two of its three parts are at the disk
  const Machine::Ticket demand = machine.Read(5.0, true);
  machine.Wait();
  EXPECT_TRUE(machine.is_done(demand));
  EXPECT_DOUBLE_EQ(machine.now(), 25.0);
  machine.Wait();
  EXPECT_TRUE(machine.is_done(ahead));
  EXPECT_DOUBLE_EQ(machine.now(), 35.0);
}

TEST(Machine, WhatIsPromotedGoesBeforeOtherSpeculation) {
  Machine machine({.bandwidth = 1.0, .io_depth = 1, .max_read = 10});
  const Machine::Ticket first = machine.Read(1.0, false);
  const Machine::Ticket second = machine.Read(1.0, false);
  machine.Promote(second);
  machine.Wait();
  EXPECT_TRUE(machine.is_done(second));
  EXPECT_FALSE(machine.is_done(first));
}

TEST(Machine, WhatTheDiskHasCannotBeCalledBack) {
  Machine machine(Slow());
  const Machine::Ticket begun = machine.Read(30.0, false);
  const Machine::Ticket waits = machine.Read(30.0, false);
  machine.Pump();
  EXPECT_FALSE(machine.Cancel(begun));
  EXPECT_TRUE(machine.Cancel(waits));
  EXPECT_TRUE(machine.is_done(waits));
  EXPECT_FALSE(machine.Cancel(waits));
  machine.Wait();
  EXPECT_DOUBLE_EQ(machine.bytes_read(), 30.0);
}

// 2 s of computation take 4 beside the disk, in which a quarter of 4 s is read; the second byte is
// read alone.
TEST(Machine, BothAreSlowerBesideEachOther) {
  MachineCosts costs = Slow();
  costs.compute_beside = 2.0;
  costs.read_beside = 4.0;
  Machine machine(costs);
  machine.Read(2.0, true);
  machine.Compute(2.0, Reads::kMove);
  EXPECT_DOUBLE_EQ(machine.now(), 4.0);
  machine.Wait();
  EXPECT_DOUBLE_EQ(machine.now(), 5.0);
  // The read ends first: what is left of the computation is alone.
  machine.Read(1.0, true);
  machine.Compute(4.0, Reads::kMove);
  EXPECT_DOUBLE_EQ(machine.now(), 5.0 + 4.0 + 2.0);
}

TEST(Machine, WithoutAClockEverythingIsThereAtOnce) {
  Machine machine(MachineCosts{});
  std::vector<Machine::Ticket> reads;
  for (int i = 0; i < 20; ++i) reads.push_back(machine.Read(1e6, i % 2 == 0));
  machine.Pump();
  for (const Machine::Ticket read : reads) EXPECT_TRUE(machine.is_done(read));
  EXPECT_DOUBLE_EQ(machine.now(), 0.0);
}

// Two layers of four experts, two for a token; the device begins with experts 0 and 1 of layer 0,
// memory with all.
LanesOptions TwoLayers(PlaceMode mode) {
  return {.model = Simple(),
          .mode = mode,
          .slots = 8,
          .device_slots = {2},
          .policy = {.name = "lru"},
          .first = {Key(0, 0), Key(0, 1)},
          .fills_memory = true};
}
const MoeShape kTwoLayers{.n_layer = 2, .n_expert = 4, .n_used = 2};

// Layer 0: both on the device: a launch and 2 x 10. Layer 1: both on the CPU.
TEST(Lanes, CooperativeRunsWhatIsThereThere) {
  const Trace trace = Make(kTwoLayers, {{.experts = {0, 1, 2, 3}}, {.experts = {0, 2, 0, 1}}});
  LanesOptions options = TwoLayers(PlaceMode::kCooperative);
  options.dense = {.base = 5e-6, .per_byte = 1e-12, .per_row = 1e-12};
  options.dense_bytes = 3'000'000;
  const LanePhase p = Play(trace, options).decode;
  EXPECT_EQ(p.tokens, 2U);
  EXPECT_EQ(p.steps, 2U);
  EXPECT_EQ(p.experts, 8U);
  EXPECT_EQ(p.ran_there, 3U);
  EXPECT_EQ(p.on_host, 5U);
  EXPECT_EQ(p.copied, 0U);
  EXPECT_EQ(p.in_device, 3U);
  EXPECT_EQ(p.in_memory, 5U);
  EXPECT_EQ(p.on_disk, 0U);
  EXPECT_EQ(p.device_bytes, 3 * kBytes);
  EXPECT_EQ(p.host_bytes, 5 * kBytes);
  EXPECT_NEAR(p.dense_seconds, 4 * 8e-6, 1e-15);
  // 40 and 200 us, then the CPU's 100 beside the device's 30, and 200 again.
  EXPECT_DOUBLE_EQ(p.seconds, 4 * 8e-6 + (40 + 200 + 100 + 200) * 1e-6);
  EXPECT_DOUBLE_EQ(p.lanes.devices.at(0).compute, (40 + 30) * 1e-6);
  EXPECT_DOUBLE_EQ(p.lanes.host, (200 + 100 + 200) * 1e-6);
}

// What is copied takes the slots of what was there, and is there the next time.
TEST(Lanes, GpuCentricCopiesAndEvicts) {
  const Trace trace =
      Make(kTwoLayers,
           {{.experts = {0, 2, 2, 3}}, {.experts = {0, 2, 2, 3}}, {.experts = {1, 3, 2, 3}}});
  const LanePhase p = Play(trace, TwoLayers(PlaceMode::kGpuCentric)).decode;
  // Token 1, layer 0: 0 is there; 2 takes the slot of 1, which no row has used. Layer 1: copies
  // take both slots. Token 2 and 3 find none of theirs.
  EXPECT_EQ(p.ran_there, 1U);
  EXPECT_EQ(p.copied, 11U);
  EXPECT_EQ(p.on_host, 0U);
  EXPECT_EQ(p.copy_bytes, 11 * kBytes);
  EXPECT_EQ(p.disk_bytes, 0U);
  // Layer 0 of token 1: the launch of what is there (30) is over when the copy has landed (40):
  // 40 + 20 + 10. All others: 80 + 20 + 20.
  EXPECT_DOUBLE_EQ(p.seconds, (70 + 5 * 120) * 1e-6);
  EXPECT_DOUBLE_EQ(p.lanes.devices.at(0).copy, (40 + 5 * 80) * 1e-6);
}

TEST(Lanes, WhatWasCopiedIsFoundThere) {
  const Trace trace = Make(kTwoLayers, {{.experts = {2, 3, 0, 1}}, {.experts = {2, 3, 0, 1}}});
  LanesOptions options = TwoLayers(PlaceMode::kGpuCentric);
  options.device_slots = {4};
  options.first.clear();
  const LanePhase p = Play(trace, options).decode;
  EXPECT_EQ(p.copied, 4U);
  EXPECT_EQ(p.ran_there, 4U);
  EXPECT_DOUBLE_EQ(p.seconds, (2 * 120 + 2 * 40) * 1e-6);
}

// Memory begins empty: experts come from the disk to wherever they run, through a slot of memory.
TEST(Lanes, TheDiskBringsWhatNobodyHas) {
  const Trace trace = Make(kTwoLayers, {{.experts = {0, 2, 0, 1}}, {.experts = {0, 2, 0, 1}}});
  LanesOptions options = TwoLayers(PlaceMode::kCooperative);
  options.fills_memory = false;
  const LanePhase host = Play(trace, options).decode;
  EXPECT_EQ(host.on_disk, 3U);
  EXPECT_EQ(host.in_memory, 3U);
  EXPECT_EQ(host.disk_bytes, 3 * kBytes);
  // A read and 100 us; two reads, the first computed beside the second; then all in memory.
  EXPECT_DOUBLE_EQ(host.seconds, (1100 + 2100 + 100 + 200) * 1e-6);

  options.mode = PlaceMode::kGpuCentric;
  const LanePhase device = Play(trace, options).decode;
  // Two slots: layer 1 drives out what layer 0 has, of which 0 never was in memory.
  EXPECT_EQ(device.on_disk, 4U);
  EXPECT_EQ(device.in_memory, 3U);
  EXPECT_EQ(device.disk_bytes, 4 * kBytes);
  // 1000 + 40, then launch and one expert; reads of two, the second's copy follows its read; one
  // read; two copies.
  EXPECT_DOUBLE_EQ(device.seconds, (1070 + 2080 + 1080 + 120) * 1e-6);
}

// The same, but what has been copied leaves memory; from the device it goes back there if reads
// cost more than that.
TEST(Lanes, ExclusiveTiersHaveAnExpertOnce) {
  const Trace trace = Make(kTwoLayers, {{.experts = {0, 2, 0, 1}}, {.experts = {0, 2, 0, 1}}});
  LanesOptions options = TwoLayers(PlaceMode::kGpuCentric);
  options.tiers = Tiers::kExclusive;
  options.fills_memory = false;
  LanePhase p = Play(trace, options).decode;
  EXPECT_EQ(p.on_disk, 3U);
  EXPECT_EQ(p.in_memory, 4U);
  EXPECT_EQ(p.moved_back, 7U);
  EXPECT_EQ(p.copy_bytes, (p.copied + p.moved_back) * kBytes);
  const double seconds = p.seconds;
  options.model.disk = {};
  p = Play(trace, options).decode;
  EXPECT_EQ(p.on_disk, 7U);
  EXPECT_EQ(p.in_memory, 0U);
  EXPECT_EQ(p.moved_back, 0U);
  EXPECT_LT(p.seconds, seconds);
  // Full at the start, but for what the device has.
  options.fills_memory = true;
  p = Play(trace, options).decode;
  EXPECT_EQ(p.in_device, 1U);
  EXPECT_EQ(p.in_memory, 3U);
  EXPECT_EQ(p.on_disk, 4U);
}

// Two slots of memory are at most half of eight experts.
TEST(Lanes, SlotsOfMemoryChooseTheTiersThatNobodyAskedFor) {
  const Trace trace = Make(kTwoLayers, {{.experts = {0, 2, 0, 1}}, {.experts = {0, 2, 0, 1}}});
  LanesOptions options = TwoLayers(PlaceMode::kGpuCentric);
  const auto moved_back = [&](std::optional<Tiers> tiers, uint64_t slots) {
    options.tiers = tiers;
    options.slots = slots;
    return Play(trace, options).decode.moved_back;
  };
  const uint64_t all = kTwoLayers.experts();
  EXPECT_GT(moved_back(Tiers::kExclusive, 2), 0U);
  EXPECT_EQ(moved_back({}, 2), moved_back(Tiers::kExclusive, 2));
  EXPECT_GT(moved_back(Tiers::kExclusive, all), 0U);
  EXPECT_EQ(moved_back({}, all), 0U);
}

TEST(Lanes, AutoLeavesToTheCpuWhatACopyWouldNotPayBack) {
  const Trace trace = Make(kTwoLayers, {{.experts = {0, 1, 2, 3}}});
  LanesOptions options = TwoLayers(PlaceMode::kAuto);
  // Layer 1: one copied (40 + 20 + 10) beside one on the CPU (100) beats two on either side.
  LanePhase p = Play(trace, options).decode;
  EXPECT_EQ(p.copied, 1U);
  EXPECT_EQ(p.on_host, 1U);
  EXPECT_DOUBLE_EQ(p.seconds, (40 + 100) * 1e-6);
  options.model.devices[0].copy.per_byte = 1e-9;  // 1000 us
  p = Play(trace, options).decode;
  EXPECT_EQ(p.copied, 0U);
  EXPECT_DOUBLE_EQ(p.seconds, (40 + 200) * 1e-6);
}

// A copy takes what 40 uses there save, so none pays within a layer. What is used in every step
// moves when its uses have paid for that, while the layers leave the link idle; the next step waits
// for the rest.
TEST(Lanes, AutoMovesForLaterWhatIsUsedAgain) {
  const MoeShape shape{.n_layer = 2, .n_expert = 4, .n_used = 1};
  const Trace trace = Make(shape, std::vector<Row>(100, {.experts = {3, 2}}));
  LanesOptions options = TwoLayers(PlaceMode::kAuto);
  options.first.clear();
  options.model.devices[0].launch = 0.0;
  options.model.devices[0].copy.per_byte = 40 * 90e-12;
  options.dense = {.base = 5e-3};
  const LanePhase p = Play(trace, options).decode;
  EXPECT_EQ(p.promoted, 2U);
  EXPECT_EQ(p.copied, 0U);
  EXPECT_EQ(p.copy_bytes, 2 * kBytes);
  EXPECT_EQ(p.on_host, 2U);  // the first uses: the slots are empty
  EXPECT_EQ(p.ran_there, 2 * 99U);
  // The first moves beside the second layer, the second before the next step.
  const double computed =
      (static_cast<double>(p.on_host) * 100 + static_cast<double>(p.ran_there) * 10) * 1e-6;
  EXPECT_NEAR(p.seconds, 1.0 + computed + 3600e-6, 1e-9);
  options.dense = {};
  EXPECT_NEAR(Play(trace, options).decode.seconds, computed + 2 * 3600e-6 - 100e-6, 1e-9);
}

TEST(Lanes, RowsShareAnExpert) {
  const std::vector<Row> rows = {{.experts = {2, 3, 0, 1}}, {.experts = {2, 0, 0, 1}}};
  LanesOptions options = TwoLayers(PlaceMode::kCpu);
  options.step.rows = 2;
  const LanePhase p = Play(Make(kTwoLayers, rows), options).decode;
  EXPECT_EQ(p.tokens, 2U);
  EXPECT_EQ(p.steps, 1U);
  EXPECT_EQ(p.experts, 5U);
  // 2 with two rows, 3 and 0 with one; 0 and 1 with two.
  EXPECT_DOUBLE_EQ(p.seconds, (125 + 100 + 100 + 2 * 125) * 1e-6);

  // The same rows recorded together need no flag, and refuse one.
  std::vector<Row> together = rows;
  together[1].joins_step = true;
  options.step.rows = 1;
  EXPECT_DOUBLE_EQ(Play(Make(kTwoLayers, together), options).decode.seconds, p.seconds);
  options.step.rows = 2;
  const auto refused = Replay(Make(kTwoLayers, together), OnLanes(options));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::kUsage);

  // Rows of a step are of one sequence.
  std::vector<Row> apart = rows;
  apart[1].starts_sequence = true;
  EXPECT_EQ(Play(Make(kTwoLayers, apart), options).decode.steps, 2U);
}

TEST(Lanes, PromptsAreCountedApart) {
  std::vector<Row> rows(3, {.experts = {2, 3, 0, 1}, .phase = Phase::kPrefill});
  rows.push_back({.experts = {2, 3, 0, 1}});
  LanesOptions options = TwoLayers(PlaceMode::kCpu);
  options.step.prefill_chunk = 2;
  const LanesResult result = Play(Make(kTwoLayers, rows), options);
  EXPECT_EQ(result.prefill.tokens, 3U);
  EXPECT_EQ(result.prefill.steps, 2U);
  EXPECT_DOUBLE_EQ(result.prefill.seconds, (4 * 125 + 4 * 100) * 1e-6);
  EXPECT_EQ(result.decode.tokens, 1U);
  EXPECT_DOUBLE_EQ(result.decode.seconds, 4 * 100e-6);
}

TEST(Lanes, WarmUpIsNotCounted) {
  const Trace trace = Make(kTwoLayers, {{.experts = {0, 1, 2, 3}}, {.experts = {0, 1, 2, 3}}});
  LanesOptions options = TwoLayers(PlaceMode::kCpu);
  options.fills_memory = false;
  options.count_from = 1;
  const LanePhase p = Play(trace, options).decode;
  EXPECT_EQ(p.tokens, 1U);
  EXPECT_EQ(p.on_disk, 0U);
  EXPECT_NEAR(p.seconds, 4 * 100e-6, 1e-15);
}

TEST(Lanes, AMachineWithoutADeviceUsesItsCpu) {
  const Trace trace = RandomTrace(2, 60, 4);
  LanesOptions options{.model = Simple(), .slots = 30};
  options.model.devices.clear();
  const LanePhase p = Play(trace, options).decode;
  EXPECT_EQ(p.on_host, p.experts);
  EXPECT_GT(p.on_disk, 0U);
  EXPECT_GT(p.seconds, static_cast<double>(p.experts) * 100e-6);
  options.mode = PlaceMode::kCpu;
  EXPECT_DOUBLE_EQ(Play(trace, options).decode.seconds, p.seconds);
  options.device_slots = {4};
  EXPECT_EQ(Replay(trace, OnLanes(options)).error().code, Errc::kUsage);
}

// A second device that takes twice as long for everything, and holds one expert.
LanesOptions TwoDevices(PlaceMode mode) {
  LanesOptions options = TwoLayers(mode);
  options.model.devices.push_back({.compute = {.per_byte = 20e-12, .per_row = 2e-12},
                                   .copy = {.per_byte = 80e-12},
                                   .launch = 40e-6});
  options.device_slots = {1, 1};
  return options;
}

// Who is there first fills the first device, then the second.
TEST(Lanes, DevicesComputeSideBySide) {
  const Trace trace = Make(kTwoLayers, {{.experts = {0, 1, 2, 3}}});
  const LanePhase p = Play(trace, TwoDevices(PlaceMode::kCooperative)).decode;
  EXPECT_EQ(p.in_device, 2U);
  EXPECT_EQ(p.ran_there, 2U);
  EXPECT_EQ(p.devices.at(0).ran_there, 1U);
  EXPECT_EQ(p.devices.at(1).ran_there, 1U);
  EXPECT_EQ(p.devices.at(1).bytes, kBytes);
  EXPECT_DOUBLE_EQ(p.lanes.devices.at(0).compute, 30e-6);
  EXPECT_DOUBLE_EQ(p.lanes.devices.at(1).compute, 60e-6);
  EXPECT_DOUBLE_EQ(p.seconds, (60 + 200) * 1e-6);  // the slower device, then the CPU
}

// Each has its own link.
TEST(Lanes, DevicesAreCopiedToSideBySide) {
  const Trace trace = Make(kTwoLayers, {{.experts = {2, 3, 2, 3}}});
  const LanePhase p = Play(trace, TwoDevices(PlaceMode::kGpuCentric)).decode;
  EXPECT_EQ(p.copied, 4U);
  EXPECT_EQ(p.devices.at(0).copied, 2U);
  EXPECT_EQ(p.devices.at(1).copy_bytes, 2 * kBytes);
  EXPECT_DOUBLE_EQ(p.seconds, 2 * (80 + 40 + 20) * 1e-6);
}

// One clock: the disk reads for the next layer while the device computes this one, and the dense
// part after it.
TEST(Lanes, TheDiskReadsAheadBesideTheDevice) {
  const MoeShape shape{.n_layer = 2, .n_expert = 4, .n_used = 1};
  LanesOptions lanes = TwoLayers(PlaceMode::kCooperative);
  lanes.first = {Key(0, 0)};
  lanes.device_slots = {1};
  lanes.fills_memory = false;
  lanes.dense = {.base = 500e-6};
  ReplayOptions options = OnLanes(lanes);
  options.predictor = {.name = "oracle", .paths = {}};
  const auto result = Replay(Make(shape, {{.experts = {0, 2}}}), options);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->prefetches, 1U);
  EXPECT_EQ(result->late, 1U);
  // Read from 500 us, when the first router has spoken, to 1500; 100 on the CPU after that.
  EXPECT_NEAR(result->seconds, 1600e-6, 1e-12);
  EXPECT_NEAR(result->stall_seconds, (1500 - 500 - 30 - 500) * 1e-6, 1e-12);
  EXPECT_EQ(result->lanes.decode.ran_there, 1U);
  options.fetches = false;
  const auto without = Replay(Make(shape, {{.experts = {0, 2}}}), options);
  ASSERT_TRUE(without) << without.error().message;
  EXPECT_NEAR(without->seconds, (500 + 30 + 500 + 1000 + 100) * 1e-6, 1e-12);
}

// More experts in a layer than memory has slots: they pass through them.
TEST(Lanes, RowsMayNeedMoreThanMemoryHolds) {
  const Trace trace = RandomTrace(4, 80, 3, 8);
  for (const PlaceMode mode : {PlaceMode::kAuto, PlaceMode::kGpuCentric, PlaceMode::kCpu}) {
    for (const Tiers tiers : {Tiers::kInclusive, Tiers::kExclusive}) {
      LanesOptions options = TwoLayers(mode);
      options.tiers = tiers;
      options.slots = 4;
      const LanePhase p = Play(trace, options).decode;
      EXPECT_EQ(p.ran_there + p.copied + p.on_host, p.experts);
      EXPECT_GT(p.seconds, static_cast<double>(p.on_disk) * 1000e-6);
    }
  }
}

TEST(Lanes, RefusesWhatCannotWork) {
  const Trace trace = RandomTrace(2, 10, 4);
  EXPECT_EQ(Replay(trace, OnLanes({.slots = 2})).error().code, Errc::kUsage);
  EXPECT_EQ(
      Replay(trace, OnLanes({.model = Simple(), .slots = 8, .device_slots = {1, 1}})).error().code,
      Errc::kUsage);
  EXPECT_EQ(Replay(trace, OnLanes({.slots = 8, .policy = {.name = "best"}})).error().code,
            Errc::kUsage);
  EXPECT_EQ(Replay(trace, OnLanes({.slots = 8, .policy = {.name = "belady"}})).error().code,
            Errc::kUsage);
}

TEST(FirstOnTheDevice, ByPopularityAndByLayer) {
  const Trace trace = Make(kTwoLayers, {{.experts = {0, 3, 1, 2}}, {.experts = {3, 1, 2, 3}}});
  const std::vector<ExpertKey> popular = ByPopularity(trace, 2);
  ASSERT_EQ(popular.size(), 8U);
  EXPECT_EQ(popular[0], Key(0, 3));
  EXPECT_EQ(popular[1], Key(1, 2));
  EXPECT_EQ(popular[2], Key(0, 0));
  EXPECT_EQ(popular.back(), Key(1, 0));
  EXPECT_EQ(ByPopularity(trace, 1)[0], Key(0, 0));
  EXPECT_EQ(ByLayer(kTwoLayers).front(), Key(1, 0));
  EXPECT_EQ(ByLayer(kTwoLayers).back(), Key(0, 3));
}

}  // namespace
}  // namespace moestro
