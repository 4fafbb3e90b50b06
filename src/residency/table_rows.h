// SPDX-License-Identifier: MIT
// Brings rows of a table from the disk, ahead of the layer that needs them: rows of a step are
// known from its tokens. The table itself is never in memory, but for a few rows that were used
// last. Reads go to the disk many at a time, past the page cache.
//
// Thread rule: the engine thread; other threads may read row() after Finish().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/work_limit.h"
#include "compute/host_memory.h"
#include "core/extent.h"
#include "store/block_reader.h"
#include "store/read_queue.h"
#include "store/row_reads.h"

namespace moestro {

class TableRows {
 public:
  // Bytes of the windows of one read, at most: larger reads bring rows later without being cheaper.
  static constexpr uint64_t kMostRead = uint64_t{16} << 10;
  static constexpr unsigned kReads = 256;  // at the disk at a time
  static constexpr uint64_t kCacheBytes = uint64_t{16} << 20;

  struct Sizes {
    Extent table;
    uint64_t row_bytes = 0;
    uint32_t rows_at_once = 0;  // of a step, each token's counted

    uint32_t cached_rows() const;
  };
  // The reader must outlive this. paths: for messages. kNoMemory.
  static Result<std::unique_ptr<TableRows>> Create(const Sizes& sizes, BlockReader& reader,
                                                   std::vector<std::string> paths,
                                                   Clock clock = SteadySeconds);
  static uint64_t BytesFor(const Sizes& sizes, uint64_t block);
  // Waits until no read is under way.
  ~TableRows();

  // Asks for rows, in any order, any of them several times. Reads begin; rows of an earlier call
  // are lost. REQUIRES: at most rows_at_once, all within the table.
  void Begin(std::span<const uint64_t> rows);
  // Moves reads forward; cheap, never blocks.
  void Pump();
  // Waits for the rows of Begin(). kIo.
  Status Finish();
  // The bytes of row i of Begin(). REQUIRES: Finish() has succeeded.
  const std::byte* row(size_t i) const { return rows_.data() + i * layout_.row_bytes; }
  // Rows of the last Begin() kept aside while others take their places: the first `count` ones.
  // Others that are still being read when the rows come back are given up. REQUIRES: as row().
  std::vector<std::byte> Take(size_t count) const;
  void Give(std::span<const std::byte> rows);

  const TableLayout& layout() const { return layout_; }
  const TableCounts& counts() const { return counts_; }

 private:
  TableRows(const Sizes& sizes, BlockReader& reader, std::vector<std::string> paths, Clock clock);
  Status Allocate(const Sizes& sizes);
  std::byte* cached(uint32_t place) const {
    return cache_memory_.data() + uint64_t{place} * layout_.row_bytes;
  }
  void Submit();
  void Collect();
  void Land(const ExtentDone& done);
  bool is_done() const { return next_read_ == reads_.size() && queue_.idle(); }
  void Settle();

  TableLayout layout_;
  ReadQueue queue_;
  const Clock clock_;
  uint64_t landing_bytes_ = 0;  // of one read
  HostMemory landing_;
  HostMemory rows_;  // [rows_at_once][row_bytes]
  HostMemory cache_memory_;
  RowCache cache_;
  // The rows under way. `order_` has the numbers i of rows that memory lacks, by row.
  std::vector<uint64_t> asked_;  // [i]
  std::vector<uint32_t> order_;
  std::vector<uint64_t> distinct_;  // rows of order_, each once
  std::vector<uint32_t> begins_;    // [distinct row]: its first entry in order_, and the end
  std::vector<RowRead> reads_;
  size_t next_read_ = 0;
  std::vector<size_t> read_in_;         // [place of landing_]
  std::vector<uint32_t> free_landing_;  // places
  std::vector<ExtentDone> done_;
  std::optional<Error> error_;
  TableCounts counts_;
};

}  // namespace moestro
