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

ggml_tensor* RopeFactors(const ModelSpec& spec, const ModelTensors& t, uint32_t n_ctx) {
  if (t.rope_freqs != nullptr || !spec.attention.long_short_factors) return t.rope_freqs;
  return n_ctx > spec.rope.original_context ? t.rope_factors_long : t.rope_factors_short;
}

AttentionShape ShapeOf(const ModelSpec& spec, KvType kv_type) {
  return {.n_head = spec.n_head,
          .n_head_kv = spec.n_head_kv,
          .dim_k = spec.head_dim_k,
          .dim_v = spec.head_dim_v,
          .kv_type = kv_type};
}

}  // namespace

uint32_t LayerGraph::CellsFor(uint32_t n_cells, bool is_on_device) {
  return is_on_device ? static_cast<uint32_t>(AlignUp(n_cells, MaskedAttention::kCells)) : n_cells;
}

LayerGraph::LayerGraph(const Parts& parts, uint32_t n_ctx)
    : spec_(&parts.spec),
      tensors_(&parts.tensors),
      buffers_(&parts.buffers),
      kv_(&parts.kv),
      look_ahead_(parts.look_ahead),
      device_(parts.device),
      rope_factors_(RopeFactors(parts.spec, parts.tensors, n_ctx)),
      arena_(parts.device != nullptr ? parts.device->backend() : parts.cpu.backend(), kMaxNodes) {}

Result<std::unique_ptr<LayerGraph>> LayerGraph::Create(const Parts& parts, uint32_t n_ctx,
                                                       uint32_t chunk, uint32_t logits_rows) {
  std::unique_ptr<LayerGraph> graph(new LayerGraph(parts, n_ctx));
  const AttentionShape shape = ShapeOf(parts.spec, parts.kv.type());
  if (parts.device != nullptr) {
    ggml_backend_t backend = parts.device->backend();
    // Rows of hidden are places for tensors.
    if (parts.spec.n_embd * sizeof(float) % BackendBuffer::AlignmentOf(backend) != 0) {
      return Fail(Errc::kDevice, "rows of {} values do not lie where {} wants them",
                  parts.spec.n_embd, parts.device->info().name);
    }
    TRY(graph->masked_, MaskedAttention::Allocate(backend, shape, chunk, parts.kv.cells()));
  } else {
    TRY(graph->tiled_,
        TiledAttention::Create(shape, parts.cpu.threads(), AttentionKernel::ForThisMachine()));
  }
  TRY_STATUS(graph->Reserve(chunk, logits_rows));
  graph->work_bytes_ = graph->arena_.buffer_bytes() +
                       (graph->masked_ ? MaskedAttention::BytesFor(chunk, parts.kv.cells())
                                       : graph->tiled_->bytes());
  return graph;
}

LayerGraph::~LayerGraph() {
  // Whatever it says: nobody asks for results.
  [[maybe_unused]] const Status ended = Finish();
}

Status LayerGraph::Reserve(uint32_t chunk, uint32_t logits_rows) {
  // A later, larger graph would move the buffer; the largest of each kind comes first.
  visible_.assign(chunk, {});
  if (masked_) masked_->Assume(chunk);
  BuildHead(0, std::min(chunk, logits_rows));
  TRY_STATUS(CheckSupport());
  TRY_STATUS(arena_.Reserve());
  const uint64_t head = arena_.buffer_bytes();
  for (const LayerKind kind : {LayerKind::kExperts, LayerKind::kDense}) {
    const auto first = std::ranges::find(spec_->layers, kind);
    if (first == spec_->layers.end()) continue;
    BuildLayer(LayerId{static_cast<uint16_t>(first - spec_->layers.begin())}, 0);
    TRY_STATUS(CheckSupport());
    TRY_STATUS(arena_.Reserve());
  }
  CHECK(arena_.buffer_bytes() >= head);  // gallocr never shrinks
  return {};
}

Status LayerGraph::CheckSupport() const {
  if (device_ == nullptr) return {};
  for (int i = 0; i < ggml_graph_n_nodes(arena_.graph()); ++i) {
    const ggml_tensor* node = ggml_graph_node(arena_.graph(), i);
    if (ggml_backend_dev_supports_op(device_->handle(), node)) continue;
    const bool is_of_cache = node->op == GGML_OP_SET_ROWS || node->op == GGML_OP_FLASH_ATTN_EXT;
    return Fail(Errc::kDevice, "{} does not compute {} of this model{}{}", device_->info().name,
                ggml_op_name(node->op), is_of_cache ? " with keys and values in " : "",
                is_of_cache ? NameOf(kv_->type()) : "");
  }
  return {};
}

Status LayerGraph::SetRows(std::span<const StepRow> rows) {
  Embed(rows);
  is_hidden_there_ = false;
  visible_.clear();
  for (size_t r = 0; r < rows.size(); ++r) {
    buffers_->positions()[r] = static_cast<int32_t>(rows[r].position);
    buffers_->cells()[r] = rows[r].cell;
    visible_.push_back(rows[r].visible);
  }
  if (device_ == nullptr) return {};
  TRY_STATUS(device_->Finish());  // a step that failed may have left a launch behind
  TRY_STATUS(buffers_->Send(StepBuffers::kPositions, rows.size() * sizeof(int32_t)));
  TRY_STATUS(buffers_->Send(StepBuffers::kCells, rows.size() * sizeof(int64_t)));
  return masked_->SetRows(visible_);
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
  TRY_STATUS(SendHidden());
  BuildLayer(layer, look_ahead);
  TRY_STATUS(Run());
  if (device_ == nullptr) return {};
  is_hidden_there_ = !spec_->has_experts(layer.value);
  return is_hidden_there_ ? Status() : FetchLogits(layer, look_ahead);
}

