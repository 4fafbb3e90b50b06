// SPDX-License-Identifier: MIT
#include "forward/dense/mixers/mixer.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <variant>

#include "compute/attention_kernel.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/attention.h"
#include "forward/dense/blocks.h"
#include "forward/dense/head_node.h"
#include "forward/dense/mixers/block_keys.h"
#include "forward/dense/mixers/delta_net.h"
#include "forward/dense/mixers/latent_attention.h"
#include "forward/dense/mixers/mamba2.h"
#include "forward/dense/mixers/pooled_attention.h"
#include "forward/dense/mixers/short_conv.h"

namespace moestro {

Result<std::unique_ptr<Mixer>> MakeMixer(const MixerParts& parts, const MixerSpec& spec,
                                         const MakeStateMixer& make_state) {
  if (const auto* attention = std::get_if<AttentionSpec>(&spec)) {
    return MakeAttentionMixer(parts, *attention);
  }
  if (const auto* latent = std::get_if<LatentAttentionSpec>(&spec)) {
    return MakeLatentAttentionMixer(parts, *latent);
  }
  if (const auto* pooled = std::get_if<PooledAttentionSpec>(&spec)) {
    return MakePooledAttentionMixer(parts, *pooled);
  }
  if (parts.device != nullptr) {
    return Fail(Errc::kDevice, "layers with a state are computed in memory");
  }
  if (const auto* delta = std::get_if<DeltaNetSpec>(&spec)) return MakeDeltaNetMixer(parts, *delta);
  if (const auto* conv = std::get_if<ShortConvSpec>(&spec)) return MakeShortConvMixer(parts, *conv);
  if (const auto* mamba = std::get_if<Mamba2Spec>(&spec)) return MakeMamba2Mixer(parts, *mamba);
  const auto& state = std::get<StateSpec>(spec);
  if (!make_state) return Fail(Errc::kUnsupported, "no mixer computes '{}'", state.kind);
  return make_state(parts, state);
}

namespace {

struct Heads {
  ggml_tensor* q;               // [head_dim_k, n_head, rows]
  ggml_tensor* k;               // [head_dim_k, n_head_kv, rows]
  ggml_tensor* v;               // [n_embd_v, rows]
  ggml_tensor* gate = nullptr;  // [n_head * head_dim_v or n_head, rows], if values are weighed
};

// Values [first, first + n) of each row of a projection.
ggml_tensor* Part(ggml_context* ctx, ggml_tensor* x, int64_t first, int64_t n) {
  ggml_tensor* view = ggml_view_2d(ctx, x, n, x->ne[1], x->nb[1],
                                   static_cast<size_t>(first) * ggml_element_size(x));
  return ggml_cont(ctx, view);
}

ggml_tensor* Clamped(ggml_context* ctx, ggml_tensor* x, float limit) {
  return limit > 0.0F ? ggml_clamp(ctx, x, -limit, limit) : x;
}

ggml_tensor* RopeFactors(const AttentionSpec& spec, const ModelTensors& t, uint32_t n_ctx) {
  if (!spec.has_rope_factors) return nullptr;
  if (!spec.rope || t.rope_freqs != nullptr || !spec.form.long_short_factors) return t.rope_freqs;
  return n_ctx > spec.rope->original_context ? t.rope_factors_long : t.rope_factors_short;
}

class AttentionMixer final : public Mixer {
 public:
  AttentionMixer(const MixerParts& parts, const AttentionSpec& spec)
      : spec_(spec),
        rms_eps_(parts.spec.rms_eps),
        norm_(parts.norm),
        kv_(&parts.kv),
        tensors_(&parts.tensors),
        n_ctx_(parts.n_ctx),
        rope_factors_(RopeFactors(spec, parts.tensors, parts.n_ctx)) {}

  Status Allocate(const MixerParts& parts) {
    const AttentionShape shape = AttentionShape::Of(spec_, kv_->type());
    if (parts.device == nullptr) {
      TRY(tiled_,
          TiledAttention::Create(shape, parts.cpu.threads(), AttentionKernel::ForThisMachine(),
                                 parts.stop, &parts.cpu.team_time()));
      if (spec_.chooses()) {
        TRY(blocks_, BlockKeys::Create(parts, spec_));
      }
      const bool has_own_keys = spec_.reach != AttentionReach::kAcross;
      if (spec_.form.qk_norm == QkNorm::kAfterRope || !has_own_keys) return {};
      TRY(heads_,
          HeadNode::Create(parts.cpu, spec_, kv_->type(), *norm_, rope_factors_, parts.chunk));
      return {};
    }
    TRY(masked_,
        MaskedAttention::Allocate(parts.device->backend(), shape, parts.chunk, parts.n_cells));
    mask_bytes_ = MaskedAttention::BytesFor(parts.chunk, parts.n_cells);
    return {};
  }

