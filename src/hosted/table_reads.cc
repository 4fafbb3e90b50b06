// SPDX-License-Identifier: MIT
#include "hosted/table_reads.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/pages.h"
#include "base/terminal.h"

namespace moestro {
namespace {

// The whole pages around some bytes.
struct Pages {
  std::byte* begin;
  uint64_t length;

  static Pages Around(const std::byte* bytes, uint64_t length, uint64_t page) {
    const uint64_t before = reinterpret_cast<uintptr_t>(bytes) % page;
    const uint64_t last = before + length + page - 1;
    return {.begin = const_cast<std::byte*>(bytes) - before, .length = last / page * page};
  }
};

// Whether the graph's user has set the ids before the graph is computed.
bool AreKnown(const ggml_tensor& ids) {
  return ids.op == GGML_OP_NONE && ids.type == GGML_TYPE_I32 && ids.data != nullptr &&
         ggml_is_contiguous(&ids);
}

}  // namespace

TableReads::TableReads(std::span<const MappedTensor> tables) : page_(PageBytes()) {
  for (const MappedTensor& table : tables) {
    const Pages pages = Pages::Around(table.data, table.info->extent.length, page_);
    // Rows lie anywhere: pages behind a missing one are of no use.
    if (madvise(pages.begin, pages.length, MADV_RANDOM) != 0) {
      LogInfo("{}: the system may read more than is needed ({})", table.info->name,
              std::strerror(errno));
    }
    tables_.push_back(table.data);
  }
}

// table [n_in, rows], ids [count] -> the node's result [n_in, count]
void TableReads::Expect(const ggml_tensor& node) {
  if (tables_.empty() || node.op != GGML_OP_GET_ROWS) return;
  const ggml_tensor& table = *node.src[0];
  const ggml_tensor& ids = *node.src[1];
  const auto* const bytes = static_cast<const std::byte*>(table.data);
  if (!std::ranges::contains(tables_, bytes) || !AreKnown(ids)) return;
  const auto* const numbers = static_cast<const int32_t*>(ids.data);
  const uint64_t row_bytes = ggml_row_size(table.type, table.ne[0]);
  for (int64_t i = 0; i < ggml_nelements(&ids); ++i) {
    // ggml refuses the others.
    if (numbers[i] < 0 || numbers[i] >= table.ne[1]) continue;
    ExpectRow(bytes + static_cast<uint64_t>(numbers[i]) * table.nb[1], row_bytes);
  }
}

void TableReads::ExpectRow(const std::byte* row, uint64_t bytes) {
  const Pages pages = Pages::Around(row, bytes, page_);
  present_.assign(pages.length / page_, 0);
  // The system calls all pages of another user's file present, so the answer is for counting alone.
  const bool is_known = mincore(pages.begin, pages.length, present_.data()) == 0;
  const auto missing = static_cast<uint64_t>(
      std::ranges::count_if(present_, [](unsigned char page) { return (page & 1U) == 0; }));
  ++counts_.rows;
  if (madvise(pages.begin, pages.length, MADV_WILLNEED) != 0) return;  // the node reads then
  if (is_known && missing == 0) {
    ++counts_.hits;
  } else {
    ++counts_.reads;
    counts_.bytes_read += missing * page_;
  }
}

}  // namespace moestro
