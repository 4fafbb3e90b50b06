// SPDX-License-Identifier: MIT
#include "store/probe.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "store/memory_reader.h"
#include "store/test_files.h"

namespace moestro {
namespace {

constexpr uint64_t kBlock = 4096;

// Passes reads on and remembers them.
class Recorder final : public BlockReader {
 public:
  explicit Recorder(MemoryReader inner) : inner_(std::move(inner)) {}
  uint64_t block() const override { return inner_.block(); }
  bool Submit(const BlockRead& read) override {
    if (!inner_.Submit(read)) return false;
    offsets.push_back(read.offset);
    return true;
  }
  size_t Poll(std::span<BlockDone> out) override { return inner_.Poll(out); }
  size_t Wait(std::span<BlockDone> out) override { return inner_.Wait(out); }
  std::string description() const override { return "recorder"; }

  std::vector<uint64_t> offsets;

 private:
  MemoryReader inner_;
};

Recorder Disk(uint64_t bytes, MemoryScript script = {}) {
  return Recorder(MemoryReader({RandomBytes(bytes, 1)}, std::move(script)));
}

TEST(Probe, ReadsEachPlaceOfTheRegionsOnceAtMost) {
  Recorder disk = Disk(100 * kBlock, {.queue_depth = 3});
  const std::vector<Extent> regions{{0, 10 * kBlock, 20 * kBlock}, {0, 60 * kBlock, 9 * kBlock}};
  const auto probe = ProbeBandwidth(
      disk, regions, {.request = 2 * kBlock, .depth = 8, .total = 12 * kBlock, .seed = 4});
  ASSERT_TRUE(probe.has_value()) << probe.error().message;
  ASSERT_EQ(disk.offsets.size(), 6U);
  const std::set<uint64_t> different(disk.offsets.begin(), disk.offsets.end());
  EXPECT_EQ(different.size(), 6U);
  for (const uint64_t offset : different) {
    const uint64_t b = offset / kBlock;
    EXPECT_TRUE((b >= 10 && b < 30 && b % 2 == 0) || (b >= 60 && b < 69 && b % 2 == 0)) << b;
  }
  EXPECT_GT(probe->bytes_per_second, 0.0);
  EXPECT_GT(probe->seconds, 0.0);
}

TEST(Probe, SmallRegionsAreReadWhole) {
  Recorder disk = Disk(3 * kBlock + 100);
  const std::vector<Extent> regions{{0, 100, 50}, {0, 2 * kBlock, kBlock + 100}};
  const auto probe = ProbeBandwidth(disk, regions, {});
  ASSERT_TRUE(probe.has_value()) << probe.error().message;
  EXPECT_EQ(probe->bytes, kBlock + kBlock + 100);
}

TEST(Probe, SeedDecidesTheOrder) {
  std::vector<std::vector<uint64_t>> orders;
  for (const uint64_t seed : {1U, 1U, 2U}) {
    Recorder disk = Disk(200 * kBlock);
    const std::vector<Extent> regions{{0, 0, 200 * kBlock}};
    ASSERT_TRUE(ProbeBandwidth(disk, regions, {.request = kBlock, .depth = 1, .seed = seed}));
    EXPECT_EQ(disk.offsets.size(), 200U);
    orders.push_back(disk.offsets);
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
}

TEST(Probe, ErrorsAreReported) {
  Recorder disk = Disk(100 * kBlock, {.faults = FaultPlan().ErrorAt(2, EIO)});
  const std::vector<Extent> regions{{0, 0, 100 * kBlock}};
  const auto failed = ProbeBandwidth(disk, regions, {.request = kBlock, .depth = 4});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_EQ(failed.error().message, "disk bandwidth probe: Input/output error");
  const auto nothing = ProbeBandwidth(disk, {}, {});
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(nothing.error().code, Errc::kInvalidRequest);
}

}  // namespace
}  // namespace moestro
