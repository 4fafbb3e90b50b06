// SPDX-License-Identifier: MIT
#include "residency/residency.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "residency/leases.h"
#include "residency/residency_testing.h"

namespace moestro {
namespace {

TEST_F(ResidencyTest, WhatADeviceHasFreesItsSlot) {
  Create(1);
  std::optional<Lease> lease = residency_->TryAcquire(Key(0, 1), Use::kDecode);
  residency_->Drain();
  residency_->Drop(Key(0, 1));
  EXPECT_TRUE(residency_->contains(Key(0, 1)));  // leased
  lease.reset();
  residency_->Drop(Key(0, 1));
  EXPECT_FALSE(residency_->contains(Key(0, 1)));
  lease = residency_->TryAcquire(Key(1, 2), Use::kDecode);
  ASSERT_TRUE(lease);
  EXPECT_EQ(residency_->stats().evictions, 0U);
  residency_->Drain();
  ExpectBytes(*lease);
}

TEST_F(ResidencyTest, EveryExpertArrivesAsItStandsInTheFile) {
  Create(2);
  for (int round = 0; round < 2; ++round) {
    for (int layer = 0; layer < 2; ++layer) {
      for (int e = 0; e < 4; ++e) {
        auto lease = residency_->TryAcquire(Key(layer, e), Use::kDecode);
        ASSERT_TRUE(lease.has_value());
        while (!AllLanded(*lease)) residency_->Wait();
        ExpectBytes(*lease);
      }
    }
  }
  EXPECT_EQ(residency_->stats().misses, 16U);  // a cycle of 8 through 2 slots
  EXPECT_EQ(residency_->stats().evictions, 14U);
}

// As large as the pages of arm64 machines, and no larger than their files.
TEST_F(ResidencyTest, SlotsSuitBlocksOfEverySize) {
  for (const uint64_t block : {16 * kKiB, 64 * kKiB}) {
    residency_.reset();
    OpenDisk(block);
    Create(3);
    for (int e = 0; e < 4; ++e) {
      auto lease = residency_->TryAcquire(Key(1, e), Use::kDecode);
      ASSERT_TRUE(lease.has_value());
      while (!AllLanded(*lease)) residency_->Wait();
      ExpectBytes(*lease);
    }
  }
}

TEST_F(ResidencyTest, RecalledExpertsTakeFreeSlots) {
  Create(3);
  residency_->Recall({{Key(0, 1), 1}, {Key(0, 2), 1}, {Key(0, 3), 1}, {Key(1, 0), 1}});
  residency_->RecallAhead(1);
  EXPECT_TRUE(residency_->contains(Key(0, 1)));
  EXPECT_FALSE(residency_->contains(Key(0, 2)));  // the first one's reads are under way
  auto lease = residency_->TryAcquire(Key(1, 3), Use::kDecode);
  ASSERT_TRUE(lease);
  residency_->Drain();
  ExpectBytes(*lease);
  lease.reset();
  // The third slot is filled, and for the rest no slot is free.
  while (residency_->is_recalling()) {
    residency_->RecallAhead(100);
    residency_->Drain();
  }
  EXPECT_TRUE(residency_->contains(Key(0, 2)));
  EXPECT_FALSE(residency_->contains(Key(0, 3)));
  EXPECT_TRUE(residency_->contains(Key(1, 3)));
  EXPECT_EQ(residency_->stats().requests, 1U);
  EXPECT_EQ(residency_->stats().evictions, 0U);
  ExpectBytes(*residency_->TryAcquire(Key(0, 1), Use::kDecode));
}

// A caller waits for what is under way: that is bounded by bytes, whatever an expert's size.
TEST_F(ResidencyTest, RecalledBytesUnderWayAreBounded) {
  Create(8);
  std::vector<SlotTable::Used> all;
  for (int e = 0; e < 4; ++e) all.push_back({Key(0, e), 1});
  residency_->Recall(all);
  const auto n_there = [&] {
    int n = 0;
    for (const SlotTable::Used& one : all) n += residency_->contains(one.key) ? 1 : 0;
    return n;
  };
  residency_->RecallAhead(20'000);  // an expert has 17,000
  EXPECT_EQ(n_there(), 2);
  residency_->RecallAhead(20'000);
  EXPECT_EQ(n_there(), 2);
  residency_->Drain();
  residency_->RecallAhead(20'000);
  EXPECT_EQ(n_there(), 4);
  EXPECT_FALSE(residency_->is_recalling());
}

TEST_F(ResidencyTest, ARecalledExpertThatIsWantedBecomesUrgent) {
  Create(3);
  residency_->Recall({{Key(0, 1), 1}});
  residency_->RecallAhead(1);
  const auto lease = residency_->TryAcquire(Key(0, 1), Use::kDecode);
  ASSERT_TRUE(lease);
  EXPECT_EQ(lease->was(), Placement::Was::kLoading);
  while (!AllLanded(*lease)) residency_->Wait();
  ExpectBytes(*lease);
}

TEST_F(ResidencyTest, ARecalledReadThatFailsIsReadAgainWhenWanted) {
  Create(3);
  reader_->FailFrom(0);
  residency_->Recall({{Key(0, 1), 1}});
  residency_->RecallAhead(1);
  residency_->Drain();
  EXPECT_FALSE(residency_->contains(Key(0, 1)));
  EXPECT_FALSE(residency_->TakeError());
  reader_->FailFrom(~uint64_t{0});
  const auto lease = residency_->TryAcquire(Key(0, 1), Use::kDecode);
  while (!AllLanded(*lease)) residency_->Wait();
  ExpectBytes(*lease);
}

TEST_F(ResidencyTest, NothingLandsBeforeItsReadIsDone) {
  Create(2);
  auto lease = residency_->TryAcquire(Key(0, 1), Use::kDecode);
  ASSERT_TRUE(lease.has_value());
  residency_->Pump();
  EXPECT_FALSE(lease->landed(Matrix::kGate));
  reader_->Release(1);
  residency_->Pump();
  EXPECT_TRUE(lease->landed(Matrix::kGate));
  EXPECT_FALSE(lease->landed(Matrix::kDown));
  reader_->Release(2);
  residency_->Pump();
  EXPECT_TRUE(AllLanded(*lease));
}

TEST_F(ResidencyTest, GateAndUpOfAFusedFileAreOneRead) {
  catalog_ = {};
  catalog_.Add(ExpertLayerId{0}, ExpertId{0}, {},
               {Extent{.offset = 96, .length = 10000}, {}, {.offset = 20001, .length = 7000}},
               true);
  Create(1);
  auto lease = residency_->TryAcquire(Key(0, 0), Use::kDecode);
  ASSERT_TRUE(lease.has_value());
  residency_->Pump();
  EXPECT_FALSE(lease->landed(Matrix::kUp));
  reader_->Release(1);
  residency_->Pump();
  EXPECT_TRUE(lease->landed(Matrix::kGate) && lease->landed(Matrix::kUp));
  EXPECT_FALSE(lease->is_complete());
  reader_->Release(1);
  residency_->Pump();
  ASSERT_TRUE(lease->is_complete());
  const ExpertCopy& copy = catalog_.copy(Key(0, 0));
  EXPECT_EQ(copy.matrix(Matrix::kUp), (Extent{.offset = 5096, .length = 5000}));
  for (const Matrix m : {Matrix::kGate, Matrix::kUp, Matrix::kDown}) {
    const Extent from = copy.matrix(m);
    EXPECT_EQ(0, std::memcmp(lease->matrix(m), file_.data() + from.offset, from.length));
  }
  // An expert given up by a device returns to the place in a slot where a read would put it.
  lease.reset();
  residency_->Drop(Key(0, 0));
  bool was_asked = false;
  residency_->Adopt(Key(0, 0), {}, [&](const std::array<std::byte*, kMatrices>& to) {
    was_asked = true;
    EXPECT_EQ(to[1], to[0] + 5000);
    return true;
  });
  EXPECT_TRUE(was_asked);
}

TEST_F(ResidencyTest, ASecondRequestSharesTheReadUnderWay) {
  Create(2);
  auto first = residency_->TryAcquire(Key(0, 1), Use::kDecode);
  auto second = residency_->TryAcquire(Key(0, 1), Use::kDecode);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->was(), Placement::Was::kLoading);
  residency_->Pump();
  EXPECT_EQ(reader_->waiting(), 3U);
  EXPECT_EQ(first->matrix(Matrix::kUp), second->matrix(Matrix::kUp));
}

TEST_F(ResidencyTest, LeasedSlotsAreNeverGivenAway) {
  Create(2);
  auto a = residency_->TryAcquire(Key(0, 0), Use::kDecode);
  auto b = residency_->TryAcquire(Key(0, 1), Use::kDecode);
  EXPECT_FALSE(residency_->TryAcquire(Key(0, 2), Use::kDecode).has_value());
  while (!AllLanded(*a) || !AllLanded(*b)) residency_->Wait();
  EXPECT_FALSE(residency_->TryAcquire(Key(0, 2), Use::kDecode).has_value());
  b.reset();
  auto c = residency_->TryAcquire(Key(0, 2), Use::kDecode);
  ASSERT_TRUE(c.has_value());
  while (!AllLanded(*c)) residency_->Wait();
  ExpectBytes(*a);
  ExpectBytes(*c);
}

TEST_F(ResidencyTest, AFailedReadIsReportedAndItsSlotComesBack) {
  Create(1);
  reader_->FailFrom(0);
  {
    auto lease = residency_->TryAcquire(Key(0, 0), Use::kDecode);
    ASSERT_TRUE(lease.has_value());
    std::optional<Error> error;
    for (int i = 0; i < 20 && !error; ++i) {
      residency_->Wait();
      error = residency_->TakeError();
    }
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code, Errc::kIo);
    EXPECT_NE(error->message.find("model.gguf"), std::string::npos) << error->message;
    while (!queue_->idle()) residency_->Wait();
  }
  reader_->FailFrom(~uint64_t{0});
  auto again = residency_->TryAcquire(Key(0, 0), Use::kDecode);
  ASSERT_TRUE(again.has_value());
  while (!AllLanded(*again)) residency_->Wait();
  ExpectBytes(*again);
}

TEST_F(ResidencyTest, AStreamTakesMoreExpertsThanThereAreSlots) {
  Create(2);
  std::vector<ExpertKey> keys = {Key(1, 0), Key(1, 1), Key(1, 2), Key(1, 3)};
  LeaseStream stream(*residency_, keys, Urgency::kDemand);
  stream.Advance();
  EXPECT_NE(stream.lease(1), nullptr);
  EXPECT_EQ(stream.lease(2), nullptr);
  for (size_t i = 0; i < keys.size(); ++i) {
    stream.Advance();
    ASSERT_NE(stream.lease(i), nullptr);
    while (!AllLanded(*stream.lease(i))) residency_->Wait();
    ExpectBytes(*stream.lease(i));
    stream.LetGo(i);
  }
  EXPECT_TRUE(stream.all_taken());
}

TEST_F(ResidencyTest, AWithdrawnGuessIsNotReadAndItsSlotIsFree) {
  Create(1);
  auto prefetch = residency_->TryAcquire(Key(1, 0), Use::kPrefetch, Urgency::kSpeculative);
  ASSERT_TRUE(prefetch.has_value());
  residency_->Withdraw(*std::move(prefetch));
  EXPECT_EQ(residency_->stats().dropped_prefetches, 1U);
  EXPECT_FALSE(residency_->contains(Key(1, 0)));
  EXPECT_EQ(reader_->waiting(), 0U);
  EXPECT_TRUE(residency_->TryAcquire(Key(0, 0), Use::kDecode).has_value());
}

// The device has its first reads already: they go on, and the slot waits for them. A later request
// for the expert gets all of its bytes.
TEST_F(ResidencyTest, AGuessGivenUpHalfwayIsReadToItsEndOnDemand) {
  Create(1);
  auto prefetch = residency_->TryAcquire(Key(1, 0), Use::kPrefetch, Urgency::kSpeculative);
  residency_->Pump();
  EXPECT_EQ(reader_->waiting(), 2U);  // no more than max_speculative
  residency_->Withdraw(*std::move(prefetch));
  EXPECT_FALSE(residency_->TryAcquire(Key(0, 0), Use::kDecode).has_value());
  const auto wanted = residency_->TryAcquire(Key(1, 0), Use::kDecode);
  ASSERT_TRUE(wanted.has_value());
  residency_->Drain();
  EXPECT_TRUE(AllLanded(*wanted));
  ExpectBytes(*wanted);
  EXPECT_EQ(residency_->stats().used_prefetches, 1U);
}

TEST_F(ResidencyTest, AGuessGivenUpHalfwayFreesItsSlotWhenItsReadsAreDone) {
  Create(1);
  auto prefetch = residency_->TryAcquire(Key(1, 0), Use::kPrefetch, Urgency::kSpeculative);
  residency_->Pump();
  residency_->Withdraw(*std::move(prefetch));
  residency_->Drain();
  EXPECT_FALSE(residency_->contains(Key(1, 0)));
  const auto other = residency_->TryAcquire(Key(0, 0), Use::kDecode);
  ASSERT_TRUE(other.has_value());
  residency_->Drain();
  ExpectBytes(*other);
}

TEST_F(ResidencyTest, AFailedGuessIsNobodysErrorUntilTheExpertIsWanted) {
  Create(2);
  reader_->FailFrom(0);
  const auto prefetch = residency_->TryAcquire(Key(1, 0), Use::kPrefetch, Urgency::kSpeculative);
  residency_->Drain();
  EXPECT_FALSE(residency_->TakeError().has_value());
  const auto wanted = residency_->TryAcquire(Key(1, 0), Use::kDecode);
  ASSERT_TRUE(wanted.has_value());
  EXPECT_EQ(wanted->was(), Placement::Was::kAbsent);
  residency_->Drain();
  EXPECT_TRUE(residency_->TakeError().has_value());
}

// A prefill reads a layer's experts before the router has chosen.
TEST_F(ResidencyTest, AFailedReadAheadIsNobodysErrorUntilTheExpertIsWanted) {
  Create(2);
  reader_->FailFrom(0);
  const ExpertKey key = Key(1, 0);
  LeaseStream ahead(*residency_, {&key, 1}, Urgency::kSpeculative);
  ahead.Advance();
  ASSERT_TRUE(ahead.all_taken());
  residency_->Drain();
  EXPECT_FALSE(residency_->TakeError().has_value());
  reader_->FailFrom(~uint64_t{0});
  const auto wanted = residency_->TryAcquire(Key(1, 0), Use::kPrefill);
  ASSERT_TRUE(wanted.has_value());
  residency_->Drain();
  EXPECT_FALSE(residency_->TakeError().has_value());
  ExpectBytes(*wanted);
}

// An expert is requested while some of its reads have failed and others are under way.
TEST_F(ResidencyTest, AGuessThatFailedInPartIsReadAgainOnDemand) {
  Create(1);
  const auto prefetch = residency_->TryAcquire(Key(1, 0), Use::kPrefetch, Urgency::kSpeculative);
  residency_->Pump();
  reader_->FailFrom(0);
  reader_->Release(1);
  residency_->Pump();  // fails, and is tried again
  reader_->Release(2);
  residency_->Pump();  // fails for good
  reader_->FailFrom(~uint64_t{0});
  const auto wanted = residency_->TryAcquire(Key(1, 0), Use::kDecode);
  ASSERT_TRUE(wanted.has_value());
  residency_->Drain();
  EXPECT_FALSE(residency_->TakeError().has_value());
  EXPECT_TRUE(AllLanded(*wanted));
  ExpectBytes(*wanted);
}

// Memory of which the largest piece holds two slots and a half.
TEST_F(ResidencyTest, SlotsLieInPiecesWhereMemoryComesSo) {
  const uint64_t slot = catalog_.pools[0].slot_bytes(kBlock);
  std::vector<uint64_t> pieces;
  Create(5, {.allocate =
                 [&](uint64_t bytes) {
                   pieces.push_back(bytes);
                   return HostMemory::Allocate(bytes);
                 },
             .most_bytes = 2 * slot + slot / 2});
  EXPECT_EQ(pieces, (std::vector<uint64_t>{2 * slot, 2 * slot, slot}));
  for (size_t part = 0; part < 3; ++part) residency_->Populate(part, 3);
  std::vector<Lease> leases;
  for (int e = 0; e < 4; ++e) leases.push_back(*residency_->TryAcquire(Key(0, e), Use::kDecode));
  leases.push_back(*residency_->TryAcquire(Key(1, 0), Use::kDecode));
  reader_->Release(100);
  while (!residency_->idle()) residency_->Pump();
  for (const Lease& lease : leases) ExpectBytes(lease);
}

TEST_F(ResidencyTest, MemoryThatIsRefusedOrTooSmallForASlotIsAnError) {
  const std::array<uint64_t, 1> per_pool = {2};
  const HostMemorySource none{.allocate = [](uint64_t) -> Result<HostMemory> {
    return Fail(Errc::kNoMemory, "none left");
  }};
  const HostMemorySource small{.most_bytes = 4096};
  for (const HostMemorySource& memory : {none, small}) {
    const auto made =
        Residency::Create(catalog_, per_pool, PolicyChoice{}, *queue_, SteadySeconds, memory);
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().code, Errc::kNoMemory);
  }
}

TEST_F(ResidencyTest, TheReaderHasAllSlotsUntilTheyGo) {
  constexpr uint64_t kSlot = (2 + 2 + 1) * kBlock * 2;  // enough for one, in pieces of one
  Create(3, {.most_bytes = kSlot});
  EXPECT_GT(residency_->RegisterMemory(), 0U);
  EXPECT_EQ(reader_->registered().size(), 3U);
  {
    const auto lease = residency_->TryAcquire(Key(0, 0), Use::kDecode);
    const auto is_in = [&](std::span<const std::byte> piece) {
      return lease->matrix(Matrix::kGate) >= piece.data() &&
             lease->matrix(Matrix::kDown) < piece.data() + piece.size();
    };
    EXPECT_EQ(std::ranges::count_if(reader_->registered(), is_in), 1);
  }
  residency_->Pump();
  EXPECT_GT(reader_->waiting(), 0U);  // what is at the disk lands before the reader forgets
  residency_.reset();
  EXPECT_TRUE(reader_->registered().empty());
}

TEST_F(ResidencyTest, NotesStayWithTheBytesAndGoWithThem) {
  Create(1);
  reader_->Release(100);
  {
    const auto lease = residency_->TryAcquire(Key(0, 0), Use::kDecode);
    residency_->Drain();
    EXPECT_FALSE(lease->notes().was_used);
    EXPECT_FALSE(lease->notes().is_interleaved);
    lease->SetNotes({.was_used = true, .is_interleaved = true});
  }
  {
    const auto again = residency_->TryAcquire(Key(0, 0), Use::kDecode);
    EXPECT_TRUE(again->notes().was_used);
    EXPECT_TRUE(again->notes().is_interleaved);
  }
  const auto other = residency_->TryAcquire(Key(0, 1), Use::kDecode);
  residency_->Drain();
  EXPECT_FALSE(other->notes().was_used);
  EXPECT_FALSE(other->notes().is_interleaved);
}

}  // namespace
}  // namespace moestro
