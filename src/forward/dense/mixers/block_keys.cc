// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/block_keys.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/result.h"
#include "forward/dense/blocks.h"

namespace moestro {

namespace {

constexpr uint32_t kMostKeyDims = 4096;  // of a key; readers of files refuse more

}  // namespace

Result<std::unique_ptr<BlockKeys>> BlockKeys::Create(const MixerParts& parts,
                                                     const AttentionSpec& spec) {
  CHECK(spec.indexer && spec.indexer->head_dim <= kMostKeyDims && parts.chosen != nullptr);
  std::unique_ptr<BlockKeys> keys(new BlockKeys(parts, spec));
  if (keys->has_means()) {
    TRY(keys->positions_, BackendBuffer::OnHost(uint64_t{parts.chunk} * sizeof(int32_t)));
  }
  if (!parts.chosen->may_choose()) return keys;
  TRY(keys->indexer_, PositionIndexer::Create(*spec.indexer, keys->kv_type_, parts.n_ctx,
                                              parts.cpu.threads(), parts.stop));
  return keys;
}

BlockKeys::BlockKeys(const MixerParts& parts, const AttentionSpec& spec)
    : spec_(spec),
      rms_eps_(parts.spec.rms_eps),
      kv_type_(parts.kv.type()),
      cell_bytes_(KvBytes(kv_type_, spec.n_cell_keys())),
      skip_bytes_(KvBytes(kv_type_, spec.n_embd_k())),
      chosen_(parts.chosen) {}

void BlockKeys::SetPositions(std::span<const int32_t> positions) {
  if (!has_means()) return;
  const auto before = static_cast<int32_t>(indexer().n_pool) - 1;
  std::ranges::transform(positions, reinterpret_cast<int32_t*>(positions_.data()),
                         [&](int32_t position) { return position - before; });
}

void BlockKeys::Build(const LayerTensors& w, const MixerGraph& in, const NormedRows& x,
                      ggml_tensor* cells) {
  ggml_context* ctx = in.ctx;
  const int64_t n = indexer().head_dim;
  std::array<ggml_tensor*, 2> qk{};
  Linears(ctx, std::array{w.block_q, w.block_k}, x, {}, qk);
  ggml_tensor* place =
      ggml_view_2d(ctx, cells, n, cells->ne[1], cells->nb[1], static_cast<size_t>(skip_bytes_));
  if (has_means()) {
    StoreMeans(w, in, qk[1], place);
  } else {
    ggml_tensor* keys = TurnedKeys(ctx, w, qk[1], in.positions);
    ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, place, keys, in.cells));
  }
  if (!indexer_) return;
  ggml_tensor* queries = ggml_reshape_3d(ctx, qk[0], n, indexer().n_head, in.x->ne[1]);
  queries = Turn(ctx, RmsNorm(ctx, queries, w.block_q_norm, nullptr, rms_eps_), in.positions);
  ggml_build_forward_expand(in.graph, indexer_->Node(ctx, queries, nullptr));
}

// keys [head_dim, rows] of positions; place: the indexer's part of cells. Keys of positions come
// first, since the keys of blocks are made of what cells hold.
void BlockKeys::StoreMeans(const LayerTensors& w, const MixerGraph& in, ggml_tensor* keys,
                           ggml_tensor* place) {
  ggml_context* ctx = in.ctx;
  ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, place, keys, in.cells));
  ggml_tensor* block_positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, keys->ne[1]);
  positions_.Place(block_positions, in.first * sizeof(int32_t));
  ggml_tensor* means = TurnedKeys(ctx, w, Means(ctx, keys), block_positions);
  ggml_tensor* stored = Stored(ctx, keys, means);
  ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, place, stored, in.cells));
}

// keys [head_dim, rows], normed and turned.
ggml_tensor* BlockKeys::TurnedKeys(ggml_context* ctx, const LayerTensors& w, ggml_tensor* keys,
                                   ggml_tensor* positions) const {
  const int64_t n = indexer().head_dim;
  const int64_t n_rows = keys->ne[1];
  keys = RmsNorm(ctx, keys, w.indexer_k_norm, nullptr, rms_eps_);
  keys = Turn(ctx, ggml_reshape_3d(ctx, keys, n, 1, n_rows), positions);
  return ggml_reshape_2d(ctx, keys, n, n_rows);
}

