// SPDX-License-Identifier: MIT
// Rows of tables that stay in the mapped file, by ids that are set before a graph runs: of tokens,
// of n-grams. The pages of a node's rows are asked for together, so that the disk reads
// many at a time. A fault would read one page and those behind the page, where no other row of the
// node lies.
//
// Thread rule: the engine thread.
#pragma once

#include <ggml.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "hosted/learned_graph.h"
#include "store/row_reads.h"

namespace moestro {

class TableReads {
 public:
  // The tables that stay in the file; they must stay mapped while this lives.
  explicit TableReads(std::span<const MappedTensor> tables);

  // Begins to read the rows that `node` is about to take of a table, and returns at once. Rows
  // whose ids the graph itself computes are left to faults.
  void Expect(const ggml_tensor& node);

  // Rows that were expected, and pages that memory lacked of the rows. The time in which
  // libllama waits within its node for pages on their way is not counted.
  const TableCounts& counts() const { return counts_; }

 private:
  void ExpectRow(const std::byte* row, uint64_t bytes);

  std::vector<const std::byte*> tables_;  // the first byte of each
  uint64_t page_;
  std::vector<unsigned char> present_;  // scratch, by page of a row
  TableCounts counts_;
};

}  // namespace moestro
