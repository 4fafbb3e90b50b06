// SPDX-License-Identifier: MIT
#include "offline/gguf_output.h"

#include <gtest/gtest.h>

#include <atomic>

namespace moestro {
namespace {

std::vector<std::byte> OneByte(uint64_t piece) { return {static_cast<std::byte>(piece & 0xff)}; }

TEST(InOrder, EveryPieceComesOnceInItsPlace) {
  for (const uint64_t n : {0U, 1U, 3U, 500U}) {
    for (const uint32_t threads : {1U, 2U, 7U}) {
      std::atomic<uint64_t> made = 0;
      uint64_t taken = 0;
      const Status done = RunInOrder(
          n, threads,
          [&](uint64_t piece) -> Result<std::vector<std::byte>> {
            ++made;
            return OneByte(piece);
          },
          [&](std::span<const std::byte> bytes) -> Status {
            EXPECT_EQ(bytes[0], OneByte(taken)[0]);
            ++taken;
            EXPECT_LE(made.load(), taken + size_t{2} * threads);  // no thread runs far ahead
            return {};
          });
      EXPECT_TRUE(done);
      EXPECT_EQ(taken, n);
      EXPECT_EQ(made.load(), n);
    }
  }
}

TEST(InOrder, TheFirstErrorInOrderIsGiven) {
  uint64_t taken = 0;
  const Status failed = RunInOrder(
      100, 4,
      [](uint64_t piece) -> Result<std::vector<std::byte>> {
        if (piece >= 41) return Fail(Errc::kIo, "piece {}", piece);
        return OneByte(piece);
      },
      [&](std::span<const std::byte>) -> Status {
        ++taken;
        return {};
      });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "piece 41");
  EXPECT_EQ(taken, 41U);
}

TEST(InOrder, AnErrorOfTheTakerEndsTheWork) {
  const Status failed = RunInOrder(
      100, 4, [](uint64_t piece) -> Result<std::vector<std::byte>> { return OneByte(piece); },
      [](std::span<const std::byte>) -> Status { return Fail(Errc::kIo, "full"); });
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().message, "full");
}

}  // namespace
}  // namespace moestro