std::span<const RowCells> BlockKeys::Bind(std::byte* cells, const MixerRows& rows) {
  cells_ = cells;
  visible_ = rows.visible;
  chosen_->Begin(rows.first, rows.visible);
  if (indexer_) {
    indexer_->Bind({.keys = cells + skip_bytes_,
                    .cell_bytes = cell_bytes_,
                    .first = rows.first,
                    .visible = rows.visible,
                    .chosen = chosen_});
  }
  return chosen_->rows(rows.first, rows.visible.size());
}

ggml_tensor* BlockKeys::Turn(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions) const {
  if (!spec_.rope) return heads;
  return Turned(ctx, heads, positions, *spec_.rope, spec_.form.rope_pairs, nullptr);
}

// The mean key of the block that each row ends; zeros for other rows. keys [head_dim, rows]: what
// cells hold already.
ggml_tensor* BlockKeys::Means(ggml_context* ctx, ggml_tensor* keys) {
  return ggml_custom_4d(
      ctx, GGML_TYPE_F32, keys->ne[0], keys->ne[1], 1, 1, &keys, 1,
      [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
        const auto* self = static_cast<const BlockKeys*>(userdata);
        for (int64_t row = thread; row < result->ne[1]; row += n_threads) {
          self->Mean(self->visible_[static_cast<size_t>(row)],
                     static_cast<float*>(result->data) + row * result->ne[0]);
        }
      },
      GGML_N_TASKS_MAX, this);
}

void BlockKeys::Mean(const RowCells& row, float* to) const {
  const uint32_t n = indexer().head_dim;
  std::fill_n(to, n, 0.0F);
  if (!ends_block(row)) return;
  const uint32_t n_pool = indexer().n_pool;
  const AttentionKernel::ToFloat to_float = kernel_.to_float(kv_type_);
  std::array<float, kMostKeyDims> key;  // NOLINT(cppcoreguidelines-pro-type-member-init): filled
  uint32_t position = row.first;
  for (const CellRun& run : row.runs) {
    const uint32_t begin = row.n_positions - n_pool;  // of the block
    uint32_t i = position < begin ? std::min(begin - position, run.count) : 0;
    position += i;
    for (; i < run.count && position < row.n_positions; ++i, ++position) {
      to_float(cells_ + (run.first + i) * cell_bytes_ + skip_bytes_, key.data(), n);
      for (uint32_t d = 0; d < n; ++d) to[d] += key[d];
    }
  }
  for (uint32_t d = 0; d < n; ++d) to[d] /= static_cast<float>(n_pool);
}

// Keys that cells hold in the end: of the block that a row ends, or else the row's own.
ggml_tensor* BlockKeys::Stored(ggml_context* ctx, ggml_tensor* keys, ggml_tensor* of_blocks) {
  std::array<ggml_tensor*, 2> args = {keys, of_blocks};
  return ggml_custom_4d(
      ctx, GGML_TYPE_F32, keys->ne[0], keys->ne[1], 1, 1, args.data(),
      static_cast<int>(args.size()),
      [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
        const auto* self = static_cast<const BlockKeys*>(userdata);
        for (int64_t row = thread; row < result->ne[1]; row += n_threads) {
          const bool ends = self->ends_block(self->visible_[static_cast<size_t>(row)]);
          const ggml_tensor* from = result->src[ends ? 1 : 0];
          const auto* values = reinterpret_cast<const float*>(
              static_cast<const std::byte*>(from->data) + row * static_cast<int64_t>(from->nb[1]));
          std::copy_n(values, result->ne[0],
                      static_cast<float*>(result->data) + row * result->ne[0]);
        }
      },
      GGML_N_TASKS_MAX, this);
}

}  // namespace moestro