Status LayerGraph::Head(uint32_t first_row, uint32_t n_rows) {
  TRY_STATUS(SendHidden());
  BuildHead(first_row, n_rows);
  TRY_STATUS(Run());
  if (device_ == nullptr) return {};
  TRY_STATUS(device_->Finish());
  return buffers_->Fetch(StepBuffers::kLogits, uint64_t{n_rows} * spec_->n_vocab * sizeof(float));
}

// What was computed in memory goes back.
Status LayerGraph::SendHidden() {
  if (device_ == nullptr || is_hidden_there_) return {};
  is_hidden_there_ = true;
  return buffers_->Send(StepBuffers::kHidden, row_bytes());
}

// A device computes while this returns; it waits for it whoever fetches something.
Status LayerGraph::Run() {
  if (device_ == nullptr) return arena_.Run();
  TRY_STATUS(arena_.Place());
  return arena_.Launch();
}

Status LayerGraph::FetchLogits(LayerId layer, uint32_t look_ahead) {
  TRY_STATUS(device_->Finish());
  const size_t n_expert = spec_->router.n_expert;
  const size_t n_rows = visible_.size();
  TRY_STATUS(buffers_->Fetch(StepBuffers::kRouter, n_rows * n_expert * sizeof(float)));
  const uint32_t layers = LayersAhead(layer, look_ahead);
  const size_t logits = n_rows * n_expert * layers;
  TRY_STATUS(buffers_->Fetch(StepBuffers::kAhead, logits * sizeof(float)));
  if (n_rows == 1 || layers <= 1) return {};
  // [rows][layers][n_expert] -> [layers][rows][n_expert]
  ahead_.assign(buffers_->ahead(), buffers_->ahead() + logits);
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t l = 0; l < layers; ++l) {
      std::copy_n(ahead_.data() + (r * layers + l) * n_expert, n_expert,
                  buffers_->ahead() + (l * n_rows + r) * n_expert);
    }
  }
  return {};
}

Status LayerGraph::FetchRows() {
  if (device_ == nullptr) return {};
  TRY_STATUS(buffers_->Fetch(StepBuffers::kResidual, row_bytes()));
  if (spec_->n_ff_shared > 0) TRY_STATUS(buffers_->Fetch(StepBuffers::kShared, row_bytes()));
  return buffers_->Fetch(StepBuffers::kFfnIn, row_bytes());
}

uint32_t LayerGraph::LayersAhead(LayerId layer, uint32_t look_ahead) const {
  const uint32_t first = spec_->expert_layers_before(layer.value + 1U);
  return std::min(look_ahead, spec_->n_expert_layers() - first);
}

ggml_tensor* LayerGraph::Input(ggml_type type, std::array<int64_t, 2> ne,
                               StepBuffers::Region region, uint64_t skip_bytes) {
  ggml_tensor* tensor = ggml_new_tensor_2d(arena_.context(), type, ne[0], ne[1]);
  buffers_->Place(tensor, region, skip_bytes);
  return tensor;
}

void LayerGraph::Output(ggml_tensor* result, StepBuffers::Region region, uint64_t skip_bytes) {
  // What was only given another shape has its place where it was computed.
  buffers_->Place(result->view_src != nullptr ? result->view_src : result, region, skip_bytes);
  ggml_build_forward_expand(arena_.graph(), result);
}

void LayerGraph::BuildLookAhead(LayerId layer, ggml_tensor* ffn_in, uint32_t look_ahead) {
  const uint32_t first = spec_->expert_layers_before(layer.value + 1U);
  const uint32_t layers = LayersAhead(layer, look_ahead);
  if (layers == 0) return;
  CHECK(look_ahead_ != nullptr);
  ggml_context* ctx = arena_.context();
  if (ffn_in->ne[1] == 1 || device_ != nullptr) {  // a device's are sorted once they are fetched
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
  ggml_tensor* k_cache = kv_->K(ctx, layer.value);
  ggml_tensor* v_cache = kv_->V(ctx, layer.value);
  const auto attend = [&](ggml_tensor* q, float scale) {
    if (masked_) return masked_->Node(ctx, q, k_cache, v_cache, scale);
    const KvCache::Layer kv = kv_->layer(layer.value);
    return tiled_->Node(ctx, q, {.k = kv.k, .v = kv.v, .scale = scale, .sinks = {}}, visible_);
  };

  // hidden [rows][n_embd], each row's position, and the cell that its key and value go to.
  const AttentionInputs in{.x = Input(GGML_TYPE_F32, {spec_->n_embd, n_rows}, StepBuffers::kHidden),
                           .positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, n_rows),
                           .cells = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, n_rows),
                           .k_cache = k_cache,
                           .v_cache = v_cache,
                           .rope_factors = rope_factors_,
                           .attend = attend};
  buffers_->Place(in.positions, StepBuffers::kPositions);
  buffers_->Place(in.cells, StepBuffers::kCells);

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
