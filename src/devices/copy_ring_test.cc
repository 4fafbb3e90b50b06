// SPDX-License-Identifier: MIT
// The ring with a driver that copies as late as it may: a piece's bytes are read when the piece is
// awaited.
#include "devices/copy_ring.h"

#include <ggml-cpp.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <vector>

namespace moestro {
namespace {

class LateDriver {
 public:
  CopyRing::Driver driver() {
    return {.send =
                [this](ggml_tensor* tensor, uint64_t offset, std::span<const std::byte> bytes,
                       size_t piece) {
                  EXPECT_FALSE(sent_[piece]) << "a piece is used again while it is under way";
                  if (sends_++ == fails_send) return Failure();
                  sent_[piece] =
                      Sent{.to = static_cast<std::byte*>(tensor->data) + offset, .bytes = bytes};
                  return Status();
                },
            .await =
                [this](size_t piece) {
                  EXPECT_TRUE(sent_[piece]);
                  if (awaits_++ == fails_await) return Failure();
                  Land(piece);
                  return Status();
                },
            .drain =
                [this] {
                  if (is_lost) {
                    sent_ = {};
                    return Failure();
                  }
                  for (size_t piece = 0; piece < CopyRing::kPieces; ++piece) Land(piece);
                  return Status();
                }};
  }
  int under_way() const {
    return static_cast<int>(
        std::ranges::count_if(sent_, [](const auto& one) { return one.has_value(); }));
  }

  int fails_send = -1;
  int fails_await = -1;
  bool is_lost = false;

 private:
  struct Sent {
    std::byte* to;
    std::span<const std::byte> bytes;
  };
  static Status Failure() { return Fail(Errc::kDevice, "a driver that fails"); }
  void Land(size_t piece) {
    if (sent_[piece]) std::ranges::copy(sent_[piece]->bytes, sent_[piece]->to);
    sent_[piece].reset();
  }

  std::array<std::optional<Sent>, CopyRing::kPieces> sent_;
  int sends_ = 0;
  int awaits_ = 0;
};

class CopyRingTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kPiece = CopyRing::kPieceBytes;
  static constexpr uint64_t kAll = 16 * kPiece;

  CopyRingTest()
      : context_(ggml_init(
            {.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})),
        tensor_(ggml_new_tensor_1d(context_.get(), GGML_TYPE_I8, kAll)),
        there_(kAll),
        from_(kAll),
        ring_(*HostMemory::Allocate(CopyRing::kBytes), driver_.driver()) {
    tensor_->data = there_.data();
    for (size_t i = 0; i < kAll; ++i) from_[i] = static_cast<std::byte>(1 + i % 251);
  }
  Result<uint64_t> Begin(uint64_t first, uint64_t bytes, bool is_pinned = false) {
    return ring_.Begin(tensor_, first, std::span(from_).subspan(first, bytes), is_pinned);
  }
  bool IsThere(uint64_t first, uint64_t bytes) const {
    return std::memcmp(there_.data() + first, from_.data() + first, bytes) == 0;
  }

