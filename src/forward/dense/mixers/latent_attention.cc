// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/latent_attention.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "compute/attention_kernel.h"
#include "compute/head_products.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/attention.h"
#include "forward/dense/blocks.h"
#include "forward/dense/mixers/pooled_keys.h"
#include "forward/dense/mixers/position_indexer.h"

namespace moestro {
namespace {

class LatentAttentionMixer final : public Mixer {
 public:
  LatentAttentionMixer(const MixerParts& parts, const LatentAttentionSpec& spec)
      : spec_(spec),
        rms_eps_(parts.spec.rms_eps),
        kv_(&parts.kv),
        chosen_(spec.indexer ? parts.chosen : nullptr) {}

  Status Allocate(const MixerParts& parts) {
    const AttentionShape shape = AttentionShape::Of(spec_, kv_->type());
    if (parts.device == nullptr) {
      TRY(tiled_,
          TiledAttention::Create(shape, parts.cpu.threads(), AttentionKernel::ForThisMachine(),
                                 parts.stop, &parts.cpu.team_time()));
      if (spec_.has_own_pools()) {
        TRY(pools_, PooledKeys::Create(*spec_.indexer, kv_->type(), parts.cpu.threads()));
      }
      if (!spec_.has_own_indexer() || !chosen_->may_choose()) return {};
      TRY(indexer_, PositionIndexer::Create(*spec_.indexer, kv_->type(), parts.n_ctx,
                                            parts.cpu.threads(), parts.stop));
      return {};
    }
    if (spec_.is_joined) {
      return Fail(Errc::kDevice, "keys of a file with attn_kv_b are computed in memory");
    }
    TRY(masked_,
        MaskedAttention::Allocate(parts.device->backend(), shape, parts.chunk, parts.n_cells));
    mask_bytes_ = MaskedAttention::BytesFor(parts.chunk, parts.n_cells);
    return {};
  }

  ggml_tensor* Build(const LayerTensors& w, const MixerGraph& in) override {
    ggml_context* ctx = in.ctx;
    const int64_t n_rows = in.x->ne[1];
    ggml_tensor* x = RmsNorm(ctx, in.x, w.attn_norm, w.attn_norm_b, rms_eps_);
    // The cache is written before the attention node reads it: nodes run in the order they are
    // added.
    ggml_tensor* k_cache = kv_->K(ctx, in.layer.value);
    ggml_tensor* keys = Keys(ctx, w, x, in.positions);
    ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, k_cache, keys, in.cells));
    ggml_tensor* of_queries = QueryLatent(ctx, w, x);
    if (spec_.has_own_indexer()) Choose(w, in, x, of_queries);
    // found [n_latent, n_head, rows]: the mean latent of each head over its sequence's cells.
    ggml_tensor* q = Queries(ctx, w, of_queries, in.positions);
    ggml_tensor* found =
        masked_ ? masked_->Node(ctx, q, {.k = k_cache}, spec_.scale) : tiled_->Node(ctx, q);
    found = ggml_reshape_3d(ctx, found, spec_.n_latent, spec_.n_head, n_rows);
    // mixed [n_head * head_dim_v, rows], back to [n_embd, rows].
    ggml_tensor* values = HeadByHead(ctx, ToValues(ctx, w), found);
    ggml_tensor* mixed = ggml_reshape_2d(ctx, values, spec_.n_embd_out(), n_rows);
    if (spec_.has_gates) {
      ggml_tensor* gates = ggml_sigmoid(ctx, Linear(ctx, w.attn_gate, x, nullptr));
      mixed = TimesGates(ctx, mixed, gates, spec_.n_head);
    }
    return Linear(ctx, w.attn_out, mixed, w.attn_out_b);
  }

  void Bind(const LayerTensors& /*w*/, const MixerRows& rows) override {
    if (!tiled_) return;
    const KvCache::Layer cells = kv_->layer(rows.layer.value);
    if (spec_.has_own_indexer()) chosen_->Begin(rows.first, rows.visible);
    if (indexer_) {
      indexer_->Bind({.keys = cells.v,
                      .cell_bytes = KvBytes(kv_->type(), spec_.indexer->n_remembered()),
                      .first = rows.first,
                      .visible = rows.visible,
                      .chosen = chosen_});
    }
    if (pools_) pools_->Bind({.cells = cells.v, .visible = rows.visible});
    const bool is_chosen = chosen_ != nullptr && chosen_->may_choose();
    tiled_->Bind({.k = cells.k, .v = nullptr, .scale = spec_.scale, .window = 0, .sinks = {}},
                 is_chosen ? chosen_->rows(rows.first, rows.visible.size()) : rows.visible);
  }

