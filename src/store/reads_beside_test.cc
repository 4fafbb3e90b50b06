// SPDX-License-Identifier: MIT
#include "store/reads_beside.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "store/files_testing.h"
#include "tests/support/fault_reader_testing.h"

namespace moestro {
namespace {

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
    return std::make_unique<FaultReader>(std::move(inner), FaultPlan().ErrorFrom(0, EIO));
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
