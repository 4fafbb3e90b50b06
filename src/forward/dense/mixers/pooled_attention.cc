// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/pooled_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "compute/attention_kernel.h"
#include "compute/backend_buffer.h"
#include "compute/head_products.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/attention.h"
#include "forward/dense/blocks.h"
#include "forward/dense/mixers/pool_sums.h"
#include "forward/dense/mixers/pooled_rows.h"
#include "forward/dense/mixers/position_indexer.h"

namespace moestro {
namespace {

AttentionShape ShapeOf(const PooledAttentionSpec& spec, KvType kv_type) {
  return {.n_head = spec.n_head,
          .n_head_kv = 1,
          .dim_k = spec.head_dim,
          .dim_v = spec.head_dim,
          .kv_type = kv_type,
          .values_in_keys = true};
}

// The tensors of keys of pools, of attention or of its indexer.
struct PoolTensors {
  ggml_tensor* kv = nullptr;
  ggml_tensor* gate = nullptr;
  ggml_tensor* bias = nullptr;
  ggml_tensor* norm = nullptr;
};

class PooledAttentionMixer final : public Mixer {
 public:
  PooledAttentionMixer(const MixerParts& parts, const PooledAttentionSpec& spec)
      : spec_(spec),
        rms_eps_(parts.spec.rms_eps),
        kv_(&parts.kv),
        states_(&parts.states),
        chosen_(spec.indexer ? parts.chosen : nullptr),
        sums_({.n_pool = spec.n_pool, .n_shares = spec.n_shares(), .n = spec.head_dim}, parts.stop),
        indexer_sums_({.n_pool = spec.n_pool,
                       .n_shares = spec.n_shares(),
                       .n = spec.indexer ? spec.indexer->head_dim : 0,
                       .first_value = PooledAttentionSpec::kSums * spec.n_shares() * spec.head_dim},
                      parts.stop) {}

  Status Allocate(const MixerParts& parts) {
    TRY(tiled_, TiledAttention::Create(ShapeOf(spec_, kv_->type()), parts.cpu.threads(),
                                       AttentionKernel::ForThisMachine(), parts.stop,
                                       &parts.cpu.team_time()));
    rows_bytes_ = PooledRows::BytesFor(RowsShape(), parts.chunk, parts.n_ctx);
    if (spec_.n_pool == 0) return {};
    TRY(positions_, BackendBuffer::OnHost(uint64_t{parts.chunk} * sizeof(int32_t)));
    if (!spec_.indexer || !chosen_->may_choose()) return {};
    TRY(indexer_, PositionIndexer::Create(*spec_.indexer, kv_->type(), parts.n_ctx / spec_.n_pool,
                                          parts.cpu.threads(), parts.stop));
    return {};
  }

