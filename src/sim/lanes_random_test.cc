// SPDX-License-Identifier: MIT
// What holds for any trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "sim/lanes_testing.h"
#include "sim/replay.h"

namespace moestro {
namespace {

using Request = std::tuple<ExpertKey, Use, Placement::Was, uint32_t>;

SlotTable::Observer Into(std::vector<Request>& log) {
  return [&log](ExpertKey key, Use use, const Placement& p) {
    log.emplace_back(key, use, p.was, p.slot.value);
  };
}

// On the CPU alone the lanes ask memory for what Replay() asks it for, in the same order, whatever
// the device has.
TEST(LanesOfAnyTrace, CpuAsksMemoryAsReplayDoes) {
  for (const std::string policy : {"next-use", "lru", "hobbit"}) {
    for (const size_t rows : {1U, 4U}) {
      const Trace trace = RandomTrace(7, 200, 4, rows);
      std::vector<Request> wanted;
      const auto replayed =
          Replay(trace, {.slots = 24, .policy = {.name = policy}, .observer = Into(wanted)});
      ASSERT_TRUE(replayed) << replayed.error().message;
      std::vector<Request> seen;
      const LanesResult result = Play(trace, {.model = Simple(),
                                              .mode = PlaceMode::kCpu,
                                              .slots = 24,
                                              .device_slots = {16},
                                              .policy = {.name = policy},
                                              .first = ByPopularity(trace, 50),
                                              .observer = Into(seen)});
      EXPECT_EQ(seen, wanted) << policy << ", " << rows;
      EXPECT_EQ(result.decode.in_memory, replayed->hits);
      EXPECT_EQ(result.decode.on_disk, replayed->misses);
      EXPECT_EQ(result.decode.tokens, replayed->tokens);
    }
  }
}

// What plans say and what the layers took.
struct Timed {
  double predicted = 0.0;
  double took = 0.0;
};

Timed TimeOf(const Trace& trace, const LanesOptions& options) {
  Timed timed;
  ReplayOptions replay = OnLanes(options);
  replay.plan_observer = [&](const LayerPlan& plan) {
    timed.predicted += plan.predicted.seconds();
    timed.took += plan.took.seconds();
  };
  const auto result = Replay(trace, replay);
  EXPECT_TRUE(result) << result.error().message;
  return timed;
}

// From the same places, a layer planned by kAuto is never slower than one of the fixed modes. Where
// experts come from the disk that is what plans say: they take the devices' reads to come first,
// and the engine asks for the CPU's experts first.
TEST(LanesOfAnyTrace, AutoIsTheFastestOfALayer) {
  std::mt19937 random(3);
  const auto draw = [&random](int n) { return static_cast<int>(random() % 1000) % n; };
  for (uint32_t seed = 0; seed < 200; ++seed) {
    const auto rows = static_cast<size_t>(1 + draw(5));
    const Trace trace = RandomTrace(seed, rows, 1, rows);
    LanesOptions options{.model = Simple(),
                         .slots = 16,
                         .device_slots = {static_cast<uint64_t>(1 + draw(12))},
                         .first = ByPopularity(trace, static_cast<size_t>(draw(3))),
                         .fills_memory = draw(2) == 0};  // else it is empty
    std::ranges::shuffle(options.first, random);
    options.model.devices[0].copy.per_byte *= 0.1 + draw(40);
    options.model.host.per_byte *= 0.1 + draw(4);
    options.model.host_beside = 1.0 + 0.1 * draw(5);
    options.model.devices[0].copy_beside = 1.0 + 0.1 * draw(5);
    options.model.devices[0].calls = 10e-6 * draw(3);
    options.model.devices[0].pair = 5e-6 * draw(3);
    options.model.border = 10e-6 * draw(3);
    options.model.border_pair = 2e-6 * draw(3);
    const Timed best = TimeOf(trace, options);
    for (const PlaceMode mode :
         {PlaceMode::kGpuCentric, PlaceMode::kCooperative, PlaceMode::kCpu}) {
      options.mode = mode;
      const Timed other = TimeOf(trace, options);
      EXPECT_LE(best.predicted, other.predicted * (1 + 1e-9)) << seed << NameOf(mode);
      if (!options.fills_memory) continue;
      EXPECT_LE(best.took, other.took * (1 + 1e-9)) << seed << NameOf(mode);
      EXPECT_NEAR(other.took, other.predicted, 1e-12) << seed << NameOf(mode);
    }
  }
}

// And over a whole trace, if no expert can change its place: the device and memory hold all.
TEST(LanesOfAnyTrace, AutoIsTheFastestOfATraceWhereNobodyMoves) {
  const Trace trace = RandomTrace(5, 150, 4);
  LanesOptions options{.model = Simple(),
                       .slots = 64,
                       .device_slots = {64},
                       .first = ByLayer(trace.info().shape()),
                       .fills_memory = true};
  options.model.devices[0].compute.per_byte = 90e-12;  // so that neither side should have all
  const LanePhase best = Play(trace, options).decode;
  EXPECT_GT(best.ran_there, 0U);
  EXPECT_GT(best.on_host, 0U);
  EXPECT_EQ(best.copied, 0U);
  for (const PlaceMode mode : {PlaceMode::kGpuCentric, PlaceMode::kCooperative, PlaceMode::kCpu}) {
    options.mode = mode;
    EXPECT_LT(best.seconds, Play(trace, options).decode.seconds) << NameOf(mode);
  }
}

// The oracle knows every row of a step.
TEST(LanesOfAnyTrace, TheOracleIsRightForAllRows) {
  for (const size_t rows : {1U, 4U}) {
    ReplayOptions options = OnLanes({.model = Simple(), .slots = 40, .device_slots = {8}});
    options.predictor = {.name = "oracle", .paths = {}};
    const auto with = Replay(RandomTrace(7, 200, 4, rows), options);
    ASSERT_TRUE(with) << with.error().message;
    ASSERT_EQ(with->predictions.size(), 1U);
    EXPECT_EQ(with->predictions[0].recall(), 1.0) << rows;
    EXPECT_EQ(with->predictions[0].precision(), 1.0) << rows;
    EXPECT_GT(with->prefetches, 0U) << rows;
    options.predictor = {.name = "none", .paths = {}};
    const auto without = Replay(RandomTrace(7, 200, 4, rows), options);
    ASSERT_TRUE(without) << without.error().message;
    EXPECT_LT(with->seconds, without->seconds) << rows;
    EXPECT_EQ(with->seconds, with->lanes.decode.seconds);
  }
}

// Bytes go through as many lanes as their experts do, and each device has its part of them.
void ExpectBytesAddUp(const LanePhase& p) {
  EXPECT_EQ(p.experts, 150U * 12);
  EXPECT_EQ(p.in_device + p.in_memory + p.on_disk, p.experts);
  EXPECT_EQ(p.ran_there + p.copied + p.on_host, p.experts);
  EXPECT_EQ(p.device_bytes, (p.ran_there + p.copied) * kBytes);
  EXPECT_EQ(p.host_bytes, p.on_host * kBytes);
  EXPECT_EQ(p.copy_bytes, (p.copied + p.promoted + p.moved_back) * kBytes);
  EXPECT_LE(p.on_disk * kBytes, p.disk_bytes);
  LanePhase::Device all;
  for (const LanePhase::Device& its : p.devices) {
    EXPECT_GT(its.ran_there, 0U);
    EXPECT_EQ(its.bytes, (its.ran_there + its.copied) * kBytes);
    EXPECT_EQ(its.copy_bytes, (its.copied + its.promoted + its.moved_back) * kBytes);
    all.ran_there += its.ran_there;
    all.copied += its.copied;
    all.staged += its.staged;
    all.promoted += its.promoted;
    all.moved_back += its.moved_back;
  }
  EXPECT_EQ(all.ran_there, p.ran_there);
  EXPECT_EQ(all.copied, p.copied);
  EXPECT_EQ(all.staged, p.staged);
  EXPECT_EQ(all.promoted, p.promoted);
  EXPECT_EQ(all.moved_back, p.moved_back);
}

TEST(LanesOfAnyTrace, BytesAddUp) {
  const Trace trace = RandomTrace(9, 150, 4);
  for (const size_t devices : {1U, 2U}) {
    for (const PlaceMode mode :
         {PlaceMode::kAuto, PlaceMode::kGpuCentric, PlaceMode::kCooperative}) {
      LanesOptions options{.model = Simple(),
                           .mode = mode,
                           .slots = 20,
                           .device_slots = std::vector<uint64_t>(devices, 20 / devices),
                           .first = ByPopularity(trace, 40)};
      options.model.devices.resize(devices, options.model.devices.front());
      ExpectBytesAddUp(Play(trace, options).decode);
      options.tiers = Tiers::kExclusive;
      const LanePhase once = Play(trace, options).decode;
      ExpectBytesAddUp(once);
      EXPECT_EQ(once.staged + once.moved_back > 0, mode != PlaceMode::kCooperative);
    }
  }
}

}  // namespace
}  // namespace moestro