  ggml_tensor* Build(const LayerTensors& w, const MixerGraph& in) override {
    if (spec_.reach == AttentionReach::kAcross) return BuildAcross(w, in);
    ggml_context* ctx = in.ctx;
    // x [n_embd, rows] -> q [head_dim_k, n_head, rows], k [head_dim_k, n_head_kv, rows], v.
    const NormedRows x{
        .x = in.x, .weight = w.attn_norm, .bias = w.attn_norm_b, .eps = rms_eps_, .norm = norm_};
    Heads h = Project(ctx, w, x);
    // Heads are normed, and turned by each row's position. The cache is written before the
    // attention node reads it: nodes run in the order they are added.
    ggml_tensor* k_cache = kv_->K(ctx, in.layer.value);
    ggml_tensor* v_cache = kv_->V(ctx, in.layer.value);
    if (blocks_) {
      blocks_->Build(w, in, x, k_cache);
      k_cache = ggml_view_2d(ctx, k_cache, spec_.n_embd_k(), k_cache->ne[1], k_cache->nb[1], 0);
    }
    if (heads_) {
      PrepareInOneNode(w, in, k_cache, v_cache, h);
    } else {
      Prepare(w, in, k_cache, v_cache, h);
    }
    if (spec_.form.scale_query) h.q = ggml_scale(ctx, h.q, QueryScale());
    // mixed [n_head * head_dim_v, rows]: each head's result over its sequence's cells; back to
    // [n_embd, rows].
    ggml_tensor* mixed =
        masked_ ? masked_->Node(ctx, h.q, {k_cache, v_cache, w.attn_sinks}, ScoreScale())
                : tiled_->Node(ctx, h.q);
    if (h.gate != nullptr) mixed = Gated(ctx, mixed, h.gate);
    mixed = Linear(ctx, w.attn_out, mixed, w.attn_out_b);
    if (w.attn_post_norm != nullptr) {
      mixed = RmsNorm(ctx, mixed, w.attn_post_norm, nullptr, rms_eps_);
    }
    return mixed;
  }

