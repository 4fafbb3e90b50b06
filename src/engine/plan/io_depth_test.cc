// SPDX-License-Identifier: MIT
#include "engine/plan/io_depth.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace moestro {
namespace {

uint32_t Choose(std::vector<DepthSpeed> measured) { return FewestThatFill(measured); }

TEST(IoDepth, AVirtualDiskIsFullWithFour) {
  EXPECT_EQ(Choose({{4, 2.4e9}, {8, 2.2e9}, {16, 2.1e9}, {32, 2.2e9}}), 4U);
}

TEST(IoDepth, AFastDriveWantsMore) {
  EXPECT_EQ(Choose({{4, 3.1e9}, {8, 5.2e9}, {16, 6.9e9}, {32, 7.0e9}}), 16U);
  EXPECT_EQ(Choose({{4, 3.1e9}, {8, 5.2e9}, {16, 6.0e9}, {32, 7.0e9}}), 32U);
}

TEST(IoDepth, FivePercentIsWhatMoreReadsMustBring) {
  EXPECT_EQ(Choose({{4, 95.0}, {8, 100.0}}), 4U);
  EXPECT_EQ(Choose({{4, 94.9}, {8, 100.0}}), 8U);
}

TEST(IoDepth, TheOrderOfMeasuringDoesNotCount) {
  EXPECT_EQ(Choose({{32, 7.0e9}, {8, 6.9e9}, {16, 6.9e9}, {4, 3.0e9}}), 8U);
  EXPECT_EQ(Choose({{16, 1.0}}), 16U);
}

TEST(RequestBytes, AreWhatTheDiskReadsInHalfAMillisecond) {
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(RequestBytes(0.5e9, 4), kMiB);
  EXPECT_EQ(RequestBytes(2.2e9, 4), kMiB);
  EXPECT_EQ(RequestBytes(4.1e9, 4), kMiB);
  EXPECT_EQ(RequestBytes(7.0e9, 4), 2 * kMiB);
  EXPECT_EQ(RequestBytes(14.0e9, 4), 4 * kMiB);
  EXPECT_EQ(RequestBytes(1e12, 4), 4 * kMiB);
}

TEST(RequestBytes, TakeNoMoreMemoryThanTheDeepestQueue) {
  constexpr uint64_t kMiB = 1 << 20;
  EXPECT_EQ(RequestBytes(14.0e9, 8), 4 * kMiB);
  EXPECT_EQ(RequestBytes(14.0e9, 16), 2 * kMiB);
  EXPECT_EQ(RequestBytes(14.0e9, 32), kMiB);
  EXPECT_EQ(RequestBytes(14.0e9, 256), kMiB);
}

TEST(RequestBytes, AnySpeedMayComeIn) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(RequestBytes(0.0, 4), kLeastRequest);
  EXPECT_EQ(RequestBytes(-1.0, 4), kLeastRequest);
  EXPECT_EQ(RequestBytes(std::numeric_limits<double>::quiet_NaN(), 4), kLeastRequest);
  EXPECT_EQ(RequestBytes(kInfinite, 4), kMostRequest);
  EXPECT_EQ(RequestBytes(-kInfinite, 4), kLeastRequest);
}

}  // namespace
}  // namespace moestro
