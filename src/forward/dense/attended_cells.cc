// SPDX-License-Identifier: MIT
#include "forward/dense/attended_cells.h"

#include <algorithm>
#include <limits>

#include "base/number.h"
#include "base/result.h"

namespace moestro {

uint64_t ChosenPositions::BytesFor(uint32_t rows, const IndexerSpec& indexer, uint32_t n_ctx) {
  return uint64_t{rows} * indexer.n_choices() * WidthFor(indexer, n_ctx) * sizeof(CellRun);
}

Result<std::unique_ptr<ChosenPositions>> ChosenPositions::Create(uint32_t rows,
                                                                 const IndexerSpec& indexer,
                                                                 uint32_t n_ctx) {
  std::unique_ptr<ChosenPositions> chosen(
      new ChosenPositions(rows, indexer, WidthFor(indexer, n_ctx)));
  if (chosen->width_ == 0) return chosen;
  TRY(chosen->runs_, HostMemory::Allocate(BytesFor(rows, indexer, n_ctx)));
  return chosen;
}

void ChosenPositions::Begin(uint32_t first, std::span<const RowCells> visible) {
  for (uint32_t r = 0; r < visible.size(); ++r) {
    for (uint32_t choice = 0; choice < n_choices_; ++choice) {
      RowCells& row = rows_[size_t{first + r} * n_choices_ + choice];
      row = visible[r];
      if (!is_chosen(visible[r])) continue;
      const auto chosen = runs(first + r, choice, visible[r]);
      row = {.runs = chosen, .n_positions = static_cast<uint32_t>(chosen.size())};
    }
  }
}

ChosenPositions::SavedChoice ChosenPositions::Take(size_t count) const {
  const size_t n = count * n_choices_;
  return {.runs = {first_run(), first_run() + n * width_},
          .rows = {rows_.begin(), rows_.begin() + static_cast<ptrdiff_t>(n)}};
}

void ChosenPositions::Give(const SavedChoice& kept) {
  std::ranges::copy(kept.runs, first_run());
  std::ranges::copy(kept.rows, rows_.begin());
}

uint64_t MaskedAttention::BytesFor(uint32_t rows, uint32_t n_cells) {
  return uint64_t{rows} * n_cells * sizeof(ggml_fp16_t);
}

Result<MaskedAttention> MaskedAttention::Allocate(ggml_backend_t backend,
                                                  const AttentionShape& shape, uint32_t rows,
                                                  uint32_t n_cells) {
  CHECK(n_cells % kCells == 0);
  MaskedAttention attention;
  attention.shape_ = shape;
  attention.n_cells_ = n_cells;
  TRY(attention.buffer_, BackendBuffer::On(backend, BytesFor(rows, n_cells)));
  return attention;
}

void MaskedAttention::Assume(uint32_t rows) {
  n_rows_ = rows;
  n_visited_ = n_cells_;
}

void MaskedAttention::SetRows(std::span<const RowCells> rows, Border& border) {
  // Calls visit(first cell, count) for each run of a row.
  const auto each_run = [this](const RowCells& row, auto&& visit) {
    uint32_t left = row.n_positions - row.first;
    const bool is_cut = shape_.window > 0 && shape_.window < left;
    uint32_t unseen = is_cut ? left - shape_.window : 0;
    for (const CellRun& run : row.runs) {
      if (left == 0) break;
      const uint32_t count = std::min(run.count, left);
      const uint32_t skipped = std::min(unseen, count);
      if (skipped < count) visit(run.first + skipped, count - skipped);
      unseen -= skipped;
      left -= count;
    }
  };
  uint32_t last = 0;
  for (const RowCells& row : rows) {
    each_run(row, [&](uint32_t first, uint32_t count) { last = std::max(last, first + count); });
  }
  n_rows_ = static_cast<uint32_t>(rows.size());
  n_visited_ = static_cast<uint32_t>(AlignUp(std::max(last, 1U), kCells));
  CHECK(n_visited_ <= n_cells_);
  const ggml_fp16_t hidden = ggml_fp32_to_fp16(-std::numeric_limits<float>::infinity());
  mask_.assign(size_t{n_rows_} * n_visited_, hidden);
  for (size_t r = 0; r < rows.size(); ++r) {
    each_run(rows[r], [&](uint32_t first, uint32_t count) {
      std::fill_n(mask_.begin() + static_cast<std::ptrdiff_t>(r * n_visited_ + first), count,
                  ggml_fp16_t{0});
    });
  }
  border.writes.push_back({.to = buffer_.bytes(), .from = std::as_bytes(std::span(mask_))});
}

ggml_tensor* MaskedAttention::Node(ggml_context* ctx, ggml_tensor* q, const Layer& layer,
                                   float scale) const {
  // A view of a cache: [n_head_kv * dim, cells] -> [dim, visited, n_head_kv].
  const auto visited = [&](ggml_tensor* cache, uint32_t dim) {
    return ggml_view_3d(ctx, cache, dim, n_visited_, shape_.n_head_kv, cache->nb[1],
                        ggml_row_size(cache->type, dim), 0);
  };
  ggml_tensor* mask = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, n_visited_, n_rows_);
  buffer_.Place(mask, 0);
  // -> [dim_v, n_head, rows]
  ggml_tensor* mixed = ggml_flash_attn_ext(
      ctx, ggml_permute(ctx, q, 0, 2, 1, 3), visited(layer.k, shape_.dim_k),
      visited(shape_.values_in_keys ? layer.k : layer.v, shape_.dim_v), mask, scale, 0.0F, 0.0F);
  if (layer.sinks != nullptr) ggml_flash_attn_ext_add_sinks(mixed, layer.sinks);
  ggml_prec_set_acc(mixed, GGML_PREC_F32);
  return ggml_reshape_2d(ctx, mixed, int64_t{shape_.n_head} * shape_.dim_v, n_rows_);
}

}  // namespace moestro