  void SetRows(std::span<const RowCells> visible, Border& border) override {
    if (masked_) masked_->SetRows(visible, border);
  }
  uint32_t visited() const override { return masked_ ? masked_->visited() : 0; }
  void Assume(uint32_t rows) override {
    if (masked_) masked_->Assume(rows);
  }
  uint64_t work_bytes() const override { return mask_bytes_ + (tiled_ ? tiled_->bytes() : 0); }
  uint64_t thread_bytes() const override {
    return (tiled_ ? tiled_->thread_bytes() : 0) + (indexer_ ? indexer_->thread_bytes() : 0) +
           (pools_ ? pools_->thread_bytes() : 0);
  }

 private:
  // x [n, n_head, rows], each head times a matrix of its own [n, m, n_head] -> [m, n_head, rows].
  ggml_tensor* HeadByHead(ggml_context* ctx, ggml_tensor* matrices, ggml_tensor* x) {
    if (!masked_) return products_.Node(ctx, matrices, x);
    ggml_tensor* y = ggml_mul_mat(ctx, matrices, ggml_cont(ctx, ggml_permute(ctx, x, 0, 2, 1, 3)));
    // A device would add up half-precision products in half precision.
    if (!ggml_is_quantized(matrices->type)) ggml_prec_set_acc(y, GGML_PREC_F32);
    return ggml_cont(ctx, ggml_permute(ctx, y, 0, 2, 1, 3));
  }

  // x [n_embd, rows] -> the normed latent, then the turned values: [n_key, rows].
  ggml_tensor* Keys(ggml_context* ctx, const LayerTensors& w, ggml_tensor* x,
                    ggml_tensor* positions) const {
    const int64_t n_rows = x->ne[1];
    ggml_tensor* key = Linear(ctx, w.latent_kv_a, x, nullptr);
    if (spec_.n_turned == 0) return RmsNorm(ctx, key, w.latent_kv_norm, nullptr, rms_eps_);
    ggml_tensor* latent = ggml_view_2d(ctx, key, spec_.n_latent, n_rows, key->nb[1], 0);
    latent = RmsNorm(ctx, latent, w.latent_kv_norm, nullptr, rms_eps_);
    ggml_tensor* turned = ggml_view_3d(ctx, key, spec_.n_turned, 1, n_rows, key->nb[1], key->nb[1],
                                       spec_.n_latent * ggml_element_size(key));
    turned =
        ggml_cont_2d(ctx, Rotate(ctx, turned, positions, spec_.rope_pairs), spec_.n_turned, n_rows);
    return ggml_concat(ctx, latent, turned, 0);
  }

  // x [n_embd, rows] -> the input of queries: x itself, or a latent [n_query_latent, rows].
  ggml_tensor* QueryLatent(ggml_context* ctx, const LayerTensors& w, ggml_tensor* x) const {
    if (spec_.n_query_latent == 0) return x;
    return RmsNorm(ctx, Linear(ctx, w.latent_q_a, x, nullptr), w.latent_q_norm, nullptr, rms_eps_);
  }

