// SPDX-License-Identifier: MIT
#include "native/weight_load.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>

#include "base/number.h"
#include "compute/cpu_device.h"
#include "compute/host_memory.h"
#include "tests/support/memory_reader_testing.h"

namespace moestro {
namespace {

constexpr uint64_t kBlock = 4096;

// Weights of several types and sizes in two files made of memory, none of them aligned.
class WeightLoadTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Add("vector", GGML_TYPE_F32, 300, 1, false);
    Add("small", GGML_TYPE_Q4_0, 256, 64, true);
    Add("large", GGML_TYPE_F32, 1024, 2100, false);  // more than two pieces
    for (int i = 0; i < 12; ++i) Add("q" + std::to_string(i), GGML_TYPE_Q8_0, 256, 160, true);
    Add("k", GGML_TYPE_Q4_K, 512, 256, true);
    Add("looked up", GGML_TYPE_Q4_0, 512, 1000, false);
  }

  void Add(const std::string& name, ggml_type type, int64_t n_in, int64_t n_out, bool multiplied) {
    const auto file = static_cast<uint32_t>(requests_.size() % 2);
    const uint64_t bytes = static_cast<uint64_t>(n_out) * ggml_row_size(type, n_in);
    files_[file].resize(files_[file].size() + 96);
    extents_.push_back({.file = file, .offset = files_[file].size(), .length = bytes});
    for (uint64_t i = 0; i < bytes; ++i) files_[file].push_back(std::byte(random_() % 251));
    requests_.push_back(
        {.name = name, .type = type, .ne = {n_in, n_out, 1, 1}, .only_multiplied = multiplied});
  }

  struct How {
    uint32_t threads = 2;
    bool repack = true;
    bool alone = false;
    uint64_t staging = 0;  // beside the longest piece; 0: what is advised
    MemoryScript script = {};
  };
  struct Loaded {
    Status status;
    std::vector<std::vector<std::byte>> weights;  // as they lie in memory
    uint64_t told = 0;                            // bytes stored, the last time
    bool was_idle = false;                        // the queue, afterwards
  };

  WeightSet Plan(const CpuDevice& device, bool repack) const {
    WeightSet set = WeightSet::Plan(device, requests_, {.allow_repack = repack});
    EXPECT_TRUE(set.Allocate().has_value());
    return set;
  }
  static std::vector<std::vector<std::byte>> BytesOf(const WeightSet& set) {
    std::vector<std::vector<std::byte>> bytes;
    for (size_t i = 0; i < set.size(); ++i) {
      bytes.emplace_back(ggml_nbytes(set.tensor(i)));
      std::memcpy(bytes.back().data(), set.tensor(i)->data, bytes.back().size());
    }
    return bytes;
  }
  // By one thread, one weight after the other.
  std::vector<std::vector<std::byte>> Expected(bool repack) const {
    auto device = CpuDevice::Open(1);
    WeightSet set = Plan(*device, repack);
    for (size_t i = 0; i < extents_.size(); ++i) {
      const std::span file(files_[extents_[i].file]);
      EXPECT_TRUE(set.Store(i, 0, file.subspan(extents_[i].offset, extents_[i].length)));
    }
    return BytesOf(set);
  }
  Loaded Load(const How& how) const {
    auto device = CpuDevice::Open(how.threads);
    auto team = Team::Create(*device);
    WeightSet set = Plan(*device, how.repack);
    MemoryReader reader({files_[0], files_[1]}, how.script);
    ReadQueue queue(reader, {"a.gguf", "b.gguf"}, {.max_request = 64 * kKiB});
    const std::vector<WeightPiece> pieces = CutWeights(set, extents_);
    const uint64_t bytes = how.staging > 0 ? pieces.front().from.length + how.staging
                                           : StagingFor(pieces) + 2 * kBlock;
    auto staging = HostMemory::Allocate(AlignUp(bytes, kBlock));
    Loaded loaded;
    loaded.status = LoadWeights({.set = set,
                                 .pieces = pieces,
                                 .queue = queue,
                                 .staging = staging->bytes(),
                                 .team = how.alone ? nullptr : &*team,
                                 .stored = [&](uint64_t stored) {
                                   EXPECT_GT(stored, loaded.told);
                                   loaded.told = stored;
                                 }});
    loaded.was_idle = queue.idle();
    loaded.weights = BytesOf(set);
    return loaded;
  }
  uint64_t all_bytes() const {
    uint64_t all = 0;
    for (const Extent& extent : extents_) all += extent.length;
    return all;
  }

