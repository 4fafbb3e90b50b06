// SPDX-License-Identifier: MIT
#include "sim/machine.h"

#include <gtest/gtest.h>

#include <vector>

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

}  // namespace
}  // namespace moestro