  // x [n_embd, rows] -> the indexer's keys [head_dim, rows], which go to their cells, for pools
  // with gates behind them, [n_remembered, rows]; of_queries ->
  // the indexer's queries [head_dim, n_head, rows], which choose positions.
  void Choose(const LayerTensors& w, const MixerGraph& in, ggml_tensor* x,
              ggml_tensor* of_queries) {
    ggml_context* ctx = in.ctx;
    const IndexerSpec& spec = *spec_.indexer;
    const int64_t n_rows = x->ne[1];
    ggml_tensor* key = ggml_norm(ctx, Linear(ctx, w.indexer_k, x, nullptr), spec.eps);
    key = ggml_add(ctx, ggml_mul(ctx, key, w.indexer_k_norm), w.indexer_k_norm_b);
    key = Rotate(ctx, ggml_reshape_3d(ctx, key, spec.head_dim, 1, n_rows), in.positions,
                 spec.rope_pairs);
    key = ggml_reshape_2d(ctx, key, spec.head_dim, n_rows);
    if (pools_) {
      key = ggml_concat(ctx, key, Linear(ctx, w.indexer_pool_gate, x, nullptr), 0);
    }
    ggml_tensor* cells = kv_->V(ctx, in.layer.value);
    ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, cells, key, in.cells));
    if (pools_) ggml_build_forward_expand(in.graph, pools_->Node(ctx, w.indexer_pool_b));
    if (!indexer_) return;  // no text is long enough to choose
    ggml_tensor* queries = Linear(ctx, w.indexer_q, of_queries, nullptr);
    queries = Rotate(ctx, ggml_reshape_3d(ctx, queries, spec.head_dim, spec.n_head, n_rows),
                     in.positions, spec.rope_pairs);
    ggml_tensor* weights = Linear(ctx, w.indexer_weights, x, nullptr);
    ggml_build_forward_expand(in.graph, indexer_->Node(ctx, queries, weights));
  }

  // of_queries -> for each head the part that multiplies the latent, then the turned part: [n_key,
  // n_head, rows].
  ggml_tensor* Queries(ggml_context* ctx, const LayerTensors& w, ggml_tensor* of_queries,
                       ggml_tensor* positions) {
    ggml_tensor* matrix = spec_.n_query_latent > 0 ? w.latent_q_b : w.attn_q;
    ggml_tensor* q = Linear(ctx, matrix, of_queries, nullptr);
    q = ggml_reshape_3d(ctx, q, spec_.n_plain + spec_.n_turned, spec_.n_head, of_queries->ne[1]);
    if (spec_.n_turned == 0) return HeadByHead(ctx, w.latent_k_b, q);
    ggml_tensor* plain = PartOfHeads(ctx, q, 0, spec_.n_plain);
    ggml_tensor* turned = PartOfHeads(ctx, q, spec_.n_plain, spec_.n_turned);
    return ggml_concat(ctx, HeadByHead(ctx, w.latent_k_b, plain),
                       Rotate(ctx, turned, positions, spec_.rope_pairs), 0);
  }

  // [n_latent, head_dim_v, n_head]: a matrix for each head.
  ggml_tensor* ToValues(ggml_context* ctx, const LayerTensors& w) const {
    if (!spec_.is_joined) return w.latent_v_b;
    ggml_tensor* joined = w.latent_kv_b;  // per head n_plain rows for keys, then rows for values
    const size_t of_head = (spec_.n_plain + spec_.head_dim_v) * joined->nb[1];
    return ggml_view_3d(ctx, joined, spec_.n_latent, spec_.head_dim_v, spec_.n_head, joined->nb[1],
                        of_head, spec_.n_plain * joined->nb[1]);
  }

  // Turns the first n_dims values of each head.
  ggml_tensor* Rotate(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions,
                      RopePairs pairs) const {
    if (!spec_.rope) return heads;
    if (masked_) heads = ggml_cont(ctx, heads);
    return Turned(ctx, heads, positions, *spec_.rope, pairs, nullptr);
  }

  LatentAttentionSpec spec_;
  float rms_eps_;
  const KvCache* kv_;
  std::unique_ptr<TiledAttention> tiled_;  // on the CPU
  HeadProducts products_;                  // used on the CPU
  std::optional<MaskedAttention> masked_;  // on a device
  uint64_t mask_bytes_ = 0;
  ChosenPositions* chosen_;  // null: the model has no indexers
  // Null: no indexer in this layer, or texts are too short.
  std::unique_ptr<PositionIndexer> indexer_;
  std::unique_ptr<PooledKeys> pools_;  // null: no indexer of pools in this layer
};

}  // namespace

Result<std::unique_ptr<Mixer>> MakeLatentAttentionMixer(const MixerParts& parts,
                                                        const LatentAttentionSpec& spec) {
  auto mixer = std::make_unique<LatentAttentionMixer>(parts, spec);
  TRY_STATUS(mixer->Allocate(parts));
  return mixer;
}

}  // namespace moestro