  std::mt19937 random_{7};
  std::vector<std::byte> files_[2];
  std::vector<Extent> extents_;
  std::vector<WeightRequest> requests_;
};

TEST_F(WeightLoadTest, EveryWayGivesTheSameBits) {
  for (const bool repack : {false, true}) {
    const auto expected = Expected(repack);
    for (const How& how :
         {How{.threads = 1}, How{.threads = 3}, How{.threads = 2, .alone = true},
          How{.threads = 2, .staging = 2 * kBlock}, How{.threads = 4, .staging = 200 * kKiB},
          How{.threads = 2,
              .script = {.polls = 3, .order = MemoryScript::Order::kReversed, .queue_depth = 5}}}) {
      How its = how;
      its.repack = repack;
      const Loaded loaded = Load(its);
      ASSERT_TRUE(loaded.status.has_value()) << loaded.status.error().message;
      EXPECT_EQ(loaded.weights, expected) << how.threads << " " << how.staging;
      EXPECT_EQ(loaded.told, all_bytes());
      EXPECT_TRUE(loaded.was_idle);
    }
  }
}

TEST_F(WeightLoadTest, AReadThatFailsOnceIsTriedAgain) {
  const Loaded loaded = Load({.script = {.faults = FaultScript().ErrorAt(20, EIO)}});
  ASSERT_TRUE(loaded.status.has_value()) << loaded.status.error().message;
  EXPECT_EQ(loaded.weights, Expected(true));
}

// Whatever the place, the error comes back and nothing writes into the staging memory any more.
TEST_F(WeightLoadTest, AReadThatFailsForGoodEndsTheLoad) {
  for (const uint64_t nth : {0U, 1U, 30U, 100U}) {
    for (const bool alone : {false, true}) {
      const Loaded loaded = Load({.threads = 2,
                                  .alone = alone,
                                  .script = {.polls = 2,
                                             .order = MemoryScript::Order::kReversed,
                                             .faults = FaultScript().ErrorFrom(nth, EIO)}});
      ASSERT_FALSE(loaded.status.has_value()) << nth;
      EXPECT_EQ(loaded.status.error().code, Errc::kIo);
      EXPECT_NE(loaded.status.error().message.find(".gguf at offset"), std::string::npos)
          << loaded.status.error().message;
      EXPECT_TRUE(loaded.was_idle);
      EXPECT_LT(loaded.told, all_bytes());
    }
  }
}

TEST_F(WeightLoadTest, AFileThatWasCutOffIsNamed) {
  files_[1].resize(files_[1].size() / 2);
  const Loaded loaded = Load({});
  ASSERT_FALSE(loaded.status.has_value());
  EXPECT_EQ(loaded.status.error().code, Errc::kIo);
  EXPECT_TRUE(loaded.status.error().message.starts_with("b.gguf ends at byte "))
      << loaded.status.error().message;
  EXPECT_TRUE(loaded.was_idle);
}

TEST_F(WeightLoadTest, NothingToLoadIsDone) {
  requests_.clear();
  extents_.clear();
  EXPECT_EQ(StagingFor({}), 0U);
  EXPECT_TRUE(Load({}).status.has_value());
}

// A weight that changes its layout is one piece; other weights may be several, without gaps. The
// longest piece comes first.
TEST_F(WeightLoadTest, PiecesCoverEveryWeightAndTheLongestComesFirst) {
  auto device = CpuDevice::Open(1);
  const WeightSet set = Plan(*device, true);
  std::vector<WeightPiece> pieces = CutWeights(set, extents_);
  EXPECT_TRUE(std::ranges::is_sorted(pieces, std::ranges::greater(),
                                     [](const WeightPiece& p) { return p.from.length; }));
  std::ranges::sort(pieces, {}, [](const WeightPiece& p) { return std::pair(p.weight, p.offset); });
  std::vector<uint64_t> covered(set.size());
  std::vector<size_t> count(set.size());
  for (const WeightPiece& p : pieces) {
    EXPECT_EQ(p.offset, covered[p.weight]);
    EXPECT_EQ(p.from.offset, extents_[p.weight].offset + p.offset);
    covered[p.weight] += p.from.length;
    ++count[p.weight];
  }
  for (size_t i = 0; i < set.size(); ++i) {
    EXPECT_EQ(covered[i], extents_[i].length);
    EXPECT_TRUE(!set.is_repacked(i) || count[i] == 1) << requests_[i].name;
  }
  EXPECT_EQ(count[2], 3U);  // "large"
}

}  // namespace
}  // namespace moestro
