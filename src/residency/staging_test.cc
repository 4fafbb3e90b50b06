// SPDX-License-Identifier: MIT
// Staging slots: what a device needs and memory is not to keep.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>

#include "residency/leases.h"
#include "residency/residency_testing.h"

namespace moestro {
namespace {

using StagingTest = ResidencyTest;

// Staging slots beside memory's: no expert leaves for a staged expert, and the staged expert does
// not stay.
TEST_F(StagingTest, WhatIsStagedPassesMemoryBy) {
  Create(1);
  ASSERT_TRUE(residency_->AllocateStaging(2));
  residency_->Populate(0, 1);
  residency_->TryAcquire(Key(0, 0), Use::kDecode);
  residency_->Drain();
  for (int round = 0; round < 2; ++round) {
    std::optional<Lease> one = residency_->TryStage(Key(0, 1), Use::kDecode, 1);
    std::optional<Lease> other = residency_->TryStage(Key(1, 2), Use::kPrefill, 3);
    ASSERT_TRUE(one && other);
    EXPECT_FALSE(residency_->TryStage(Key(0, 3), Use::kDecode, 1));  // no staging slot is free
    EXPECT_EQ(one->was(), Placement::Was::kAbsent);
    residency_->Drain();
    ExpectBytes(*one);
    ExpectBytes(*other);
    EXPECT_FALSE(residency_->contains(Key(0, 1)));
  }
  EXPECT_TRUE(residency_->contains(Key(0, 0)));
  const ExpertCounts stats = residency_->stats();
  EXPECT_EQ(stats.misses, 5U);
  EXPECT_EQ(stats.evictions, 0U);
  EXPECT_EQ(stats.needed_bytes, 5 * catalog_.pools[0].expert_bytes());
}

TEST_F(StagingTest, WhatMemoryHasIsNotStaged) {
  Create(1);
  ASSERT_TRUE(residency_->AllocateStaging(1));
  residency_->TryAcquire(Key(0, 0), Use::kDecode);
  const std::optional<Lease> lease = residency_->TryStage(Key(0, 0), Use::kDecode, 1);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->was(), Placement::Was::kLoading);
  EXPECT_TRUE(residency_->TryStage(Key(0, 1), Use::kDecode, 1));
  residency_->Drain();
  ExpectBytes(*lease);
}

// A staging slot is free again after its read, even if every lease ended before.
TEST_F(StagingTest, StagedReadsMayFailOrBeAbandoned) {
  Create(1);
  ASSERT_TRUE(residency_->AllocateStaging(1));
  EXPECT_TRUE(residency_->TryStage(Key(0, 1), Use::kDecode, 1));  // let go at once
  EXPECT_FALSE(residency_->TryStage(Key(0, 2), Use::kDecode, 1));
  residency_->Drain();
  reader_->FailFrom(0);
  {
    const std::optional<Lease> fails = residency_->TryStage(Key(0, 2), Use::kDecode, 1);
    ASSERT_TRUE(fails);
    residency_->Drain();
    EXPECT_TRUE(residency_->TakeError());
  }
  reader_->FailFrom(~uint64_t{0});
  const std::optional<Lease> again = residency_->TryStage(Key(0, 2), Use::kDecode, 1);
  ASSERT_TRUE(again);
  residency_->Drain();
  ExpectBytes(*again);
}

// An expert given up by a device takes a slot as if just used, but evicts none of those to keep.
TEST_F(StagingTest, WhatADeviceGivesUpIsInMemory) {
  Create(2);
  residency_->TryAcquire(Key(0, 0), Use::kDecode);
  residency_->TryAcquire(Key(0, 1), Use::kDecode);
  residency_->Drain();
  const auto fetch = [&](ExpertKey key) {
    return [this, key](const std::array<std::byte*, kMatrices>& to) {
      for (size_t m = 0; m < kMatrices; ++m) {
        const Extent& from = catalog_.copy(key).slices[m];
        std::memcpy(to[m], file_.data() + from.offset, from.length);
      }
      return true;
    };
  };
  const std::array stays = {Key(0, 0)};
  EXPECT_EQ(residency_->RoomFor(Key(1, 3), stays)->evicts, Key(0, 1));
  residency_->Adopt(Key(1, 3), stays, fetch(Key(1, 3)));
  EXPECT_TRUE(residency_->contains(Key(0, 0)));
  EXPECT_FALSE(residency_->contains(Key(0, 1)));
  {
    const std::optional<Lease> lease = residency_->TryAcquire(Key(1, 3), Use::kDecode);
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease->was(), Placement::Was::kReady);
    ExpectBytes(*lease);
    // No room: nothing happens, and no bytes are requested.
    const std::array all = {Key(0, 0)};
    EXPECT_FALSE(residency_->RoomFor(Key(1, 1), all));
    residency_->Adopt(Key(1, 1), all, [](const auto&) -> bool {
      ADD_FAILURE();
      return false;
    });
  }
  // Bytes that do not come leave an empty slot.
  residency_->Adopt(Key(1, 2), {}, [](const auto&) { return false; });
  EXPECT_FALSE(residency_->contains(Key(1, 2)));
  const std::optional<Lease> again = residency_->TryAcquire(Key(1, 2), Use::kDecode);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->was(), Placement::Was::kAbsent);
  residency_->Drain();
  ExpectBytes(*again);
  EXPECT_EQ(residency_->stats().requests, 4U);
}

// Experts are staged as the plan marks them; the others go through memory.
TEST_F(StagingTest, AStreamStagesWhatThePlanStages) {
  Create(1);
  ASSERT_TRUE(residency_->AllocateStaging(1));
  LayerPlan plan{.layer = ExpertLayerId{0}};
  for (const int e : {0, 1, 2}) {
    plan.experts.push_back({.key = Key(0, e),
                            .place = e == 0 ? Place::kHost : Place::kCopied,
                            .is_staged = e > 0,
                            .n_pairs = 1});
  }
  LeaseStream leases(*residency_, plan);
  leases.Advance();
  EXPECT_EQ(leases.taken(), 2U);  // one in each kind of slot
  residency_->Drain();
  ExpectBytes(*leases.lease(1));
  leases.LetGo(1);
  leases.Advance();
  ASSERT_TRUE(leases.all_taken());
  residency_->Drain();
  ExpectBytes(*leases.lease(2));
  EXPECT_TRUE(residency_->contains(Key(0, 0)));
  EXPECT_FALSE(residency_->contains(Key(0, 1)) || residency_->contains(Key(0, 2)));
}

}  // namespace
}  // namespace moestro
