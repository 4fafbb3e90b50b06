// SPDX-License-Identifier: MIT
#include "hosted/table_reads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "model/gguf_file.h"
#include "tests/support/temp_folder_testing.h"

namespace moestro {
namespace {

constexpr int64_t kRows = 4096;
constexpr int64_t kWidth = 256;  // F32: four rows a page of 4 KiB

// A table in a mapped file that nobody has in memory, and a graph's nodes by hand.
class TableReadsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.File("table");
    file_ = ::open(path.c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_GE(file_, 0);
    const std::vector<char> bytes(kRows * kWidth * sizeof(float), 1);
    ASSERT_EQ(::write(file_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ASSERT_EQ(::fsync(file_), 0);
    length_ = bytes.size();
    mapped_ = static_cast<std::byte*>(mmap(nullptr, length_, PROT_READ, MAP_PRIVATE, file_, 0));
    ASSERT_NE(mapped_, MAP_FAILED);
    ASSERT_EQ(posix_fadvise(file_, 0, 0, POSIX_FADV_DONTNEED), 0);
    if (Present(0, length_) > 0) GTEST_SKIP() << "the file system is memory";
    info_.name = "rows.weight";
    info_.extent = {.file = 0, .offset = 0, .length = length_};
    table_.type = GGML_TYPE_F32;
    table_.data = mapped_;
    table_.ne[0] = kWidth;
    table_.ne[1] = kRows;
    table_.ne[2] = table_.ne[3] = 1;
    table_.nb[0] = sizeof(float);
    for (int i = 1; i < GGML_MAX_DIMS; ++i) table_.nb[i] = table_.nb[i - 1] * table_.ne[i - 1];
  }
  void TearDown() override {
    if (mapped_ != nullptr) munmap(mapped_, length_);
    if (file_ >= 0) ::close(file_);
  }

  // Pages in memory of so many bytes from an offset on.
  size_t Present(uint64_t offset, uint64_t bytes) const {
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t begin = offset / page * page;
    std::vector<unsigned char> pages((offset + bytes - begin + page - 1) / page);
    EXPECT_EQ(mincore(mapped_ + begin, offset + bytes - begin, pages.data()), 0);
    size_t present = 0;
    for (const unsigned char one : pages) present += one & 1U;
    return present;
  }
  bool ComesToMemory(int32_t row) const {
    for (int i = 0; i < 2000; ++i) {
      if (Present(row * kRowBytes, kRowBytes) > 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }
  // The node that takes the rows.
  ggml_tensor Taking(std::vector<int32_t> rows) {
    numbers_ = std::move(rows);
    ids_ = {};
    ids_.type = GGML_TYPE_I32;
    ids_.data = numbers_.data();
    ids_.ne[0] = static_cast<int64_t>(numbers_.size());
    ids_.ne[1] = ids_.ne[2] = ids_.ne[3] = 1;
    ids_.nb[0] = sizeof(int32_t);
    for (int i = 1; i < GGML_MAX_DIMS; ++i) ids_.nb[i] = ids_.nb[i - 1] * ids_.ne[i - 1];
    ggml_tensor node = {};
    node.op = GGML_OP_GET_ROWS;
    node.src[0] = &table_;
    node.src[1] = &ids_;
    return node;
  }
  std::vector<MappedTensor> tables() const { return {{.info = &info_, .data = mapped_}}; }

  static constexpr uint64_t kRowBytes = kWidth * sizeof(float);
  TempFolder folder_;
  int file_ = -1;
  uint64_t length_ = 0;
  std::byte* mapped_ = nullptr;
  TensorInfo info_;
  ggml_tensor table_ = {};
  std::vector<int32_t> numbers_;
  ggml_tensor ids_ = {};
};

TEST_F(TableReadsTest, RowsComeBeforeTheirNodeAndNothingElse) {
  TableReads reads(tables());
  reads.Expect(Taking({8, 2000, 4000, 2000}));
  for (const int32_t row : {8, 2000, 4000}) EXPECT_TRUE(ComesToMemory(row)) << row;
  EXPECT_LE(Present(0, length_), 3U);
  EXPECT_EQ(reads.counts().rows, 4U);
  EXPECT_EQ(reads.counts().reads + reads.counts().hits, 4U);
  EXPECT_GE(reads.counts().bytes_read, 3U * kRowBytes);
  // Rows that are there are no reads.
  const uint64_t before = reads.counts().reads;
  reads.Expect(Taking({8, 4000}));
  EXPECT_EQ(reads.counts().reads, before);
  EXPECT_GE(reads.counts().hits, 2U);
}

TEST_F(TableReadsTest, AFaultReadsItsPageAlone) {
  const TableReads reads(tables());
  EXPECT_EQ(mapped_[2000 * kRowBytes], std::byte{1});
  EXPECT_EQ(Present(0, length_), 1U);
}

TEST_F(TableReadsTest, NodesThatTellNothingReadNothing) {
  TableReads reads(tables());
  ggml_tensor computed = Taking({8});
  ids_.op = GGML_OP_ADD;  // ids that the graph computes itself
  reads.Expect(computed);
  ggml_tensor without_ids = Taking({8});
  ids_.data = nullptr;
  reads.Expect(without_ids);
  ggml_tensor product = Taking({8});
  product.op = GGML_OP_MUL_MAT;
  reads.Expect(product);
  reads.Expect(Taking({-1, kRows, INT32_MIN, INT32_MAX}));  // no rows of the table
  std::array<std::byte, 64> elsewhere = {};
  ggml_tensor other = Taking({0});
  table_.data = elsewhere.data();  // a table that has been read whole
  reads.Expect(other);
  table_.data = mapped_;
  TableReads none({});
  none.Expect(Taking({8}));
  EXPECT_EQ(reads.counts().rows + none.counts().rows, 0U);
  EXPECT_EQ(Present(0, length_), 0U);
}

}  // namespace
}  // namespace moestro