  ggml_tensor* Build(const LayerTensors& w, const MixerGraph& in) override {
    ggml_context* ctx = in.ctx;
    const int64_t n_rows = in.x->ne[1];
    ggml_tensor* x = RmsNorm(ctx, in.x, w.attn_norm, w.attn_norm_b, rms_eps_);
    // x [n_embd, rows] -> key [head_dim, rows], to the rows' cells. Cells are written before the
    // attention node reads them: nodes run in the order they are added.
    ggml_tensor* key =
        RmsNorm(ctx, Linear(ctx, w.pooled_kv, x, nullptr), w.latent_kv_norm, nullptr, rms_eps_);
    key = Turn(ctx, ggml_reshape_3d(ctx, key, spec_.head_dim, 1, n_rows), in.positions);
    key = ggml_reshape_2d(ctx, key, spec_.head_dim, n_rows);
    ggml_tensor* cells = kv_->K(ctx, in.layer.value);
    ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, cells, key, in.cells));
    // x -> the latent of queries [n_query_latent, rows] -> q [head_dim, n_head, rows], each head
    // normed without a weight.
    ggml_tensor* latent =
        RmsNorm(ctx, Linear(ctx, w.latent_q_a, x, nullptr), w.latent_q_norm, nullptr, rms_eps_);
    if (spec_.n_pool > 0) AddPools(w, in, x, latent);
    ggml_tensor* q = Linear(ctx, w.latent_q_b, latent, nullptr);
    q = ggml_rms_norm(ctx, ggml_reshape_3d(ctx, q, spec_.head_dim, spec_.n_head, n_rows), rms_eps_);
    // mixed [head_dim, n_head, rows]: the mean key of each head over its cells, turned back.
    ggml_tensor* mixed = tiled_->Node(ctx, Turn(ctx, q, in.positions));
    mixed = ggml_reshape_3d(ctx, mixed, spec_.head_dim, spec_.n_head, n_rows);
    mixed = WithLast(ctx, mixed, [&](ggml_tensor* last) {
      return TurnedBack(ctx, last, in.positions, spec_.rope, spec_.rope_pairs);
    });
    // Groups of heads -> [n_out, n_group, rows] -> [n_embd, rows].
    mixed = ggml_reshape_3d(ctx, mixed, spec_.n_of_group(), spec_.n_group, n_rows);
    ggml_tensor* of_groups = w.pooled_out_a;
    if (of_groups->ne[2] != spec_.n_group) {
      of_groups = ggml_reshape_3d(ctx, of_groups, of_groups->ne[0], spec_.n_out, spec_.n_group);
    }
    ggml_tensor* out = products_.Node(ctx, of_groups, mixed);
    out = ggml_reshape_2d(ctx, out, int64_t{spec_.n_out} * spec_.n_group, n_rows);
    return Linear(ctx, w.pooled_out_b, out, nullptr);
  }

  void Bind(const LayerTensors& w, const MixerRows& rows) override {
    const uint32_t layer = rows.layer.value;
    const KvCache::Layer cells = kv_->layer(layer);
    layer_ = layer;
    PooledRows::Shape shape = RowsShape();
    shape.stride = std::max(kv_->shape().layers[layer].pool_stride(), 1U);
    shape.first_key = kv_->cells_of(layer);
    if (!indexer_) shape.top_k = 0;
    rows_.Set(shape, rows.visible, rows.all);
    first_ = rows.first;
    cells_ = cells;
    tiled_->Bind({.k = cells.k,
                  .v = nullptr,
                  .scale = 1.0F / std::sqrt(static_cast<float>(spec_.head_dim)),
                  .sinks = {FloatsOf(w.attn_sinks), spec_.n_head}},
                 rows_.attended());
    if (spec_.n_pool == 0) return;
    sums_.Bind(layer, rows.visible, rows.states, *states_);
    all_ = rows.all;
    if (!spec_.indexer) return;
    indexer_sums_.Bind(layer, rows.visible, rows.states, *states_);
    if (!indexer_) return;
    chosen_->Begin(rows.first, rows_.pools());
    indexer_->Bind({.keys = cells.v,
                    .cell_bytes = KvBytes(kv_->type(), spec_.indexer->head_dim),
                    .first = rows.first,
                    .visible = rows_.pools(),
                    .chosen = chosen_});
  }

  Status SetPositions(std::span<const int32_t> positions) override {
    if (spec_.n_pool == 0) return {};
    const auto before = static_cast<int32_t>(spec_.n_pool) - 1;
    std::ranges::transform(positions, reinterpret_cast<int32_t*>(positions_.data()),
                           [&](int32_t position) { return position - before; });
    return {};
  }
  uint64_t work_bytes() const override { return tiled_->bytes() + positions_.size() + rows_bytes_; }
  uint64_t thread_bytes() const override {
    return tiled_->thread_bytes() + (indexer_ ? indexer_->thread_bytes() : 0);
  }

