// SPDX-License-Identifier: MIT
#include "graph/layer_graph.h"

#include <ggml.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/check.h"
#include "graph/blocks.h"

namespace moestro {
namespace {

// Attention reads cells in steps of this many, so that a graph's shape changes once in 256 tokens.
constexpr uint32_t kCellStep = 256;
constexpr size_t kMaxNodes = 256;
constexpr uint16_t kHalfMinusInfinity = 0xFC00;
constexpr uint64_t kAlignment = 64;

ggml_tensor* RopeFactors(const ModelSpec& spec, const ArchChoices& arch, const ModelTensors& t,
                         uint32_t n_ctx) {
  if (t.rope_freqs != nullptr || !arch.long_short_factors) return t.rope_freqs;
  return n_ctx > spec.rope.original_context ? t.rope_factors_long : t.rope_factors_short;
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
      rows * AlignUp(limits.n_ctx, kCellStep) * sizeof(uint16_t),
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

uint64_t KvCache::BytesFor(const ModelSpec& spec, uint32_t n_ctx) {
  const uint64_t cell = (uint64_t{spec.n_embd_k()} + spec.n_embd_v()) * sizeof(uint16_t);
  return uint64_t{spec.n_layer} * (AlignUp(cell * n_ctx, kAlignment) + 2 * kAlignment);
}

Result<KvCache> KvCache::Allocate(const ModelSpec& spec, uint32_t n_ctx) {
  KvCache kv;
  kv.k_bytes_ = AlignUp(uint64_t{spec.n_embd_k()} * n_ctx * sizeof(uint16_t), kAlignment);
  const uint64_t v_bytes =
      AlignUp(uint64_t{spec.n_embd_v()} * n_ctx * sizeof(uint16_t), kAlignment);
  kv.layer_stride_ = kv.k_bytes_ + v_bytes;
  TRY(kv.buffer_, HostBuffer::Allocate(kv.layer_stride_ * spec.n_layer));
  return kv;
}

LayerGraph::LayerGraph(CpuDevice& device, const ModelSpec& spec, const ModelTensors& tensors,
                       StepBuffers& buffers, KvCache& kv, uint32_t n_ctx)
    : spec_(&spec),
      tensors_(&tensors),
      buffers_(&buffers),
      kv_(&kv),
      arch_(spec.attention),
      rope_factors_(RopeFactors(spec, arch_, tensors, n_ctx)),
      n_ctx_(n_ctx),
      arena_(device, kMaxNodes) {}

Status LayerGraph::Reserve(uint32_t chunk, uint32_t logits_rows) {
  // A later, larger graph would move the buffer; the largest of each kind comes first.
  BuildHead(0, std::min(chunk, logits_rows));
  TRY_STATUS(arena_.Reserve());
  const uint64_t head = arena_.buffer_bytes();
  const Batch whole{.first = n_ctx_ - std::min(chunk, n_ctx_), .n_tokens = std::min(chunk, n_ctx_)};
  for (const LayerKind kind : {LayerKind::kExperts, LayerKind::kDense}) {
    const auto first = std::ranges::find(spec_->layers, kind);
    if (first == spec_->layers.end()) continue;
    BuildLayer(LayerId{static_cast<uint16_t>(first - spec_->layers.begin())}, whole, 0);
    TRY_STATUS(arena_.Reserve());
  }
  CHECK(arena_.buffer_bytes() >= head);  // gallocr never shrinks
  return {};
}

void LayerGraph::Embed(std::span<const Token> tokens) {
  const ggml_tensor* table = tensors_->token_embd;
  const auto* rows = static_cast<const std::byte*>(table->data);
  const auto n_embd = static_cast<size_t>(spec_->n_embd);
  const ggml_to_float_t to_float = ggml_get_type_traits(table->type)->to_float;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const std::byte* row = rows + static_cast<size_t>(tokens[t]) * table->nb[1];
    float* out = buffers_->hidden() + t * n_embd;
    if (table->type == GGML_TYPE_F32) {
      std::copy_n(reinterpret_cast<const float*>(row), n_embd, out);
    } else {
      to_float(row, out, static_cast<int64_t>(n_embd));
    }
  }
}

void LayerGraph::SetBatch(const Batch& batch) {
  const auto n_kv = static_cast<size_t>(CellsOf(batch));
  for (uint32_t t = 0; t < batch.n_tokens; ++t) {
    const uint32_t position = batch.first + t;
    buffers_->positions()[t] = static_cast<int32_t>(position);
    buffers_->cells()[t] = position;
    uint16_t* row = buffers_->mask() + t * n_kv;
    std::fill_n(row, position + 1, uint16_t{0});
    std::fill(row + position + 1, row + n_kv, kHalfMinusInfinity);
  }
}

Status LayerGraph::Attend(LayerId layer, const Batch& batch, uint32_t look_ahead) {
  BuildLayer(layer, batch, look_ahead);
  return arena_.Run();
}

Status LayerGraph::Head(uint32_t first_row, uint32_t n_rows) {
  BuildHead(first_row, n_rows);
  return arena_.Run();
}

int64_t LayerGraph::CellsOf(const Batch& batch) const {
  return std::min<int64_t>(n_ctx_,
                           static_cast<int64_t>(AlignUp(batch.first + batch.n_tokens, kCellStep)));
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

void LayerGraph::BuildLayer(LayerId layer, const Batch& batch, uint32_t look_ahead) {
  ggml_context* ctx = arena_.Begin();
  const LayerTensors& w = tensors_->layers[layer.value];
  const int64_t n_tokens = batch.n_tokens;
  const int64_t n_kv = CellsOf(batch);

  AttentionInputs in{.x = Input(GGML_TYPE_F32, {spec_->n_embd, n_tokens}, StepBuffers::kHidden),
                     .positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_tokens),
                     .cells = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, n_tokens),
                     .mask = Input(GGML_TYPE_F16, {n_kv, n_tokens}, StepBuffers::kMask),
                     .k_cache = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, spec_->n_embd_k(), n_ctx_),
                     .v_cache = ggml_new_tensor_2d(ctx, GGML_TYPE_F16, spec_->n_embd_v(), n_ctx_),
                     .n_kv = n_kv,
                     .rope_factors = rope_factors_};
  buffers_->buffer_.Place(in.positions, buffers_->offsets_[StepBuffers::kPositions]);
  buffers_->buffer_.Place(in.cells, buffers_->offsets_[StepBuffers::kCells]);
  const uint64_t k_at = layer.value * kv_->layer_stride_;
  kv_->buffer_.Place(in.k_cache, k_at);
  kv_->buffer_.Place(in.v_cache, k_at + kv_->k_bytes_);

  ggml_tensor* attended = Attention(ctx, arena_.graph(), *spec_, arch_, w, in);
  ggml_tensor* ffn_in = RmsNorm(ctx, attended, w.ffn_norm, w.ffn_norm_b, spec_->rms_eps);
  if (!spec_->has_experts(layer.value)) {  // its result is the next layer's input
    ggml_tensor* ffn = DenseFfn(ctx, spec_->experts.activation, w, ffn_in);
    Output(ggml_add(ctx, ffn, attended), StepBuffers::kHidden);
    return;
  }
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
  const uint64_t skipped = uint64_t{first_row} * spec_->n_embd * sizeof(float);
  ggml_tensor* x = Input(GGML_TYPE_F32, {spec_->n_embd, n_rows}, StepBuffers::kHidden, skipped);
  x = RmsNorm(ctx, x, tensors_->output_norm, tensors_->output_norm_b, spec_->rms_eps);
  Output(Linear(ctx, tensors_->output, x, tensors_->output_b), StepBuffers::kLogits);
}

}  // namespace moestro
