// SPDX-License-Identifier: MIT
#include "residency/table_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "tests/support/memory_reader_testing.h"

namespace moestro {
namespace {

constexpr uint64_t kRowBytes = 90;
constexpr uint64_t kRows = 200000;
constexpr uint64_t kOffset = 777;
constexpr uint32_t kAtOnce = 4000;

class TableRowsTest : public testing::Test {
 protected:
  TableRowsTest() : file_(kOffset + kRows * kRowBytes) {
    std::mt19937_64 random(1);
    for (std::byte& b : file_) b = static_cast<std::byte>(random());
  }
  static TableRows::Sizes Sizes() {
    return {.table = {.file = 0, .offset = kOffset, .length = kRows * kRowBytes},
            .row_bytes = kRowBytes,
            .rows_at_once = kAtOnce};
  }
  void Open(const MemoryScript& script = {}) {
    table_.reset();
    reader_ = std::make_unique<MemoryReader>(std::vector<std::vector<std::byte>>{file_}, script);
    auto table = TableRows::Create(Sizes(), *reader_, {"table.gguf"});
    ASSERT_TRUE(table) << table.error().message;
    table_ = *std::move(table);
  }
  static std::vector<uint64_t> SomeRows(size_t n, uint64_t seed, uint64_t below = kRows) {
    std::mt19937_64 random(seed);
    std::vector<uint64_t> rows(n);
    for (uint64_t& row : rows) row = random() % below;
    return rows;
  }
  // Compares the first rows.
  void ExpectRows(const std::vector<uint64_t>& rows) {
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::byte* expected = file_.data() + kOffset + rows[i] * kRowBytes;
      EXPECT_TRUE(std::equal(expected, expected + kRowBytes, table_->row(i))) << i;
    }
  }

  std::vector<std::byte> file_;
  std::unique_ptr<MemoryReader> reader_;
  std::unique_ptr<TableRows> table_;
};

TEST_F(TableRowsTest, RowsComeInTheOrderInWhichTheyAreAskedFor) {
  for (const auto order : {MemoryScript::Order::kSubmitted, MemoryScript::Order::kReversed}) {
    Open({.polls = 2, .order = order});
    for (uint64_t step = 0; step < 4; ++step) {
      const std::vector<uint64_t> rows = SomeRows(step == 2 ? 1 : kAtOnce, step);
      table_->Begin(rows);
      table_->Pump();
      ASSERT_TRUE(table_->Finish());
      ExpectRows(rows);
    }
  }
  table_->Begin({});
  EXPECT_TRUE(table_->Finish());
}

TEST_F(TableRowsTest, RowsUsedLastAreNotReadAgain) {
  Open();
  std::vector<uint64_t> rows = SomeRows(1000, 3);
  rows.insert(rows.end(), rows.begin(), rows.begin() + 500);  // twice in a step
  table_->Begin(rows);
  ASSERT_TRUE(table_->Finish());
  const TableCounts first = table_->counts();
  EXPECT_EQ(first.rows, 1500U);
  EXPECT_GE(first.hits, 500U);
  EXPECT_LE(first.reads, 1000U);
  EXPECT_GE(first.bytes_read, first.reads * 4096);
  std::ranges::reverse(rows);
  table_->Begin(rows);
  ASSERT_TRUE(table_->Finish());
  ExpectRows(rows);
  EXPECT_EQ(table_->counts().reads, first.reads);
  EXPECT_EQ(table_->counts().hits, first.hits + 1500);
}

TEST_F(TableRowsTest, ARowThatCannotBeReadIsAnErrorAndIsAskedForAnew) {
  Open({.faults = FaultScript().ErrorFrom(20, EIO)});
  table_->Begin(SomeRows(1000, 4));
  const Status failed = table_->Finish();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Errc::kIo);
  EXPECT_NE(failed.error().message.find("table.gguf"), std::string::npos);
  Open({.faults = FaultScript().ErrorAt(20, EIO)});  // once: it is tried again
  const std::vector<uint64_t> rows = SomeRows(1000, 4);
  table_->Begin(rows);
  ASSERT_TRUE(table_->Finish());
  ExpectRows(rows);
}

TEST_F(TableRowsTest, OtherRowsMayComeBetween) {
  Open({.polls = 1});
  const std::vector<uint64_t> rows = SomeRows(64, 5);
  const std::vector<uint64_t> others = SomeRows(16, 6);
  table_->Begin(rows);
  ASSERT_TRUE(table_->Finish());
  const std::vector<std::byte> aside = table_->Take(16);
  table_->Begin(others);
  ASSERT_TRUE(table_->Finish());
  ExpectRows(others);
  table_->Give(aside);
  ExpectRows(rows);
}

// A step that fails before it uses its rows leaves reads behind, and perhaps an error.
TEST_F(TableRowsTest, OthersThatAreNotFinishedLeaveTheRowsThatComeBack) {
  const std::vector<uint64_t> rows = SomeRows(64, 5);
  for (const bool fails : {false, true}) {
    const MemoryScript slow{.polls = 3};
    const MemoryScript broken{.polls = 3, .faults = FaultScript().ErrorFrom(64, EIO)};
    Open(fails ? broken : slow);
    table_->Begin(rows);
    ASSERT_TRUE(table_->Finish());
    const std::vector<std::byte> aside = table_->Take(64);
    table_->Begin(SomeRows(500, 6));
    for (int i = 0; i < (fails ? 20 : 1); ++i) table_->Pump();
    table_->Give(aside);
    table_->Pump();
    EXPECT_TRUE(table_->Finish());
    ExpectRows(rows);
  }
}

TEST_F(TableRowsTest, ACallThatEndsEarlyHarmsNoLaterOne) {
  Open({.polls = 3, .order = MemoryScript::Order::kReversed});
  table_->Begin(SomeRows(kAtOnce, 7));
  table_->Pump();
  const std::vector<uint64_t> rows = SomeRows(300, 8);
  table_->Begin(rows);
  ASSERT_TRUE(table_->Finish());
  ExpectRows(rows);
}

}  // namespace
}  // namespace moestro
