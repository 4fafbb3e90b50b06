// SPDX-License-Identifier: MIT
#include "forward/dense/layer_graph.h"

#include <ggml.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "forward/dense/blocks.h"

namespace moestro {
namespace {

constexpr size_t kMaxNodes = 256;
constexpr uint64_t kAlignment = 64;

ggml_tensor* RopeFactors(const ModelSpec& spec, const ModelTensors& t, uint32_t n_ctx) {
  if (t.rope_freqs != nullptr || !spec.attention.long_short_factors) return t.rope_freqs;
  return n_ctx > spec.rope.original_context ? t.rope_factors_long : t.rope_factors_short;
}

AttentionShape ShapeOf(const ModelSpec& spec) {
  return {.n_head = spec.n_head,
          .n_head_kv = spec.n_head_kv,
          .dim_k = spec.head_dim_k,
          .dim_v = spec.head_dim_v};
}

}  // namespace

StepBuffers::Offsets StepBuffers::Layout(const ModelSpec& spec, const StepLimits& limits) {
  const uint64_t rows = limits.chunk;
  const std::array<uint64_t, kRegions> sizes = {
      rows * spec.n_embd * sizeof(float),
      rows * spec.n_embd * sizeof(float),
      spec.n_ff_shared > 0 ? rows * spec.n_embd * sizeof(float) : 0,
      rows * spec.n_embd * sizeof(float),
      rows * spec.router.n_expert * sizeof(float),
      rows * limits.look_ahead * spec.router.n_expert * sizeof(float),
      uint64_t{limits.logits_rows} * spec.n_vocab * sizeof(float),
      rows * sizeof(int32_t),
      rows * sizeof(int64_t),
  };
  Offsets offsets{};
  for (size_t i = 0; i < kRegions; ++i) offsets[i + 1] = offsets[i] + AlignUp(sizes[i], kAlignment);
  return offsets;
}

uint64_t StepBuffers::BytesFor(const ModelSpec& spec, const StepLimits& limits) {
  return Layout(spec, limits).back();
}

Result<StepBuffers> StepBuffers::Allocate(const ModelSpec& spec, const StepLimits& limits) {
  StepBuffers buffers;
  buffers.offsets_ = Layout(spec, limits);
  TRY(buffers.buffer_, HostBuffer::Allocate(buffers.offsets_.back()));
  return buffers;
}

LayerGraph::LayerGraph(CpuDevice& device, const ModelSpec& spec, const ModelTensors& tensors,
                       StepBuffers& buffers, KvCache& kv, uint32_t n_ctx)
    : spec_(&spec),
      tensors_(&tensors),
      buffers_(&buffers),
      kv_(&kv),
      rope_factors_(RopeFactors(spec, tensors, n_ctx)),
      attention_(device.traits(), ShapeOf(spec), device.threads()),
      arena_(device.backend(), kMaxNodes) {}

Status LayerGraph::Reserve(uint32_t chunk, uint32_t logits_rows) {
  // A later, larger graph would move the buffer; the largest of each kind comes first.
  BuildHead(0, std::min(chunk, logits_rows));
  TRY_STATUS(arena_.Reserve());
  const uint64_t head = arena_.buffer_bytes();
  visible_.assign(chunk, {});
  for (const LayerKind kind : {LayerKind::kExperts, LayerKind::kDense}) {
    const auto first = std::ranges::find(spec_->layers, kind);
    if (first == spec_->layers.end()) continue;
    BuildLayer(LayerId{static_cast<uint16_t>(first - spec_->layers.begin())}, 0);
    TRY_STATUS(arena_.Reserve());
  }
  CHECK(arena_.buffer_bytes() >= head);  // gallocr never shrinks
  return {};
}

void LayerGraph::SetRows(std::span<const StepRow> rows) {
  Embed(rows);
  visible_.clear();
  for (size_t r = 0; r < rows.size(); ++r) {
    buffers_->positions()[r] = static_cast<int32_t>(rows[r].position);
    buffers_->cells()[r] = rows[r].cell;
    visible_.push_back(rows[r].visible);
  }
}

void LayerGraph::Embed(std::span<const StepRow> rows) {
  const ggml_tensor* table = tensors_->token_embd;
  const auto* values = static_cast<const std::byte*>(table->data);
  const auto n_embd = static_cast<size_t>(spec_->n_embd);
  const ggml_to_float_t to_float = ggml_get_type_traits(table->type)->to_float;
  for (size_t r = 0; r < rows.size(); ++r) {
    const std::byte* row = values + static_cast<size_t>(rows[r].token) * table->nb[1];
    float* out = buffers_->hidden() + r * n_embd;
    if (table->type == GGML_TYPE_F32) {
      std::copy_n(reinterpret_cast<const float*>(row), n_embd, out);
    } else {
      to_float(row, out, static_cast<int64_t>(n_embd));
    }
  }
}

Status LayerGraph::Attend(LayerId layer, uint32_t look_ahead) {
  BuildLayer(layer, look_ahead);
  return arena_.Run();
}

Status LayerGraph::Head(uint32_t first_row, uint32_t n_rows) {
  BuildHead(first_row, n_rows);
  return arena_.Run();
}

ggml_tensor* LayerGraph::Input(ggml_type type, std::array<int64_t, 2> ne,
                               StepBuffers::Region region, uint64_t skip_bytes) {
  ggml_tensor* tensor = ggml_new_tensor_2d(arena_.context(), type, ne[0], ne[1]);
  buffers_->buffer_.Place(tensor, buffers_->offsets_[region] + skip_bytes);
  return tensor;
}

void LayerGraph::Output(ggml_tensor* result, StepBuffers::Region region, uint64_t skip_bytes) {
  buffers_->buffer_.Place(result, buffers_->offsets_[region] + skip_bytes);
  ggml_build_forward_expand(arena_.graph(), result);
}

void LayerGraph::BuildLookAhead(LayerId layer, ggml_tensor* ffn_in, uint32_t look_ahead) {
  const uint32_t first = spec_->expert_layers_before(layer.value + 1U);
  const uint32_t layers = std::min(look_ahead, spec_->n_expert_layers() - first);
  if (layers == 0) return;
  CHECK(look_ahead_ != nullptr);
  ggml_context* ctx = arena_.context();
  if (ffn_in->ne[1] == 1) {
    Output(ggml_mul_mat(ctx, look_ahead_->Stack(ctx, first, layers), ffn_in), StepBuffers::kAhead);
    return;
  }
  for (uint32_t i = 0; i < layers; ++i) {  // of several tokens, so that a layer's rows are together
    ggml_tensor* logits = ggml_mul_mat(ctx, look_ahead_->Stack(ctx, first + i, 1), ffn_in);
    Output(logits, StepBuffers::kAhead, i * ggml_nbytes(logits));
  }
}

void LayerGraph::BuildLayer(LayerId layer, uint32_t look_ahead) {
  ggml_context* ctx = arena_.Begin();
  const LayerTensors& w = tensors_->layers[layer.value];
  const auto n_rows = static_cast<int64_t>(visible_.size());
  const KvCache::Layer kv = kv_->layer(layer.value);

  // hidden [rows][n_embd], each row's position, and the cell that its key and value go to.
  const AttentionInputs in{.x = Input(GGML_TYPE_F32, {spec_->n_embd, n_rows}, StepBuffers::kHidden),
                           .positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_rows),
                           .cells = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, n_rows),
                           .k_cache = kv_->K(ctx, layer.value),
                           .v_cache = kv_->V(ctx, layer.value),
                           .rope_factors = rope_factors_,
                           .attend = [&](ggml_tensor* q, float scale) {
                             return attention_.Node(ctx, q, {.k = kv.k, .v = kv.v}, scale,
                                                    visible_);
                           }};
  buffers_->buffer_.Place(in.positions, buffers_->offsets_[StepBuffers::kPositions]);
  buffers_->buffer_.Place(in.cells, buffers_->offsets_[StepBuffers::kCells]);

  // attended = hidden + attention(norm(hidden)) [rows][n_embd]; then the norm before the experts.
  ggml_tensor* attended = Attention(ctx, arena_.graph(), *spec_, w, in);
  ggml_tensor* ffn_in = RmsNorm(ctx, attended, w.ffn_norm, w.ffn_norm_b, spec_->rms_eps);
  if (!spec_->has_experts(layer.value)) {  // its result is the next layer's input
    ggml_tensor* ffn = DenseFfn(ctx, spec_->experts.activation, w, ffn_in);
    Output(ggml_add(ctx, ffn, attended), StepBuffers::kHidden);
    return;
  }
  // What the experts need: their input, the router's logits [rows][n_expert] of this layer and of
  // those looked ahead, the shared expert's result and the residual, [rows][n_embd] each.
  Output(ffn_in, StepBuffers::kFfnIn);
  Output(Linear(ctx, w.router, ffn_in, w.router_b), StepBuffers::kRouter);
  BuildLookAhead(layer, ffn_in, look_ahead);
  if (w.shared_gate != nullptr) {
    Output(SharedExpert(ctx, spec_->experts.activation, w, ffn_in), StepBuffers::kShared);
  }
  Output(attended, StepBuffers::kResidual);
}

void LayerGraph::BuildHead(uint32_t first_row, uint32_t n_rows) {
  ggml_context* ctx = arena_.Begin();
  // logits [rows][n_vocab] = output * norm(hidden), of `n_rows` rows from `first_row` on.
  const uint64_t skipped = uint64_t{first_row} * spec_->n_embd * sizeof(float);
  ggml_tensor* x = Input(GGML_TYPE_F32, {spec_->n_embd, n_rows}, StepBuffers::kHidden, skipped);
  x = RmsNorm(ctx, x, tensors_->output_norm, tensors_->output_norm_b, spec_->rms_eps);
  Output(Linear(ctx, tensors_->output, x, tensors_->output_b), StepBuffers::kLogits);
}

}  // namespace moestro
