// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/latent_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>

#include "base/number.h"
#include "base/result.h"
#include "compute/attention_kernel.h"
#include "compute/head_products.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/attention.h"
#include "forward/dense/blocks.h"
#include "forward/dense/mixers/pooled_keys.h"

namespace moestro {

Result<std::unique_ptr<PositionIndexer>> PositionIndexer::Create(const IndexerSpec& spec,
                                                                 KvType kv_type, uint32_t n_ctx,
                                                                 uint32_t threads,
                                                                 StopSignal* stop) {
  std::unique_ptr<PositionIndexer> indexer(new PositionIndexer(spec, kv_type, stop));
  TRY_STATUS(indexer->Allocate(n_ctx, threads));
  return indexer;
}

Status PositionIndexer::Allocate(uint32_t n_ctx, uint32_t threads) {
  TRY(product_, FindExpertKernel(GGML_TYPE_F32));
  const std::array<size_t, 6> bytes = {size_t{n_ctx} * sizeof(float),
                                       size_t{n_ctx} * sizeof(uint32_t),
                                       size_t{n_ctx} * sizeof(uint32_t),
                                       spec_.head_dim * sizeof(float),
                                       size_t{kKeys} * spec_.n_head * sizeof(float),
                                       kKeys * product_.activation_bytes(spec_.head_dim)};
  constexpr size_t kAlignment = 64;
  for (const size_t n : bytes) thread_bytes_ += AlignUp(n, kAlignment);
  TRY(memory_, HostMemory::Allocate(thread_bytes_ * threads));
  std::byte* at = memory_.data();
  for (uint32_t t = 0; t < threads; ++t) {
    std::array<std::byte*, 6> parts{};
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i] = at;
      at += AlignUp(bytes[i], kAlignment);
    }
    scratch_.push_back({.scores = reinterpret_cast<float*>(parts[0]),
                        .order = reinterpret_cast<uint32_t*>(parts[1]),
                        .cells = reinterpret_cast<uint32_t*>(parts[2]),
                        .key = reinterpret_cast<float*>(parts[3]),
                        .products = reinterpret_cast<float*>(parts[4]),
                        .activations = parts[5]});
  }
  return {};
}

void PositionIndexer::Bind(const Rows& rows) {
  rows_ = rows;
  next_row_.store(0, std::memory_order_relaxed);
}

ggml_tensor* PositionIndexer::Node(ggml_context* ctx, ggml_tensor* queries, ggml_tensor* weights) {
  CHECK(queries->type == GGML_TYPE_F32 && ggml_is_contiguous(queries));
  CHECK(queries->ne[0] == spec_.head_dim && queries->ne[1] == spec_.n_head);
  CHECK(weights == nullptr || (weights->type == GGML_TYPE_F32 && weights->ne[0] == spec_.n_head));
  std::array<ggml_tensor*, 2> args = {queries, weights};
  const int n_args = weights != nullptr ? 2 : 1;
  const auto call = [](ggml_tensor* result, int thread, int /*n_threads*/, void* userdata) {
    auto* self = static_cast<PositionIndexer*>(userdata);
    self->Work(result, self->scratch_[static_cast<size_t>(thread)]);
  };
  return ggml_custom_4d(ctx, GGML_TYPE_I32, 1, 1, 1, 1, args.data(), n_args, call, GGML_N_TASKS_MAX,
                        this);
}

void PositionIndexer::Work(const ggml_tensor* result, const Scratch& s) {
  for (;;) {
    const uint32_t row = next_row_.fetch_add(1, std::memory_order_relaxed);
    if (row >= rows_.visible.size() || ShallStop()) return;
    if (!rows_.chosen->is_chosen(rows_.visible[row])) continue;
    if (!Score(result, row, s)) rows_.chosen->SayDamaged();
    Choose(row, s);
  }
}

// scores [position or pool]: blocks of keys times all heads' queries. False: some scores are NaN or
// infinite, and count as 0.
bool PositionIndexer::Score(const ggml_tensor* result, uint32_t row, const Scratch& s) const {
  const ggml_tensor* queries = result->src[0];
  const ggml_tensor* weights = result->src[1];
  const auto* q = static_cast<const std::byte*>(queries->data) + row * queries->nb[2];
  const auto* w = weights == nullptr
                      ? nullptr
                      : reinterpret_cast<const float*>(
                            static_cast<const std::byte*>(weights->data) + row * weights->nb[1]);
  const uint32_t n_positions = rows_.visible[row].n_positions;
  uint32_t at = 0;
  for (const CellRun& run : rows_.visible[row].runs) {
    for (uint32_t i = 0; i < run.count && at < n_positions; ++i) s.cells[at++] = run.first + i;
  }
  CHECK(at == n_positions);
  const uint32_t n = n_positions / spec_.n_pool;
  // The key of a pool lies in the cell of its last position.
  const auto cell_of = [&](uint32_t pool) { return s.cells[(pool + 1) * spec_.n_pool - 1]; };
  const AttentionKernel::ToFloat to_float = kernel_.to_float(kv_type_);
  const size_t key_bytes = product_.activation_bytes(spec_.head_dim);
  std::array<const std::byte*, kKeys> keys{};
  std::array<float*, kKeys> out{};
  bool is_sound = true;
  for (uint32_t p = 0; p < n && !ShallStop(); p += kKeys) {
    const uint32_t count = std::min(kKeys, n - p);
    for (uint32_t i = 0; i < count; ++i) {
      to_float(rows_.keys + cell_of(p + i) * rows_.cell_bytes, s.key, spec_.head_dim);
      std::byte* key = s.activations + i * key_bytes;
      product_.quantise(product_, s.key, key, spec_.head_dim);
      keys[i] = key;
      out[i] = s.products + size_t{i} * spec_.n_head;
    }
    product_.multiply(product_, {.rows = q,
                                 .row_bytes = queries->nb[1],
                                 .n_in = spec_.head_dim,
                                 .n_rows = spec_.n_head,
                                 .activations = keys.data(),
                                 .out = out.data(),
                                 .n_tokens = count});
    for (uint32_t i = 0; i < count; ++i) {
      float score = 0.0F;
      for (uint32_t h = 0; h < spec_.n_head; ++h) {
        score += (w != nullptr ? w[h] : 1.0F) * std::max(out[i][h], 0.0F);
      }
      is_sound = is_sound && std::isfinite(score);
      s.scores[p + i] = std::isfinite(score) ? score : 0.0F;
    }
  }
  return is_sound;
}

void PositionIndexer::Choose(uint32_t row, const Scratch& s) const {
  const RowCells& visible = rows_.visible[row];
  const uint32_t n_pool = spec_.n_pool;
  const uint32_t n = visible.n_positions / n_pool;
  uint32_t* const begin = s.order;
  uint32_t* const chosen = begin + spec_.top_k / n_pool;
  std::iota(begin, begin + n, 0U);
  std::nth_element(begin, chosen, begin + n, [&](uint32_t a, uint32_t b) {
    return s.scores[a] != s.scores[b] ? s.scores[a] > s.scores[b] : a < b;
  });
  std::sort(begin, chosen);
  auto run = rows_.chosen->runs(rows_.first + row, visible).begin();
  for (const uint32_t* pool = begin; pool != chosen; ++pool) {
    for (uint32_t i = 0; i < n_pool; ++i) {
      *run++ = {.first = s.cells[*pool * n_pool + i], .count = 1};
    }
  }
  for (uint32_t p = n * n_pool; p < visible.n_positions; ++p) {
    *run++ = {.first = s.cells[p], .count = 1};
  }
}

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
