// SPDX-License-Identifier: MIT
#include "forward/dense/made_up_cells.h"

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace moestro {
namespace {

constexpr size_t kBegins = 65521;     // places in the table where a cell may begin
constexpr uint32_t kTogether = 1024;  // cells that are written at once

// The sum of twelve uniform numbers less six: a standard library's normal_distribution would not
// promise the same numbers everywhere.
std::vector<Half> NormalNumbers(size_t n, std::mt19937_64& random) {
  std::vector<Half> numbers(n);
  for (Half& number : numbers) {
    float sum = -6.0F;
    for (int i = 0; i < 12; ++i) sum += static_cast<float>(random() >> 40) * 0x1p-24F;
    number = ggml_fp32_to_fp16(sum);
  }
  return numbers;
}

}  // namespace

// Drawing each number would take longer than evaluating some prompts: cells are pieces of one
// table.
Status MakeUpCells(const KvCache& kv, std::span<const CellRun> cells, uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<Half> table =
      NormalNumbers(kBegins + std::max(kv.n_embd_k(), kv.n_embd_v()), random);
  std::vector<Half> rows;
  for (uint32_t layer = 0; layer < kv.layers(); ++layer) {
    for (const KvCache::Part part : {KvCache::Part::kKeys, KvCache::Part::kValues}) {
      const size_t width = kv.cell_bytes(part) / sizeof(Half);
      for (const CellRun& run : cells) {
        for (uint32_t done = 0; done < run.count;) {
          const uint32_t n = std::min(kTogether, run.count - done);
          rows.clear();
          for (uint32_t i = 0; i < n; ++i) {
            const auto from = table.begin() + static_cast<ptrdiff_t>(random() % kBegins);
            rows.insert(rows.end(), from, from + static_cast<ptrdiff_t>(width));
          }
          TRY_STATUS(kv.Write(layer, part, run.first + done, std::as_bytes(std::span(rows))));
          done += n;
        }
      }
    }
  }
  return {};
}

}  // namespace moestro
