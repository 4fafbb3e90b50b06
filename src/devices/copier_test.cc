// SPDX-License-Identifier: MIT
// Copies to memory that ggml manages, with its CPU backend in a device's place.
#include "devices/copier.h"

#include <ggml-backend.h>
#include <ggml-cpp.h>
#include <ggml.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "compute/backend_calls.h"

namespace moestro {
namespace {

constexpr size_t kBytes = 4096;

void Open(std::atomic<bool>& gate) {
  gate = true;
  gate.notify_all();
}

class CopierTest : public testing::Test {
 protected:
  CopierTest()
      : context_(ggml_init(
            {.mem_size = 2 * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true})),
        tensor_(ggml_new_tensor_1d(context_.get(), GGML_TYPE_I8, 64 * kBytes)),
        buffer_(ggml_backend_alloc_ctx_tensors_from_buft(context_.get(),
                                                         ggml_backend_cpu_buffer_type())) {
    for (size_t i = 0; i < 64; ++i) from_.emplace_back(kBytes, static_cast<std::byte>(i + 1));
    std::memset(tensor_->data, 0, ggml_nbytes(tensor_));
  }
  Copier::Copy CopyOf(size_t i) {
    return {.begin = [this, i]() -> Result<uint64_t> {
              TRY_STATUS(CopyTo(tensor_, i * kBytes, from_[i]));
              return 0;
            },
            .bytes = kBytes};
  }
  std::byte At(size_t i) const {
    return static_cast<const std::byte*>(tensor_->data)[i * kBytes + kBytes - 1];
  }

  ggml_context_ptr context_;
  ggml_tensor* tensor_;
  ggml_backend_buffer_ptr buffer_;
  std::vector<std::vector<std::byte>> from_;
};

TEST_F(CopierTest, CopiesInOrderAndCounts) {
  Copier copier;
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(copier.Ask(CopyOf(i)), i + 1);
  EXPECT_TRUE(copier.Wait(1, 32));
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(At(i), static_cast<std::byte>(i + 1)) << i;
  EXPECT_TRUE(copier.is_done(32));
  EXPECT_TRUE(copier.Wait(1, 64));
  EXPECT_EQ(At(63), std::byte{64});
}

TEST_F(CopierTest, AFailedCopyIsToldToWhoeverWaitsForItAlone) {
  const auto count = std::make_shared<std::atomic<int>>(0);
  Copier copier([count] { return count->fetch_add(1) == 4; });
  for (size_t i = 0; i < 9; ++i) copier.Ask(CopyOf(i));
  EXPECT_TRUE(copier.Wait(7, 9));
  EXPECT_TRUE(copier.Wait(1, 4));
  EXPECT_FALSE(copier.Wait(4, 6));
  EXPECT_TRUE(copier.Wait(4, 6));  // the failure is reported once
  EXPECT_EQ(At(4), std::byte{0});  // the failed copy wrote nothing
  EXPECT_EQ(At(5), std::byte{6});
}

TEST_F(CopierTest, WhatACopyThrowsEndsItAloneAndNotTheProcess) {
  const auto count = std::make_shared<std::atomic<int>>(0);
  Copier copier([count]() -> bool {
    if (count->fetch_add(1) == 2) throw std::runtime_error("the device is lost");
    return false;
  });
  for (size_t i = 0; i < 5; ++i) copier.Ask(CopyOf(i));
  EXPECT_FALSE(copier.Wait(1, 5));
  EXPECT_TRUE(copier.Wait(4, 5));
  EXPECT_EQ(At(2), std::byte{0});
  EXPECT_EQ(At(4), std::byte{5});
}

// A clock that ticks at every call: a copy takes a second.
TEST_F(CopierTest, KnowsHowLongItsCopiesTook) {
  const auto now = std::make_shared<std::atomic<int>>(0);
  const auto count = std::make_shared<std::atomic<int>>(0);
  Copier copier([count] { return count->fetch_add(1) == 1; }, {},
                [now] { return static_cast<double>(now->fetch_add(1)); });
  for (size_t i = 0; i < 3; ++i) copier.Ask(CopyOf(i));
  EXPECT_FALSE(copier.Wait(1, 3));
  const Copier::Made first = copier.made();
  EXPECT_EQ(first.copies, 2U);  // one has failed
  EXPECT_EQ(first.bytes, 2 * kBytes);
  EXPECT_DOUBLE_EQ(first.seconds, 2.0);
  copier.Ask(CopyOf(5));
  EXPECT_TRUE(copier.Wait(4, 4));
  EXPECT_EQ((copier.made() - first).copies, 1U);
  EXPECT_DOUBLE_EQ((copier.made() - first).seconds, 1.0);
}

// Copies that have begun land in order, each while others are under way. The first copy begins
// when all are asked for: a copier with one copy alone lands it at once.
TEST_F(CopierTest, BeginsTheNextCopyBeforeTheLastHasLanded) {
  std::atomic<uint64_t> begun = 0;
  std::atomic<uint64_t> landed = 0;
  std::atomic<bool> are_asked = false;
  std::atomic<bool> is_open = false;
  Copier copier({}, [&](uint64_t number) -> Status {
    is_open.wait(false);
    EXPECT_EQ(number, ++landed);
    if (number == 5) return Fail(Errc::kDevice, "the copy was lost");
    return {};
  });
  for (size_t i = 0; i < 9; ++i) {
    copier.Ask({.begin = [&]() -> Result<uint64_t> {
                  are_asked.wait(false);
                  EXPECT_LT(begun - landed, Copier::kMostUnderWay);
                  return ++begun;
                },
                .bytes = kBytes});
  }
  Open(are_asked);
  while (begun < Copier::kMostUnderWay) std::this_thread::yield();
  EXPECT_FALSE(copier.is_done(1));
  Open(is_open);
  EXPECT_TRUE(copier.Wait(1, 4));
  EXPECT_FALSE(copier.Wait(5, 9));
  EXPECT_EQ(landed, 9U);
  EXPECT_EQ(copier.made().copies, 8U);
}

// A clock that ticks at every call: two copies begin at 0 and 1 and land at 2 and 3.
TEST_F(CopierTest, TimeInWhichTwoCopiesAreUnderWayCountsOnce) {
  const auto now = std::make_shared<std::atomic<int>>(0);
  std::atomic<bool> are_asked = false;
  std::atomic<bool> is_open = false;
  Copier copier(
      {},
      [&](uint64_t) -> Status {
        is_open.wait(false);
        return {};
      },
      [now] { return static_cast<double>(now->fetch_add(1)); });
  for (uint64_t i = 1; i <= 2; ++i) {
    copier.Ask({.begin = [&, i]() -> Result<uint64_t> {
                  are_asked.wait(false);
                  return i;
                },
                .bytes = kBytes});
  }
  Open(are_asked);
  while (*now < 2) std::this_thread::yield();
  Open(is_open);
  EXPECT_TRUE(copier.Wait(1, 2));
  EXPECT_DOUBLE_EQ(copier.made().seconds, 3.0);
}

TEST_F(CopierTest, EndsWithAllThatWasAskedFor) {
  {
    Copier copier;
    for (size_t i = 0; i < 64; ++i) copier.Ask(CopyOf(i));
  }
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(At(i), static_cast<std::byte>(i + 1)) << i;
}

}  // namespace
}  // namespace moestro
