// SPDX-License-Identifier: MIT
#include "native/plan/remote_gain.h"

#include <gtest/gtest.h>

namespace moestro {
namespace {

// Experts of 2 MB: 0.2 ms on the CPU, 2 ms from the disk. A host takes as long as the CPU, and a
// round trip beside it.
LatencyModel Machine(double round_trip, double disk_per_byte = 1e-9) {
  return {.host = {.per_byte = 0.1e-9},
          .disk = {.per_byte = disk_per_byte},
          .devices = {
              {.compute = {.per_byte = 0.1e-9}, .copy = {.per_byte = 8e-9}, .launch = round_trip}}};
}

constexpr RemoteCase kCase{.n_used = 8, .expert_bytes = 2'000'000, .in_memory = 0.5};

RemoteCase With(double there) {
  RemoteCase with = kCase;
  with.there = {there};
  return with;
}

TEST(RemoteGain, AHostThatSavesReadsPays) {
  const RemoteGain gain = GainOfRemotes(With(1.0), Machine(0.5e-3), PlaceMode::kAuto);
  EXPECT_NEAR(gain.without, 8e-3, 1.5e-3) << "four reads";
  EXPECT_GT(gain.factor(), 3.0);
  EXPECT_TRUE(gain.pays());
  EXPECT_LT(GainOfRemotes(With(0.2), Machine(0.5e-3), PlaceMode::kAuto).factor(), gain.factor());
}

TEST(RemoteGain, MemoryHasWhatTheHostLacks) {
  const RemoteGain gain = GainOfRemotes(With(0.5), Machine(0.5e-3), PlaceMode::kAuto);
  EXPECT_LT(gain.with, 2e-3) << "half here and half there: nothing is read";
}

TEST(RemoteGain, AHostBehindASlowNetworkDoesNot) {
  EXPECT_FALSE(GainOfRemotes(With(1.0), Machine(20e-3), PlaceMode::kAuto).pays());
  const RemoteGain forced = GainOfRemotes(With(1.0), Machine(20e-3), PlaceMode::kCooperative);
  EXPECT_LT(forced.factor(), 0.6) << "what is there runs there";
}

TEST(RemoteGain, NothingThereChangesNothing) {
  EXPECT_EQ(GainOfRemotes(With(0.0), Machine(0.5e-3), PlaceMode::kAuto).factor(), 1.0);
}

TEST(RemoteGain, WhereAllIsInMemoryThereIsLittleToGain) {
  RemoteCase all = With(1.0);
  all.in_memory = 1.0;
  EXPECT_LT(GainOfRemotes(all, Machine(0.5e-3), PlaceMode::kAuto).factor(), 2.01);
  EXPECT_FALSE(GainOfRemotes(all, Machine(2e-3), PlaceMode::kAuto).pays());
}

}  // namespace
}  // namespace moestro
