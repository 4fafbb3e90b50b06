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
  std::unique_ptr<BlockReader> Reader() const {
    auto reader = OpenReader({.kind = ReaderKind::kPread}, {path_});
    EXPECT_TRUE(reader) << reader.error().message;
    return *std::move(reader);
  }
  std::vector<Extent> Regions() const {
    return {{.file = 0, .offset = 0, .length = kBytes / 2},
            {.file = 0, .offset = kBytes / 2, .length = kBytes / 2}};
  }
  static constexpr uint64_t kBytes = 1 << 20;
  const TempDir folder_;
  const std::string path_ = folder_.Write("weights", RandomBytes(kBytes, 1));
};

TEST_F(ReadsBesideTest, ReadsUntilItIsStopped) {
  ReadsBeside reads(Reader(), Regions(), {});
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const auto rate = reads.Stop();
  ASSERT_TRUE(rate) << rate.error().message;
  EXPECT_GT(*rate, 0.0);
}

TEST_F(ReadsBesideTest, EndsWhenItGoes) { const ReadsBeside reads(Reader(), Regions(), {}); }

TEST_F(ReadsBesideTest, SaysWhatFailed) {
  auto faulty = std::make_unique<FaultReader>(Reader(), FaultPlan().ErrorFrom(0, EIO));
  ReadsBeside reads(std::move(faulty), Regions(), {});
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