 private:
  PooledRows::Shape RowsShape() const {
    return {.window = spec_.window,
            .n_pool = spec_.n_pool,
            .top_k = spec_.indexer ? spec_.indexer->top_k : 0};
  }
  // x [.., n_head, rows], the last turned values of each head changed.
  template <class Change>
  ggml_tensor* WithLast(ggml_context* ctx, ggml_tensor* x, Change change) const {
    const int64_t n_turned = spec_.rope.n_dims;
    const int64_t n_plain = x->ne[0] - n_turned;
    ggml_tensor* last = change(PartOfHeads(ctx, x, n_plain, n_turned));
    return n_plain == 0 ? last : ggml_concat(ctx, PartOfHeads(ctx, x, 0, n_plain), last, 0);
  }
  // The last values of each head turned by each row's position.
  ggml_tensor* Turn(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions) const {
    return WithLast(ctx, heads, [&](ggml_tensor* last) {
      return Turned(ctx, last, positions, spec_.rope, spec_.rope_pairs, nullptr);
    });
  }

  // x [n_embd, rows] -> keys of the pools that rows end, in the pools' cells; and the pools that
  // rows attend to, by an indexer's queries of the latent.
  void AddPools(const LayerTensors& w, const MixerGraph& in, ggml_tensor* x, ggml_tensor* latent) {
    ggml_context* ctx = in.ctx;
    ggml_tensor* keys =
        Pooled(in, sums_, x,
               {.kv = w.pool_kv, .gate = w.pool_gate, .bias = w.pool_b, .norm = w.pool_norm});
    ggml_tensor* of_indexer = nullptr;
    if (spec_.indexer) {
      of_indexer = Pooled(in, indexer_sums_, x,
                          {.kv = w.indexer_pool_kv,
                           .gate = w.indexer_pool_gate,
                           .bias = w.indexer_pool_b,
                           .norm = w.indexer_pool_norm});
    }
    ggml_build_forward_expand(in.graph, StoreNode(ctx, keys, of_indexer));
    if (!indexer_) return;
    const IndexerSpec& spec = *spec_.indexer;
    ggml_tensor* queries = Linear(ctx, w.indexer_q, latent, nullptr);
    queries = Turn(ctx, ggml_reshape_3d(ctx, queries, spec.head_dim, spec.n_head, x->ne[1]),
                   in.positions);
    ggml_tensor* weights = Linear(ctx, w.indexer_weights, x, nullptr);
    ggml_tensor* chosen = indexer_->Node(ctx, queries, weights);
    ggml_build_forward_expand(in.graph, TakeNode(ctx, chosen));
  }