  ggml_context_ptr context_;
  ggml_tensor* tensor_;
  std::vector<std::byte> there_;
  std::vector<std::byte> from_;
  LateDriver driver_;
  CopyRing ring_;
};

TEST_F(CopyRingTest, CopiesOfAnySizePassThroughThePieces) {
  uint64_t at = 0;
  for (const uint64_t bytes : {uint64_t{1}, kPiece - 1, kPiece, kPiece + 1, 5 * kPiece + 7}) {
    const Result<uint64_t> number = Begin(at, bytes);
    ASSERT_TRUE(number);
    EXPECT_TRUE(ring_.Await(*number));
    EXPECT_TRUE(IsThere(at, bytes)) << bytes;
    EXPECT_EQ(there_[at + bytes], std::byte{0}) << bytes;
    at += bytes;
  }
}

// A slot's memory may be given to another expert once a copy from the slot has landed.
TEST_F(CopyRingTest, ACopyHasLandedWhenItIsAwaitedAndNotBefore) {
  const uint64_t first = *Begin(0, 100);
  const uint64_t second = *Begin(100, kPiece);
  EXPECT_EQ(driver_.under_way(), 2);
  EXPECT_FALSE(IsThere(0, 100));
  EXPECT_TRUE(ring_.Await(first));
  EXPECT_TRUE(IsThere(0, 100));
  EXPECT_FALSE(IsThere(100, kPiece));
  EXPECT_TRUE(ring_.Await(second));
  EXPECT_TRUE(IsThere(100, kPiece));
  EXPECT_TRUE(ring_.Await(first));  // long landed
}

TEST_F(CopyRingTest, PinnedBytesGoAsTheyAre) {
  const uint64_t number = *Begin(0, 3 * kPiece, true);
  EXPECT_EQ(driver_.under_way(), 1);
  from_[5] = std::byte{255};  // read later, since the ring has no copy
  EXPECT_TRUE(ring_.Await(number));
  EXPECT_TRUE(IsThere(0, 3 * kPiece));
}

TEST_F(CopyRingTest, ACopyThatFailsInTheMiddleLeavesOthersAlone) {
  driver_.fails_send = 3;
  const uint64_t before = *Begin(0, kPiece);
  const Result<uint64_t> failed = Begin(kPiece, 4 * kPiece);  // its third piece fails
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kDevice);
  EXPECT_EQ(driver_.under_way(), 0);
  EXPECT_TRUE(ring_.Await(before));
  EXPECT_TRUE(IsThere(0, kPiece));
  const uint64_t after = *Begin(8 * kPiece, 6 * kPiece);
  EXPECT_TRUE(ring_.Await(after));
  EXPECT_TRUE(IsThere(8 * kPiece, 6 * kPiece));
}

TEST_F(CopyRingTest, CopiesUnderWayFailWithALostDevice) {
  const uint64_t landed = *Begin(0, 10);
  EXPECT_TRUE(ring_.Await(landed));
  const uint64_t first = *Begin(10, 10);
  const uint64_t second = *Begin(20, 10);
  driver_.fails_await = 1;
  driver_.is_lost = true;
  EXPECT_FALSE(ring_.Await(first));
  const Result<uint64_t> third = Begin(30, 10);
  driver_.is_lost = false;  // the driver is back
  EXPECT_FALSE(ring_.Await(second));
  EXPECT_TRUE(ring_.Await(landed));
  ASSERT_TRUE(third);
  EXPECT_TRUE(ring_.Await(*third));
  EXPECT_TRUE(IsThere(30, 10));
}

// A copy that needs the place of a lost one fails with it; those that the first loss took along are
// told although others have landed meanwhile.
TEST_F(CopyRingTest, ASecondLossDoesNotHideTheFirst) {
  driver_.fails_send = 1;
  driver_.is_lost = true;
  const uint64_t lost = *Begin(0, 10);
  EXPECT_FALSE(Begin(10, 10));
  driver_.fails_send = 3;
  const uint64_t between = *Begin(20, 10);
  EXPECT_FALSE(Begin(30, 10));
  EXPECT_FALSE(ring_.Await(lost));
  EXPECT_FALSE(ring_.Await(between));
}

TEST(CopyRing, ADeviceWithoutPinnedMemoryHasNone) {
  const std::vector<DeviceInfo> found = FindDevices();
  const auto cpu = std::ranges::find(found, DeviceKind::kCpu, &DeviceInfo::kind);
  ASSERT_NE(cpu, found.end());
  const Result<ComputeDevice> device = ComputeDevice::Open(*cpu);
  ASSERT_TRUE(device);
  EXPECT_FALSE(CopyRing::Create(*device));
}

}  // namespace
}  // namespace moestro
