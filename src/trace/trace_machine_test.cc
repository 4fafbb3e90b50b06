// SPDX-License-Identifier: MIT
#include "trace/trace_machine.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/temp_folder_testing.h"
#include "trace/trace.h"
#include "trace/trace_file.h"

namespace moestro {
namespace {

constexpr MoeShape kShape{2, 4, 2};

ExpertPools TwoPools() {
  return {.pools = {{.matrix_bytes = {100, 100, 120}, .slots = 3},
                    {.matrix_bytes = {100, 100, 160}, .slots = 5}},
          .pool_of = {0, 0, 0, 0, 1, 1, 1, 0}};
}

MachineCosts Measured() {
  return {.compute = 0.07,
          .expert_share = 0.55,
          .first_use = 0.4,
          .second_use = 0.9,
          .bandwidth = 2.5e9,
          .read_latency = 2e-4,
          .layer_wait = 1e-4,
          .compute_beside = 1.2,
          .read_beside = 1.1,
          .io_depth = 8,
          .max_read = 1U << 19};
}

class TraceMachineTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return (folder_.path() / name).string(); }
  // Of one token.
  std::string Written(TraceInfo info) const {
    info.model = {.name = "small", .shape = kShape};
    auto trace = Trace::Create(std::move(info));
    EXPECT_TRUE(trace) << trace.error().message;
    const std::vector<ExpertId> experts = {{0}, {1}, {2}, {3}};
    EXPECT_TRUE(trace->Add({.experts = experts}));
    EXPECT_TRUE(WriteTrace(Path("t"), *trace));
    std::ifstream file(Path("t"), std::ios::binary);
    std::stringstream bytes;
    bytes << file.rdbuf();
    return bytes.str();
  }
  Result<Trace> ReadBytes(const std::string& bytes) const {
    std::ofstream(Path("u"), std::ios::binary) << bytes;
    return ReadTrace(Path("u"));
  }
  // With the checksum made right again.
  Result<Trace> ReadSummed(std::string bytes) const {
    bytes.resize(bytes.size() - 8);
    uint64_t sum = 0xcbf29ce484222325;
    for (const char c : bytes) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(sum >> shift);
    return ReadBytes(bytes);
  }
  TempFolder folder_;
};

TEST_F(TraceMachineTest, PoolsAndCostsComeBackFromDisk) {
  for (const TraceInfo& info :
       {TraceInfo{.pools = TwoPools(), .costs = Measured()}, TraceInfo{.pools = TwoPools()},
        TraceInfo{.pools = {.pools = {TwoPools().pools.front()}}},
        TraceInfo{.pools = {.pools = {{.matrix_bytes = {200, 0, 120}, .slots = 3}}}},
        TraceInfo{.costs = Measured()}, TraceInfo{}}) {
    Written(info);
    const auto read = ReadTrace(Path("t"));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(read->info().pools, info.pools);
    EXPECT_EQ(read->info().costs, info.costs);
    EXPECT_EQ(read->info().model.name, "small");
    EXPECT_EQ(read->experts(0, 1)[1], ExpertId{3});
  }
}

TEST_F(TraceMachineTest, EveryTruncationAndEveryFlippedByteIsRefused) {
  const std::string whole = Written({.pools = TwoPools(), .costs = Measured()});
  for (size_t n = 0; n < whole.size(); ++n) {
    const auto cut = ReadBytes(whole.substr(0, n));
    ASSERT_FALSE(cut) << n;
    EXPECT_EQ(cut.error().code, Errc::kInvalidFile);
    std::string flipped = whole;
    flipped[n] = static_cast<char>(flipped[n] ^ 0x41);
    EXPECT_FALSE(ReadBytes(flipped)) << n;
  }
}

// Where pools begin: after 60 bytes and the name.
constexpr size_t kPoolsAt = 60 + 5;
constexpr size_t kIndicesAt = kPoolsAt + 4 + 2 * 4 * 8;
constexpr size_t kCostsAt = kIndicesAt + 8 * 2;

TEST_F(TraceMachineTest, PoolsThatCannotBeAreRefused) {
  const std::string whole = Written({.pools = TwoPools(), .costs = Measured()});
  const auto with = [&](size_t at, const std::string& value) {
    std::string bytes = whole;
    bytes.replace(at, value.size(), value);
    const auto read = ReadSummed(bytes);
    return read ? std::string("taken") : read.error().message;
  };
  EXPECT_EQ(with(kPoolsAt, std::string(1, 2)), "taken");
  EXPECT_TRUE(with(kPoolsAt, std::string(4, 0)).contains("0 pools"));
  EXPECT_TRUE(with(kPoolsAt, std::string(4, '\xff')).contains("4294967295 pools"));
  EXPECT_EQ(with(kPoolsAt + 4, std::string(8, 0)), "taken");  // experts without a gate
  EXPECT_TRUE(with(kPoolsAt + 4, std::string(24, 0)).contains("experts of no bytes in pool 0"));
  EXPECT_TRUE(with(kPoolsAt + 4, std::string(8, '\xff')).contains("bytes in pool 0"));
  EXPECT_TRUE(with(kPoolsAt + 4 + 24, std::string(8, '\xff')).contains("slots in pool 0"));
  EXPECT_TRUE(with(kIndicesAt, std::string(1, 2)).contains("pool 2 of 2"));
  EXPECT_EQ(with(kIndicesAt, std::string(1, 1)), "taken");
}

TEST_F(TraceMachineTest, CostsThatNobodyMeasuredAreRefused) {
  const std::string whole = Written({.pools = TwoPools(), .costs = Measured()});
  for (const double value : {-1.0, std::numeric_limits<double>::quiet_NaN(),
                             std::numeric_limits<double>::infinity(), 1e300}) {
    for (size_t i = 0; i < 9; ++i) {
      std::string bytes = whole;
      std::string number;
      AppendNumber(number, value);
      bytes.replace(kCostsAt + i * 8, 8, number);
      const auto read = ReadSummed(bytes);
      ASSERT_FALSE(read) << value << " at " << i;
      EXPECT_TRUE(read.error().message.contains("costs")) << read.error().message;
    }
  }
  for (const size_t at : {kCostsAt + 72, kCostsAt + 76}) {
    std::string bytes = whole;
    bytes.replace(at, 4, std::string(4, 0));
    EXPECT_FALSE(ReadSummed(bytes));
  }
}

TEST_F(TraceMachineTest, PoolsMustFitTheShape) {
  ExpertPools pools = TwoPools();
  EXPECT_TRUE(CheckPools(pools, kShape));
  EXPECT_TRUE(CheckPools({}, kShape));
  pools.pool_of.pop_back();
  EXPECT_FALSE(CheckPools(pools, kShape));
  pools = TwoPools();
  pools.pool_of[3] = 2;
  EXPECT_FALSE(CheckPools(pools, kShape));
  pools = {.pools = std::vector<ExpertPools::Pool>(kMostPools + 1)};
  EXPECT_FALSE(Trace::Create({.model = {.shape = kShape}, .pools = pools}));
}

}  // namespace
}  // namespace moestro
