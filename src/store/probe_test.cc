// SPDX-License-Identifier: MIT
#include "store/probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "store/files_testing.h"
#include "tests/support/fault_reader_testing.h"
#include "tests/support/memory_reader_testing.h"

namespace moestro {
namespace {

constexpr uint64_t kProbeBlock = 4096;

// Passes reads on and records them.
class Recorder final : public BlockReader {
 public:
  explicit Recorder(MemoryReader inner) : inner_(std::move(inner)) {}
  uint64_t block() const override { return inner_.block(); }
  bool Submit(const BlockRead& read) override {
    if (!inner_.Submit(read)) return false;
    offsets.push_back(read.offset);
    lengths.insert(read.to.size());
    most_in_flight = std::max(most_in_flight, ++in_flight_);
    return true;
  }
  size_t Poll(std::span<BlockDone> out) override { return Take(inner_.Poll(out)); }
  size_t Wait(std::span<BlockDone> out) override { return Take(inner_.Wait(out)); }
  std::string description() const override { return "recorder"; }

  std::vector<uint64_t> offsets;
  std::set<uint64_t> lengths;
  size_t most_in_flight = 0;

 private:
  size_t Take(size_t n) {
    in_flight_ -= n;
    return n;
  }

  MemoryReader inner_;
  size_t in_flight_ = 0;
};

Recorder Disk(uint64_t bytes, MemoryScript script = {}) {
  return Recorder(MemoryReader({RandomBytes(bytes, 1)}, std::move(script)));
}

TEST(Probe, ReadsEachPlaceOfTheRegionsOnceAtMost) {
  Recorder disk = Disk(100 * kProbeBlock, {.queue_depth = 3});
  const std::vector<Extent> regions{{0, 10 * kProbeBlock, 20 * kProbeBlock},
                                    {0, 60 * kProbeBlock, 9 * kProbeBlock}};
  const auto probe = ProbeBandwidth(disk, regions,
                                    {.reads = {.max_request = 2 * kProbeBlock, .max_in_flight = 8},
                                     .total = 12 * kProbeBlock,
                                     .seed = 4});
  ASSERT_TRUE(probe.has_value()) << probe.error().message;
  ASSERT_EQ(disk.offsets.size(), 6U);  // of the 15 requests that cover the regions' 29 blocks
  const std::set<uint64_t> different(disk.offsets.begin(), disk.offsets.end());
  EXPECT_EQ(different.size(), 6U);
  for (const uint64_t offset : different) {
    const uint64_t b = offset / kProbeBlock;
    EXPECT_TRUE((b >= 10 && b < 30 && b % 2 == 0) || (b >= 60 && b < 69 && b % 2 == 0)) << b;
  }
  EXPECT_GT(probe->bytes_per_second, 0.0);
  EXPECT_GT(probe->seconds, 0.0);
}

// The bound is worth something only if it is measured as the engine reads: the same requests, as
// many of them at a time.
TEST(Probe, ReadsAsTheQueueDoes) {
  constexpr uint64_t kMatrix = 300 * kProbeBlock - 96;  // 1.17 MiB: two requests of 150 blocks
  std::vector<Extent> matrices;
  for (uint64_t i = 0; i < 8; ++i) {
    matrices.push_back({.file = 0, .offset = 50 + i * 310 * kProbeBlock, .length = kMatrix});
  }
  Recorder probed = Disk(8 * 310 * kProbeBlock, {.polls = 3});
  ASSERT_TRUE(ProbeBandwidth(probed, matrices, {}));

  Recorder read = Disk(8 * 310 * kProbeBlock, {.polls = 3});
  ReadQueue queue(read, {"model.gguf"});
  const AlignedMemory memory(8 * 301 * kProbeBlock);
  for (uint64_t i = 0; i < matrices.size(); ++i) {
    queue.Enqueue({.from = matrices[i],
                   .landing = memory.span().subspan(i * 301 * kProbeBlock, 301 * kProbeBlock),
                   .tag = i});
  }
  std::vector<ExtentDone> done;
  while (!queue.idle()) queue.Wait(done);

  EXPECT_EQ(probed.most_in_flight, read.most_in_flight);
  EXPECT_EQ(probed.lengths, read.lengths);
  std::ranges::sort(probed.offsets);
  std::ranges::sort(read.offsets);
  EXPECT_EQ(probed.offsets, read.offsets);
}

TEST(Probe, SmallRegionsAreReadWhole) {
  Recorder disk = Disk(3 * kProbeBlock + 100);
  const std::vector<Extent> regions{{0, 100, 50}, {0, 2 * kProbeBlock, kProbeBlock + 100}};
  const auto probe = ProbeBandwidth(disk, regions, {});
  ASSERT_TRUE(probe.has_value()) << probe.error().message;
  EXPECT_EQ(probe->bytes, kProbeBlock + kProbeBlock + 100);
}

TEST(Probe, EndsWhenItsTimeIsOver) {
  Recorder disk = Disk(100 * kProbeBlock);
  const std::vector<Extent> regions{{0, 0, 100 * kProbeBlock}};
  const auto probe = ProbeBandwidth(
      disk, regions,
      {.reads = {.max_request = kProbeBlock, .max_in_flight = 3}, .most_seconds = 0.0});
  ASSERT_TRUE(probe.has_value()) << probe.error().message;
  EXPECT_EQ(disk.offsets.size(), 3U);  // the reads begun at once
  EXPECT_EQ(probe->bytes, 3 * kProbeBlock);
}

TEST(Probe, SeedDecidesTheOrder) {
  std::vector<std::vector<uint64_t>> orders;
  for (const uint64_t seed : {1U, 1U, 2U}) {
    Recorder disk = Disk(200 * kProbeBlock);
    const std::vector<Extent> regions{{0, 0, 200 * kProbeBlock}};
    ASSERT_TRUE(ProbeBandwidth(
        disk, regions, {.reads = {.max_request = kProbeBlock, .max_in_flight = 1}, .seed = seed}));
    EXPECT_EQ(disk.offsets.size(), 200U);
    orders.push_back(disk.offsets);
  }
  EXPECT_EQ(orders[0], orders[1]);
  EXPECT_NE(orders[0], orders[2]);
}

TEST(Probe, ErrorsAreReported) {
  Recorder disk = Disk(100 * kProbeBlock, {.faults = FaultScript().ErrorAt(2, EIO)});
  const std::vector<Extent> regions{{0, 0, 100 * kProbeBlock}};
  const auto failed = ProbeBandwidth(disk, regions, {.reads = {.max_request = kProbeBlock}});
  ASSERT_FALSE(failed.has_value());
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_EQ(failed.error().message, "disk bandwidth probe: Input/output error");
  const auto nothing = ProbeBandwidth(disk, {}, {});
  ASSERT_FALSE(nothing.has_value());
  EXPECT_EQ(nothing.error().code, Errc::kInvalidRequest);
}

class ReadsBesideTest : public ::testing::Test {
 protected:
  ReadsBeside::Open Reader(ReaderKind kind = ReaderKind::kAuto) const {
    return [kind, path = path_] { return OpenReader({.kind = kind}, {path}); };
  }
  std::vector<Extent> Regions() const {
    return {{.file = 0, .offset = 0, .length = kBytes / 2},
            {.file = 0, .offset = kBytes / 2, .length = kBytes / 2}};
  }
  static constexpr uint64_t kBytes = 1 << 20;
  const TempDir folder_;
  const std::string path_ = folder_.Write("weights", RandomBytes(kBytes, 1));
};

// A ring that is opened on one thread and used on another refuses.
TEST_F(ReadsBesideTest, ReadsUntilItIsStopped) {
  for (const ReaderKind kind : {ReaderKind::kAuto, ReaderKind::kPread}) {
    ReadsBeside reads(Reader(kind), Regions(), {});
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    const auto rate = reads.Stop();
    ASSERT_TRUE(rate) << rate.error().message;
    EXPECT_GT(*rate, 0.0);
  }
}

TEST_F(ReadsBesideTest, EndsWhenItGoes) { const ReadsBeside reads(Reader(), Regions(), {}); }

TEST_F(ReadsBesideTest, SaysWhatFailed) {
  const auto faulty = [this]() -> Result<std::unique_ptr<BlockReader>> {
    TRY(std::unique_ptr<BlockReader> inner, Reader()());
    return std::make_unique<FaultReader>(std::move(inner), FaultScript().ErrorFrom(0, EIO));
  };
  ReadsBeside reads(faulty, Regions(), {});
  const auto rate = reads.Stop();
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code, Errc::kIo);
}

TEST_F(ReadsBesideTest, NoFileIsAnError) {
  ReadsBeside reads([] { return OpenReader({}, {"/nowhere/at/all"}); }, Regions(), {});
  const auto rate = reads.Stop();
  ASSERT_FALSE(rate);
  EXPECT_EQ(rate.error().code, Errc::kIo);
}

TEST_F(ReadsBesideTest, NothingToReadIsAnError) {
  ReadsBeside reads(Reader(), {}, {});
  EXPECT_FALSE(reads.Stop());
}

}  // namespace
}  // namespace moestro