  // x [n_embd, rows] -> the normed and turned key of the pool that each row ends.
  ggml_tensor* Pooled(const MixerGraph& in, PoolSums& sums, ggml_tensor* x, const PoolTensors& w) {
    ggml_context* ctx = in.ctx;
    std::array<ggml_tensor*, 2> projected{};
    Linears(ctx, std::array{w.kv, w.gate}, x, {}, projected);
    const bool is_float = w.bias->type == GGML_TYPE_F32;
    ggml_tensor* bias = is_float ? w.bias : ggml_cast(ctx, w.bias, GGML_TYPE_F32);
    ggml_tensor* keys = sums.Node(ctx, projected[0], projected[1], bias);
    ggml_build_forward_expand(in.graph, keys);
    keys = RmsNorm(ctx, keys, w.norm, nullptr, rms_eps_);
    ggml_tensor* first = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, x->ne[1]);
    positions_.Place(first, in.first * sizeof(int32_t));
    return Turn(ctx, ggml_reshape_3d(ctx, keys, keys->ne[0], 1, keys->ne[1]), first);
  }

  // Writes the keys of pools that rows end, and an indexer's, to the pools' cells.
  ggml_tensor* StoreNode(ggml_context* ctx, ggml_tensor* keys, ggml_tensor* of_indexer) {
    std::array<ggml_tensor*, 2> args = {keys, of_indexer};
    return ggml_custom_4d(
        ctx, GGML_TYPE_I32, 1, 1, 1, 1, args.data(), of_indexer != nullptr ? 2 : 1,
        [](ggml_tensor* result, int thread, int n_threads, void* userdata) {
          const auto* self = static_cast<const PooledAttentionMixer*>(userdata);
          for (size_t row = static_cast<size_t>(thread); row < self->all_.size();
               row += static_cast<size_t>(n_threads)) {
            self->Store(result, row);
          }
        },
        GGML_N_TASKS_MAX, this);
  }
  void Store(const ggml_tensor* result, size_t row) const {
    using Part = KvCache::KvTensor;
    const RowCells& all = all_[row];
    if (!sums_.ends_pool(all)) return;
    const uint32_t cell = CellOf(all, all.n_positions - 1);
    const auto store = [&](const ggml_tensor* from, Part part, std::byte* to) {
      const auto n = static_cast<size_t>(from->ne[0]);
      const size_t bytes = KvBytes(kv_->type(), n);
      ToCells(kv_->type(), {static_cast<const float*>(from->data) + row * n, n},
              {to + kv_->pool_cell(layer_, part, cell) * bytes, bytes});
    };
    store(result->src[0], Part::kKeys, cells_.k);
    if (spec_.indexer) store(result->src[1], Part::kValues, cells_.v);
  }
  // The cell of a position that a row may attend to.
  static uint32_t CellOf(const RowCells& row, uint32_t position) {
    position -= row.first;
    for (const CellRun& run : row.runs) {
      if (position < run.count) return run.first + position;
      position -= run.count;
    }
    CHECK(false);
    return 0;
  }

  // Takes the pools that the indexer has chosen.
  ggml_tensor* TakeNode(ggml_context* ctx, ggml_tensor* chosen) {
    return ggml_custom_4d(
        ctx, GGML_TYPE_I32, 1, 1, 1, 1, &chosen, 1,
        [](ggml_tensor* /*result*/, int thread, int n_threads, void* userdata) {
          auto* self = static_cast<PooledAttentionMixer*>(userdata);
          const std::span<const RowCells> pools = self->rows_.pools();
          for (size_t row = static_cast<size_t>(thread); row < pools.size();
               row += static_cast<size_t>(n_threads)) {
            if (!self->rows_.is_chosen(row)) continue;
            const auto number = self->first_ + static_cast<uint32_t>(row);
            self->rows_.AddChosen(row, self->chosen_->runs(number, 0, pools[row]));
          }
        },
        GGML_N_TASKS_MAX, this);
  }

  PooledAttentionSpec spec_;
  float rms_eps_;
  const KvCache* kv_;
  const StateStore* states_;
  ChosenPositions* chosen_;  // null: no indexer
  std::unique_ptr<TiledAttention> tiled_;
  HeadProducts products_;
  PoolSums sums_;
  PoolSums indexer_sums_;
  std::unique_ptr<PositionIndexer> indexer_;  // null: none, or texts are too short
  BackendBuffer positions_;                   // I32 [row]: of the first position of the row's pool
  PooledRows rows_;
  uint64_t rows_bytes_ = 0;
  // Members that Bind() sets.
  uint32_t layer_ = 0;
  uint32_t first_ = 0;  // number of the first row in its step
  KvCache::Layer cells_;
  std::span<const RowCells> all_;
};

}  // namespace

Result<std::unique_ptr<Mixer>> MakePooledAttentionMixer(const MixerParts& parts,
                                                        const PooledAttentionSpec& spec) {
  if (parts.device != nullptr) {
    return Fail(Errc::kDevice, "attention to pools of positions is computed in memory");
  }
  auto mixer = std::make_unique<PooledAttentionMixer>(parts, spec);
  TRY_STATUS(mixer->Allocate(parts));
  return mixer;
}

}  // namespace moestro
