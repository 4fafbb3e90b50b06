// SPDX-License-Identifier: MIT
#include "residency/residency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "residency/lease_stream.h"

namespace moestro {
namespace {

constexpr uint64_t kBlock = 4096;

// A disk whose reads finish only when the test says so.
class HeldReader final : public BlockReader {
 public:
  explicit HeldReader(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

  uint64_t block() const override { return kBlock; }
  bool Submit(const BlockRead& read) override {
    waiting_.push_back(read);
    return true;
  }
  size_t Poll(std::span<BlockDone> out) override {
    size_t n = 0;
    while (released_ > 0 && !waiting_.empty() && n < out.size()) {
      out[n++] = Finish(waiting_.front());
      waiting_.pop_front();
      --released_;
    }
    return n;
  }
  size_t Wait(std::span<BlockDone> out) override {
    if (!waiting_.empty()) released_ = std::max<size_t>(released_, 1);
    return Poll(out);
  }
  std::string description() const override { return "held"; }

  void Release(size_t n) { released_ += n; }
  void FailFrom(uint64_t offset) { bad_from_ = offset; }
  size_t waiting() const { return waiting_.size(); }

 private:
  BlockDone Finish(const BlockRead& read) {
    if (read.offset >= bad_from_) return {.tag = read.tag, .error = EIO, .bytes = 0};
    const uint64_t n = std::min<uint64_t>(read.to.size(), bytes_.size() - read.offset);
    std::memcpy(read.to.data(), bytes_.data() + read.offset, n);
    return {.tag = read.tag, .error = 0, .bytes = n};
  }

  std::vector<std::byte> bytes_;
  std::deque<BlockRead> waiting_;
  size_t released_ = 0;
  uint64_t bad_from_ = ~uint64_t{0};
};

// Two layers of four experts; slices of 5000, 5000 and 7000 bytes at odd places in one file.
class ResidencyTest : public ::testing::Test {
 protected:
  static constexpr std::array<uint64_t, kMatrices> kSlices = {5000, 5000, 7000};

  void SetUp() override {
    uint64_t offset = 96;
    for (uint16_t layer = 0; layer < 2; ++layer) {
      std::array<std::array<Extent, kMatrices>, 4> slices;
      for (size_t m = 0; m < kMatrices; ++m) {
        for (auto& expert : slices) {
          expert[m] = {.file = 0, .offset = offset, .length = kSlices[m]};
          offset += kSlices[m] + 32;
        }
      }
      for (uint16_t e = 0; e < 4; ++e) catalog_.Add(LayerId{layer}, ExpertId{e}, {}, slices[e]);
    }
    std::vector<std::byte> bytes(offset);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 251);
    file_ = bytes;
    reader_ = std::make_unique<HeldReader>(bytes);
    queue_ = std::make_unique<ReadQueue>(*reader_, std::vector<std::string>{"model.gguf"},
                                         ReadQueueOptions{.max_speculative = 2});
  }

  void Create(uint64_t slots, const HostMemorySource& memory = {}) {
    const std::array<uint64_t, 1> per_pool = {slots};
    auto made =
        Residency::Create(catalog_, per_pool, PolicyChoice{}, *queue_, SteadySeconds, memory);
    ASSERT_TRUE(made.has_value());
    residency_ = *std::move(made);
  }

  static ExpertKey Key(int layer, int expert) {
    return {.layer = {static_cast<uint16_t>(layer)}, .expert = {static_cast<uint16_t>(expert)}};
  }
  static bool AllLanded(const Lease& lease) {
    return lease.landed(Matrix::kGate) && lease.landed(Matrix::kUp) && lease.landed(Matrix::kDown);
  }
  void ExpectBytes(const Lease& lease) const {
    for (size_t m = 0; m < kMatrices; ++m) {
      const Extent& from = catalog_.copy(lease.key()).slices[m];
      EXPECT_EQ(0, std::memcmp(lease.matrix(static_cast<Matrix>(m)), file_.data() + from.offset,
                               from.length));
    }
  }

  ExpertCatalog catalog_;
  std::vector<std::byte> file_;
  std::unique_ptr<HeldReader> reader_;
  std::unique_ptr<ReadQueue> queue_;
  std::unique_ptr<Residency> residency_;  // goes first
};

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

// Staging slots beside memory's: nobody leaves for what passes through, and it does not stay.
TEST_F(ResidencyTest, WhatIsStagedPassesMemoryBy) {
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
  const ResidencyStats stats = residency_->stats();
  EXPECT_EQ(stats.misses, 5U);
  EXPECT_EQ(stats.evictions, 0U);
  EXPECT_EQ(stats.needed_bytes, 5 * catalog_.pools[0].expert_bytes());
}

TEST_F(ResidencyTest, WhatMemoryHasIsNotStaged) {
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

// A staging slot is free again after its read, whether somebody waited for that or not.
TEST_F(ResidencyTest, StagedReadsMayFailOrBeAbandoned) {
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

// The device has its first reads already: they go on, the slot waits for them, and whoever wants
// the expert after all gets all of its bytes.
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

// A prefill reads a layer's experts before it knows which of them it needs.
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

// Some of its reads have failed while others are under way when the expert is wanted.
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

}  // namespace
}  // namespace moestro
