// SPDX-License-Identifier: MIT
// Reads that bring rows of a table from a file, and the rows that memory keeps. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/counters.h"
#include "core/extent.h"

namespace moestro {

// A table whose rows lie one after the other in a file.
struct TableLayout {
  Extent table;
  uint64_t row_bytes = 0;
  uint64_t block = 0;  // of the disk

  uint64_t n_rows() const { return table.length / row_bytes; }
  Extent ExtentOf(uint64_t row) const {
    return {.file = table.file, .offset = table.offset + row * row_bytes, .length = row_bytes};
  }
};

// Rows [first, first + count) of a list, which one read brings.
struct RowRead {
  Extent from;
  size_t first = 0;
  size_t count = 0;
  bool operator==(const RowRead&) const = default;
};

// Joins rows into reads: neighbours of which no whole block lies between come together, while the
// window of a read has at most `most_bytes`. A row's own window may have more. REQUIRES: rows rise.
std::vector<RowRead> MergeRows(const TableLayout& layout, std::span<const uint64_t> rows,
                               uint64_t most_bytes);

// Which rows lie in which places of memory: the row that was used longest ago gives way.
class RowCache {
 public:
  explicit RowCache(uint32_t places) : places_(places) {}
  // The row's place, which then counts as used last; nullopt: memory lacks the row.
  std::optional<uint32_t> Find(uint64_t row);
  // A place for a row that memory lacks; nullopt: there are no places.
  std::optional<uint32_t> Insert(uint64_t row);
  uint32_t places() const { return places_; }
  // Bytes that the cache itself takes for each row.
  static constexpr uint64_t kBytesOfRow = 128;

 private:
  struct Kept {
    uint64_t row;
    uint32_t place;
  };
  using Order = std::list<Kept>;
  uint32_t places_;
  Order order_;  // the row used last comes first
  std::unordered_map<uint64_t, Order::iterator> by_row_;
};

// Work of a table on the disk.
struct TableCounts {
  uint64_t rows = 0;          // rows asked for, of all heads and tokens
  uint64_t hits = 0;          // of `rows`: in memory, or asked for twice in a step
  uint64_t reads = 0;         // of the disk
  uint64_t bytes_read = 0;    // by the disk, whole blocks
  double wait_seconds = 0.0;  // the layer with the table waited for rows

  static constexpr void Visit(auto&& visit) {
    using T = TableCounts;
    visit(&T::rows, CounterText{.json = "table_rows_decode", .prefill = "table_rows_prefill"});
    visit(&T::hits, CounterText{.json = "table_hits_decode", .prefill = "table_hits_prefill"});
    visit(&T::reads, CounterText{.json = "table_reads_decode", .prefill = "table_reads_prefill"});
    visit(&T::bytes_read,
          CounterText{.json = "table_bytes_decode",
                      .prefill = "table_bytes_prefill",
                      .metric = "table_read_bytes_total",
                      .meaning = "Bytes of n-gram tables that were read from disk."});
    visit(&T::wait_seconds,
          CounterText{.json = "table_wait_seconds", .prefill = "table_prefill_wait_seconds"});
  }
};
static_assert(CountsAllOf<TableCounts>());

}  // namespace moestro
