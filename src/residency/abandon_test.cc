// SPDX-License-Identifier: MIT
// Work that ended early: no caller waits for its reads under way, and their bytes do no harm when
// they land.
#include <gtest/gtest.h>

#include <cstddef>
#include <optional>
#include <random>
#include <vector>

#include "residency/residency.h"
#include "residency/residency_testing.h"

namespace moestro {
namespace {

class AbandonTest : public ResidencyTest {
 protected:
  // Requests an expert and releases the lease when the disk has `reads` of its three.
  void LeaveHalfway(ExpertKey key) {
    const auto lease = residency_->TryAcquire(key, Use::kPrefill, Urgency::kSpeculative);
    ASSERT_TRUE(lease);
    residency_->Pump();  // as many as may be under way speculatively: two
    ASSERT_EQ(reader_->waiting(), 2U);
  }
};

TEST_F(AbandonTest, NothingIsWaitedForAndSlotsComeBack) {
  Create(2);
  LeaveHalfway(Key(0, 0));
  residency_->Abandon();
  EXPECT_EQ(reader_->waiting(), 2U) << "nobody waited";
  auto other = residency_->TryAcquire(Key(1, 1), Use::kDecode);
  ASSERT_TRUE(other) << "in the other slot";
  EXPECT_FALSE(residency_->TryAcquire(Key(1, 2), Use::kDecode)) << "bytes may still come there";
  residency_->Drain();
  ExpectBytes(*other);
  auto late = residency_->TryAcquire(Key(1, 2), Use::kDecode);
  ASSERT_TRUE(late);
  residency_->Drain();
  ExpectBytes(*late);
  ExpectBytes(*other);
}

TEST_F(AbandonTest, WhatTheDiskHasNotBeenGivenIsNotRead) {
  Create(3);
  std::vector<Lease> leases;
  for (int e = 0; e < 3; ++e) {
    leases.push_back(*residency_->TryAcquire(Key(0, e), Use::kPrefill, Urgency::kSpeculative));
  }
  residency_->Pump();
  leases.clear();
  residency_->Abandon();
  EXPECT_TRUE(residency_->contains(Key(0, 0)));
  EXPECT_FALSE(residency_->contains(Key(0, 1)));
  EXPECT_FALSE(residency_->contains(Key(0, 2)));
  residency_->Drain();
  EXPECT_EQ(queue_->stats().requests, 2U);
  EXPECT_FALSE(residency_->contains(Key(0, 0))) << "a matrix of it is missing";
}

// A request during the expert's first reads gets all of its bytes.
TEST_F(AbandonTest, AnExpertThatIsWantedAgainComesWhole) {
  for (size_t landed = 0; landed <= 2; ++landed) {
    Create(1);
    LeaveHalfway(Key(0, 0));
    residency_->Abandon();
    reader_->Release(landed);
    if (landed < 2) residency_->Pump();
    const auto again = residency_->TryAcquire(Key(0, 0), Use::kDecode);
    ASSERT_TRUE(again) << landed;
    residency_->Drain();
    ASSERT_TRUE(again->is_complete()) << landed;
    ExpectBytes(*again);
    EXPECT_FALSE(residency_->TakeError());
  }
}

// An expert is requested again after one of its reads has failed and while two are under way.
TEST_F(AbandonTest, AnExpertOfWhichAReadFailedComesWholeAfterwards) {
  Create(1);
  reader_->FailFrom(0);
  {
    const auto lease = residency_->TryAcquire(Key(0, 0), Use::kDecode);
    residency_->Pump();
    reader_->Release(1);
    residency_->Pump();  // fails, and is tried again behind the two others
    reader_->Release(2);
    residency_->Pump();
    reader_->Release(1);
    residency_->Pump();
    ASSERT_TRUE(residency_->TakeError());
    ASSERT_GT(reader_->waiting(), 0U);
  }
  residency_->Abandon();
  reader_->FailFrom(~uint64_t{0});
  const auto again = residency_->TryAcquire(Key(0, 0), Use::kDecode);
  ASSERT_TRUE(again);
  residency_->Drain();
  EXPECT_TRUE(again->is_complete());
  ExpectBytes(*again);
  EXPECT_FALSE(residency_->TakeError());
}

TEST_F(AbandonTest, AReadOfSomebodyElsesGoesOn) {
  Create(3);
  const auto wanted = residency_->TryAcquire(Key(0, 0), Use::kDecode);
  {
    const auto guess = residency_->TryAcquire(Key(0, 1), Use::kPrefetch, Urgency::kSpeculative);
    residency_->Pump();
  }
  residency_->Abandon();
  residency_->Drain();
  EXPECT_TRUE(wanted->is_complete());
  ExpectBytes(*wanted);
}

TEST_F(AbandonTest, AnyOrderOfLeavingAndComingBackLeavesRightBytes) {
  std::mt19937 random(5);
  for (int round = 0; round < 300; ++round) {
    Create(1 + random() % 4);
    for (int step = 0; step < 12; ++step) {
      std::vector<Lease> leases;
      for (uint32_t i = 0; i < 1 + random() % 3; ++i) {
        const bool is_demand = random() % 2 == 0;
        auto lease = residency_->TryAcquire(
            Key(static_cast<int>(random() % 2), static_cast<int>(random() % 4)),
            is_demand ? Use::kDecode : Use::kPrefill,
            is_demand ? Urgency::kDemand : Urgency::kSpeculative);
        if (lease) leases.push_back(*std::move(lease));
      }
      random() % 2 == 0 ? residency_->Pump() : residency_->PumpAhead();
      reader_->Release(random() % 4);
      residency_->Pump();
      for (const Lease& lease : leases) {
        if (lease.is_complete()) ExpectBytes(lease);
      }
      leases.clear();
      if (random() % 2 == 0) residency_->Abandon();
    }
    const auto last = residency_->TryAcquire(Key(0, 0), Use::kDecode);
    residency_->Drain();
    const auto again = residency_->TryAcquire(Key(0, 0), Use::kDecode);
    ASSERT_TRUE(again);
    residency_->Drain();
    ASSERT_TRUE(again->is_complete()) << round;
    ExpectBytes(*again);
    EXPECT_FALSE(residency_->TakeError());
  }
}

}  // namespace
}  // namespace moestro
