// SPDX-License-Identifier: MIT
#include "forward/dense/made_up_cells.h"

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace moestro {
namespace {

constexpr size_t kBegins = 65521;          // blocks of the table where a cell may begin
constexpr uint32_t kCellsTogether = 1024;  // cells that are written at once

// Numbers of about N(0, 1): the sum of twelve uniform numbers less six, since a standard library's
// normal_distribution would not promise the same numbers everywhere.
std::vector<std::byte> NormalNumbers(KvType type, size_t n, std::mt19937_64& random) {
  std::vector<float> numbers(n);
  for (float& number : numbers) {
    number = -6.0F;
    for (int i = 0; i < 12; ++i) number += static_cast<float>(random() >> 40) * 0x1p-24F;
  }
  std::vector<std::byte> stored(KvBytes(type, n));
  ToCells(type, numbers, stored);
  return stored;
}

// The number of values of the widest key or value.
uint32_t WidestOf(const MemoryShape& shape) {
  uint32_t widest = 0;
  for (const LayerMemory& layer : shape.layers) {
    widest = std::max({widest, layer.keys, layer.values});
  }
  return widest;
}

}  // namespace

// Cells are pieces of one table, since drawing each number would take longer than evaluating some
// prompts.
Status MakeUpCells(const KvCache& kv, std::span<const CellRun> cells,
                   std::span<const CellRun> recent, uint64_t seed) {
  std::mt19937_64 random(seed);
  const KvTypeInfo& type = InfoOf(kv.type());
  const std::vector<std::byte> table =
      NormalNumbers(kv.type(), kBegins * type.block + WidestOf(kv.shape()), random);
  std::vector<std::byte> rows;
  for (uint32_t layer = 0; layer < kv.layers(); ++layer) {
    const LayerMemory& its = kv.shape().layers[layer];
    if (!its.has_cells() || its.shares_cells) continue;
    for (const KvCache::Part part : {KvCache::Part::kKeys, KvCache::Part::kValues}) {
      for (const CellRun& run : kv.is_recent(layer) ? recent : cells) {
        for (uint32_t done = 0; done < run.count;) {
          const uint32_t n = std::min(kCellsTogether, run.count - done);
          rows.clear();
          for (uint32_t i = 0; i < n; ++i) {
            const size_t from = random() % kBegins * type.block_bytes;
            rows.append_range(std::span(table).subspan(from, kv.cell_bytes(layer, part)));
          }
          TRY_STATUS(kv.Write(layer, part, run.first + done, rows));
          done += n;
        }
      }
    }
  }
  return {};
}

}  // namespace moestro