  void BuildSource(const LayerTensors& w, const MixerGraph& in) override {
    ggml_context* ctx = in.ctx;
    // x [n_embd, rows] -> k [n_embd_k, rows], v [n_embd_v, rows], to their cells.
    std::array<ggml_tensor*, 2> kv{};
    Linears(ctx, std::array{w.attn_k, w.attn_v}, in.x, {}, kv);
    ggml_tensor* k_cache = kv_->K(ctx, in.layer.value);
    ggml_tensor* v_cache = kv_->V(ctx, in.layer.value);
    ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, k_cache, kv[0], in.cells));
    ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, v_cache, kv[1], in.cells));
  }

  void Bind(const LayerTensors& w, const MixerRows& rows) override {
    if (!tiled_) return;
    if (spec_.relative && !relative_) {
      const ggml_tensor* of = tensors_->layers[spec_.relative->layer].attn_relative;
      relative_.emplace(*spec_.relative, static_cast<const float*>(of->data), spec_.n_head, n_ctx_);
    }
    const KvCache::Layer cells = kv_->layer(rows.layer.value);
    TiledAttention::Layer layer{
        .k = cells.k, .v = cells.v, .scale = ScoreScale(), .window = spec_.window, .sinks = {}};
    if (w.attn_sinks != nullptr) {
      layer.sinks = {static_cast<const float*>(w.attn_sinks->data), spec_.n_head};
    }
    if (relative_) layer.relative = &*relative_;
    tiled_->Bind(layer, blocks_ ? blocks_->Bind(cells.k, rows) : rows.visible);
  }

  Status SetPositions(std::span<const int32_t> positions) override {
    if (blocks_) blocks_->SetPositions(positions);
    return heads_ ? heads_->SetPositions(positions) : Status();
  }
  void SetRows(std::span<const RowCells> visible, Border& border) override {
    if (masked_) masked_->SetRows(visible, border);
  }
  uint32_t visited() const override { return masked_ ? masked_->visited() : 0; }
  void Assume(uint32_t rows) override {
    if (masked_) masked_->Assume(rows);
  }
  uint64_t work_bytes() const override {
    const uint64_t relative = spec_.relative ? RelativeScores::BytesFor(spec_.n_head, n_ctx_) : 0;
    return mask_bytes_ + relative + (tiled_ ? tiled_->bytes() : 0) +
           (heads_ ? heads_->bytes() : 0) + (blocks_ ? blocks_->bytes() : 0);
  }
  uint64_t thread_bytes() const override {
    return (tiled_ ? tiled_->thread_bytes() : 0) + (blocks_ ? blocks_->thread_bytes() : 0);
  }

 private:
  // x [n_embd, rows] -> [n_embd, rows]: queries of the rows, keys and values of the source.
  ggml_tensor* BuildAcross(const LayerTensors& w, const MixerGraph& in) {
    ggml_tensor* q = Linear(
        in.ctx, w.attn_q,
        {.x = in.x, .weight = w.attn_norm, .bias = w.attn_norm_b, .eps = rms_eps_, .norm = norm_},
        nullptr);
    q = ggml_reshape_3d(in.ctx, q, spec_.head_dim_k, spec_.n_head, in.x->ne[1]);
    return Linear(in.ctx, w.attn_out, tiled_->Node(in.ctx, q), nullptr);
  }

  // The factor of query times key. With form.scale_query the factor multiplies queries, and scores
  // have factor 1.
  float QueryScale() const {
    if (spec_.scale != 0.0F) return spec_.scale;
    return 1.0F / std::sqrt(static_cast<float>(spec_.head_dim_k));
  }
  float ScoreScale() const { return spec_.form.scale_query ? 1.0F : QueryScale(); }

  // Norms each head by its RMS, where the file has the norms.
  void NormHeads(ggml_context* ctx, const LayerTensors& w, Heads& h) const {
    if (w.attn_q_norm != nullptr) h.q = RmsNorm(ctx, h.q, w.attn_q_norm, nullptr, rms_eps_);
    if (w.attn_k_norm != nullptr) h.k = RmsNorm(ctx, h.k, w.attn_k_norm, nullptr, rms_eps_);
  }

  // Prepares queries for attention, and stores keys and values in their cells.
  void PrepareInOneNode(const LayerTensors& w, const MixerGraph& in, ggml_tensor* k_cache,
                        ggml_tensor* v_cache, Heads& h) const {
    const bool has_norms = spec_.form.qk_norm == QkNorm::kPerHead;
    h.q = heads_->Node(in.ctx, {.q = h.q,
                                .k = h.k,
                                .v = h.v,
                                .q_norm = has_norms ? w.attn_q_norm : nullptr,
                                .k_norm = has_norms ? w.attn_k_norm : nullptr,
                                .k_cache = k_cache,
                                .v_cache = v_cache,
                                .cells = in.cells,
                                .first = in.first});
    ggml_build_forward_expand(in.graph, h.q);
  }
  void Prepare(const LayerTensors& w, const MixerGraph& in, ggml_tensor* k_cache,
               ggml_tensor* v_cache, Heads& h) const {
    ggml_context* ctx = in.ctx;
    if (spec_.form.qk_norm == QkNorm::kPerHead) NormHeads(ctx, w, h);
    h.q = Rotate(ctx, h.q, in.positions);
    h.k = Rotate(ctx, h.k, in.positions);
    if (spec_.form.qk_norm == QkNorm::kAfterRope) NormHeads(ctx, w, h);
    ggml_tensor* keys = ggml_reshape_2d(ctx, h.k, spec_.n_embd_k(), in.x->ne[1]);
    ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, k_cache, keys, in.cells));
    ggml_build_forward_expand(in.graph, ggml_set_rows(ctx, v_cache, h.v, in.cells));
  }

  // x [n_embd, rows] -> heads, with the limits and norms of some families.
  Heads Project(ggml_context* ctx, const LayerTensors& w, const NormedRows& x) const {
    const int64_t n_rows = x.x->ne[1];
    const int64_t n_q = spec_.n_query_rows();
    std::array<ggml_tensor*, 3> qkv{};
    if (w.attn_qkv != nullptr) {
      ggml_tensor* fused = Linear(ctx, w.attn_qkv, x, w.attn_qkv_b);
      qkv = {Part(ctx, fused, 0, n_q), Part(ctx, fused, n_q, spec_.n_embd_k()),
             Part(ctx, fused, n_q + spec_.n_embd_k(), spec_.n_embd_v())};
    } else if (spec_.values_are_keys) {
      Linears(ctx, std::array{w.attn_q, w.attn_k}, x, std::array{w.attn_q_b, w.attn_k_b},
              std::span(qkv).first<2>());
      qkv[2] = qkv[1];
    } else {
      Linears(ctx, std::array{w.attn_q, w.attn_k, w.attn_v}, x,
              std::array{w.attn_q_b, w.attn_k_b, w.attn_v_b}, qkv);
    }
    auto [q, k, v] = qkv;
    ggml_tensor* gate = w.attn_gate != nullptr ? Linear(ctx, w.attn_gate, x, nullptr) : nullptr;
    if (spec_.form.output_gate == OutputGate::kWithQuery) {
      gate = HalfOfHeads(ctx, q, 1);
      q = HalfOfHeads(ctx, q, 0);
    }
    q = Clamped(ctx, q, spec_.clamp_kqv);
    k = Clamped(ctx, k, spec_.clamp_kqv);
    v = Clamped(ctx, v, spec_.clamp_kqv);
    if (spec_.form.qk_norm == QkNorm::kWholeVector) {
      q = RmsNorm(ctx, q, w.attn_q_norm, nullptr, rms_eps_);
      k = RmsNorm(ctx, k, w.attn_k_norm, nullptr, rms_eps_);
    }
    q = ggml_reshape_3d(ctx, q, spec_.head_dim_k, spec_.n_head, n_rows);
    k = ggml_reshape_3d(ctx, k, spec_.head_dim_k, spec_.n_head_kv, n_rows);
    if (spec_.form.norms_values) v = NormValues(ctx, v);
    return {.q = q, .k = k, .v = v, .gate = gate};
  }

  // Norms v [n_embd_v, rows], head by head.
  ggml_tensor* NormValues(ggml_context* ctx, ggml_tensor* v) const {
    const int64_t n_rows = v->ne[1];
    v = ggml_reshape_3d(ctx, v, spec_.head_dim_v, spec_.n_head_kv, n_rows);
    return ggml_reshape_2d(ctx, ggml_rms_norm(ctx, v, rms_eps_), spec_.n_embd_v(), n_rows);
  }

  // mixed [n_head * head_dim_v, rows] times the gates [n_gate, rows].
  ggml_tensor* Gated(ggml_context* ctx, ggml_tensor* mixed, ggml_tensor* gate) const {
    const bool is_softplus = spec_.form.output_gate == OutputGate::kSoftplus;
    gate = is_softplus ? ggml_softplus(ctx, gate) : ggml_sigmoid(ctx, gate);
    return TimesGates(ctx, mixed, gate, spec_.n_head);
  }

  // x [2 * n_embd_q, rows], two halves per head -> one half, [n_embd_q, rows].
  ggml_tensor* HalfOfHeads(ggml_context* ctx, ggml_tensor* x, size_t half) const {
    const size_t bytes = spec_.head_dim_k * sizeof(float);
    ggml_tensor* heads = ggml_view_3d(ctx, x, spec_.head_dim_k, spec_.n_head, x->ne[1], 2 * bytes,
                                      x->nb[1], half * bytes);
    return ggml_cont_2d(ctx, heads, spec_.n_embd_q(), x->ne[1]);
  }

  ggml_tensor* Rotate(ggml_context* ctx, ggml_tensor* heads, ggml_tensor* positions) const {
    if (!spec_.rope) return heads;
    return Turned(ctx, heads, positions, *spec_.rope, spec_.form.rope_pairs, rope_factors_);
  }

  AttentionSpec spec_;
  float rms_eps_;
  const RowNorm* norm_;  // null: on a device
  const KvCache* kv_;
  const ModelTensors* tensors_;
  uint32_t n_ctx_;
  std::optional<RelativeScores> relative_;  // set once weights are loaded
  ggml_tensor* rope_factors_;               // F32 [n_dims / 2] or null
  std::unique_ptr<TiledAttention> tiled_;   // on the CPU
  std::unique_ptr<HeadNode> heads_;         // on the CPU, where the node can be used
  std::unique_ptr<BlockKeys> blocks_;       // null: rows attend to all positions
  std::optional<MaskedAttention> masked_;   // on a device
  uint64_t mask_bytes_ = 0;
};

}  // namespace

Result<std::unique_ptr<Mixer>> MakeAttentionMixer(const MixerParts& parts,
                                                  const AttentionSpec& spec) {
  auto mixer = std::make_unique<AttentionMixer>(parts, spec);
  TRY_STATUS(mixer->Allocate(parts));
  return mixer;
}

}  // namespace moestro
