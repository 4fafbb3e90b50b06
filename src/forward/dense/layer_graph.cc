// SPDX-License-Identifier: MIT
#include "forward/dense/layer_graph.h"

#include <ggml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>

#include "base/number.h"
#include "base/result.h"
#include "compute/product_node.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/blocks.h"
#include "forward/dense/layer_rows.h"

namespace moestro {
namespace {

constexpr size_t kMaxNodes = 256;

constexpr uint32_t kHeadRows = 16;  // few, since the output matrix is the largest by far

// Sorts logits in place, [rows][layers][n_expert] -> [layers][rows][n_expert].
void SortByLayer(std::span<float> logits, size_t n_rows, size_t layers,
                 std::vector<float>& scratch) {
  if (n_rows == 1 || layers <= 1) return;
  const size_t n_expert = logits.size() / (n_rows * layers);
  scratch.assign(logits.begin(), logits.end());
  for (size_t r = 0; r < n_rows; ++r) {
    for (size_t l = 0; l < layers; ++l) {
      std::copy_n(scratch.data() + (r * layers + l) * n_expert, n_expert,
                  logits.data() + (l * n_rows + r) * n_expert);
    }
  }
}

const ComputeDevice* DeviceOf(const DeviceLink* link) {
  return link != nullptr ? &link->device() : nullptr;
}

// Positions that indexers choose; 0: no layer has an indexer.
uint32_t TopKOf(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    const LatentAttentionSpec* latent = layer.latent_attention();
    if (latent != nullptr && latent->indexer) return latent->indexer->top_k;
  }
  return 0;
}

}  // namespace

CellCounts LayerGraph::CellsFor(const CellCounts& cells, bool is_on_device) {
  const auto aligned = [](uint32_t n) {
    return static_cast<uint32_t>(AlignUp(n, MaskedAttention::kCells));
  };
  if (!is_on_device) return cells;
  return {.all = aligned(cells.all), .recent = aligned(cells.recent)};
}

LayerGraph::LayerGraph(const Parts& parts)
    : spec_(&parts.spec),
      tensors_(&parts.tensors),
      buffers_(&parts.buffers),
      kv_(&parts.kv),
      look_ahead_(parts.look_ahead),
      link_(parts.link),
      clock_(parts.clock),
      // A device computes all rows of a step at once. Rows of a source attend to later rows, whose
      // keys must be computed.
      piece_rows_(parts.link != nullptr || parts.spec.encoder
                      ? std::numeric_limits<uint32_t>::max()
                      : PieceRows(parts.tensors, parts.team.threads())),
      norm_{.kernel = RowKernel::ForThisMachine(), .eps = parts.spec.rms_eps},
      fetched_(parts.buffers, parts.spec.layers.size(),
               parts.spec.any_layer(&ModelSpec::has_shared_result)),
      graphs_({.team = parts.team,
               .link = parts.link,
               .stop = parts.stop,
               .places = parts.spec.layers.size() + 1,
               .max_nodes = kMaxNodes}) {}

Result<std::unique_ptr<LayerGraph>> LayerGraph::Create(const Parts& parts, uint32_t n_ctx,
                                                       uint32_t chunk, uint32_t logits_rows) {
  std::unique_ptr<LayerGraph> graph(new LayerGraph(parts));
  if (parts.link != nullptr && parts.spec.MostOf(&FeedForwardSpec::n_latent) > 0) {
    return Fail(Errc::kDevice, "the dense part around latent experts is computed in memory");
  }
  if (parts.link != nullptr && parts.spec.encoder) {
    return Fail(Errc::kDevice, "encoders are computed in memory");
  }
  // Tensors are placed at rows of hidden, so rows must be aligned.
  if (parts.link != nullptr && parts.spec.n_embd * sizeof(float) %
                                       BackendBuffer::AlignmentOf(parts.link->device().backend()) !=
                                   0) {
    return Fail(Errc::kDevice, "rows of {} values do not lie where {} wants them",
                parts.spec.n_embd, parts.link->device().info().name);
  }
  if (const uint32_t top_k = TopKOf(parts.spec); top_k > 0) {
    if (parts.link != nullptr) {
      return Fail(Errc::kDevice, "positions that an indexer chooses are attended to in memory");
    }
    TRY(graph->chosen_, ChosenPositions::Create(chunk, top_k, n_ctx));
    graph->work_bytes_ = ChosenPositions::BytesFor(chunk, top_k, n_ctx);
  }
  TRY_STATUS(graph->MakeMixers(parts, n_ctx, chunk));
  TRY_STATUS(graph->Reserve(chunk, logits_rows));
  graph->work_bytes_ += graph->graphs_.value_bytes();
  for (const auto& mixer : graph->mixers_) graph->work_bytes_ += mixer->work_bytes();
  return graph;
}

Status LayerGraph::MakeMixers(const Parts& parts, uint32_t n_ctx, uint32_t chunk) {
  MixerParts from{.cpu = parts.team.device(),
                  .spec = parts.spec,
                  .tensors = parts.tensors,
                  .kv = parts.kv,
                  .states = parts.states,
                  .device = DeviceOf(parts.link),
                  .norm = parts.link == nullptr ? &norm_ : nullptr,
                  .stop = parts.stop,
                  .n_ctx = n_ctx,
                  .chunk = chunk,
                  .chosen = chosen_.get()};
  const std::vector<LayerSpec>& layers = spec_->layers;
  for (size_t l = 0; l < layers.size(); ++l) {
    if (!layers[l].has_mixer()) {
      mixer_of_.push_back(nullptr);
      continue;
    }
    const auto alike = std::ranges::find(layers, layers[l].mixer, &LayerSpec::mixer);
    const auto first = static_cast<size_t>(alike - layers.begin());
    if (first < l) {
      mixer_of_.push_back(mixer_of_[first]);
      continue;
    }
    from.n_cells = kv_->cells_of(static_cast<uint32_t>(l));
    TRY(std::unique_ptr<Mixer> mixer, MakeMixer(from, layers[l].mixer, parts.make_state_mixer));
    mixer_of_.push_back(mixer.get());
    mixers_.push_back(std::move(mixer));
  }
  return {};
}

uint64_t LayerGraph::thread_bytes() const {
  uint64_t bytes = kProductStackBytes;
  for (const auto& mixer : mixers_) bytes += mixer->thread_bytes();
  return bytes;
}

LayerGraph::~LayerGraph() {
  // An error is ignored, since no call requests results.
  [[maybe_unused]] const Status ended = Finish();
}

Status LayerGraph::Reserve(uint32_t chunk, uint32_t logits_rows) {
  // The largest graph of each kind comes first: a later, larger graph would move the buffer.
  visible_.assign(chunk, {});
  recent_.assign(chunk, {});
  sources_.assign(chunk, {});
  states_.assign(chunk, {});
  for (const auto& mixer : mixers_) mixer->Assume(chunk);
  const uint32_t head_rows = std::min(chunk, logits_rows);
  graphs_.Begin();
  BuildHead({.count = link_ != nullptr ? head_rows : std::min(head_rows, kHeadRows)}, 0);
  TRY_STATUS(CheckComputes(DeviceOf(link_), graphs_.graph(), kv_->type()));
  TRY_STATUS(graphs_.Reserve());
  const std::vector<LayerSpec>& layers = spec_->layers;
  for (size_t l = 0; l < layers.size(); ++l) {
    const auto is_alike = [&](size_t other) {
      return layers[other] == layers[l] && BringsParts(other) == BringsParts(l);
    };
    if (std::ranges::any_of(std::views::iota(size_t{0}, l), is_alike)) continue;
    graphs_.Begin();
    BuildLayer(LayerId{static_cast<uint16_t>(l)}, 0, {.count = std::min(chunk, piece_rows_)});
    TRY_STATUS(CheckComputes(DeviceOf(link_), graphs_.graph(), kv_->type()));
    TRY_STATUS(graphs_.Reserve());
  }
  if (!spec_->encoder) return {};
  const auto last = static_cast<uint16_t>(layers.size() - 1);  // attends to the source
  graphs_.Begin();
  BuildSource(LayerId{last}, {.count = chunk});
  return graphs_.Reserve();
}

Status LayerGraph::SetRows(std::span<const StepRow> rows) {
  EmbedRows(*tensors_->token_embd, spec_->embedding_scale, rows, buffers_->hidden());
  is_hidden_there_ = false;
  visible_.clear();
  recent_.clear();
  sources_.clear();
  states_.clear();
  for (size_t r = 0; r < rows.size(); ++r) {
    buffers_->positions()[r] = static_cast<int32_t>(rows[r].position);
    buffers_->cells()[r] = rows[r].cell;
    buffers_->recent_cells()[r] = rows[r].recent_cell;
    visible_.push_back(rows[r].visible);
    recent_.push_back(rows[r].recent);
    sources_.push_back(rows[r].source);
    states_.push_back(rows[r].state);
  }
  TRY_STATUS(SetPositions());
  if (link_ == nullptr) return {};
  TRY_STATUS(link_->Finish());  // a step that failed may have left a launch behind
  TRY_STATUS(link_->Cross(
      {.writes = {buffers_->ToDevice(StepBuffers::kPositions, rows.size() * sizeof(int32_t)),
                  buffers_->ToDevice(StepBuffers::kCells, rows.size() * sizeof(int64_t)),
                  buffers_->ToDevice(StepBuffers::kRecentCells, rows.size() * sizeof(int64_t))}}));
  for (const auto& mixer : mixers_) {
    const auto layer =
        static_cast<uint32_t>(std::ranges::find(mixer_of_, mixer.get()) - mixer_of_.begin());
    TRY_STATUS(mixer->SetRows(kv_->is_recent(layer) ? recent_ : visible_));
  }
  return {};
}

Status LayerGraph::SetPositions() {
  for (const auto& mixer : mixers_) {
    TRY_STATUS(mixer->SetPositions({buffers_->positions(), visible_.size()}));
  }
  return {};
}

LayerGraph::RowsAside LayerGraph::TakeRows(size_t n_others) const {
  const size_t n = std::min(n_others, visible_.size());
  const size_t values = n * spec_->n_embd;
  const bool is_parted = spec_->any_layer(&ModelSpec::ends_in_next);
  const bool has_shared = spec_->any_layer(&ModelSpec::adds_shared_in_next);
  return {.visible = visible_,
          .recent = recent_,
          .sources = sources_,
          .states = states_,
          .hidden = {buffers_->hidden(), buffers_->hidden() + values},
          .residual = {buffers_->residual(), buffers_->residual() + (is_parted ? values : 0)},
          .shared = {buffers_->shared(), buffers_->shared() + (has_shared ? values : 0)},
          .positions = {buffers_->positions(), buffers_->positions() + n},
          .cells = {buffers_->cells(), buffers_->cells() + n},
          .recent_cells = {buffers_->recent_cells(), buffers_->recent_cells() + n},
          .chosen = chosen_ ? chosen_->Take(n) : ChosenPositions::SavedChoice()};
}

Status LayerGraph::GiveRows(const RowsAside& rows) {
  std::ranges::copy(rows.hidden, buffers_->hidden());
  std::ranges::copy(rows.residual, buffers_->residual());
  std::ranges::copy(rows.shared, buffers_->shared());
  std::ranges::copy(rows.positions, buffers_->positions());
  std::ranges::copy(rows.cells, buffers_->cells());
  std::ranges::copy(rows.recent_cells, buffers_->recent_cells());
  if (chosen_) chosen_->Give(rows.chosen);
  visible_ = rows.visible;
  recent_ = rows.recent;
  sources_ = rows.sources;
  states_ = rows.states;
  return SetPositions();
}

Status LayerGraph::Attend(LayerId layer, uint32_t look_ahead) {
  const double start = clock_();
  TRY_STATUS(ComputeLayer(layer, look_ahead));
  seconds_ += clock_() - start;
  return CheckFinite(layer);
}

Status LayerGraph::ComputeLayer(LayerId layer, uint32_t look_ahead) {
  TRY_STATUS(SendHidden());
  const auto n_rows = static_cast<uint32_t>(visible_.size());
  // Pieces run in order, since a row attends only to cells of earlier rows.
  for (uint32_t first = 0; first < n_rows;) {
    const StepRows rows{.first = first, .count = std::min(piece_rows_, n_rows - first)};
    Bind(layer, rows);
    // Graphs of a part of the rows are not kept: the step's number of rows is no part of the key.
    const Mixer* const mixer = mixer_of_[layer.value];
    const GraphCache::Key key{.rows = rows.count == n_rows ? n_rows : 0,
                              .look_ahead = look_ahead,
                              .visited = mixer != nullptr ? mixer->visited() : 0};
    TRY_STATUS(graphs_.Run(layer.value, key, [&] { BuildLayer(layer, look_ahead, rows); }));
    first += rows.count;
  }
  if (link_ == nullptr) return {};
  is_hidden_there_ = !spec_->has_experts(layer.value);
  return is_hidden_there_ ? Status() : FetchLogits(layer, look_ahead);
}

Status LayerGraph::RememberSource() {
  const double start = clock_();
  const StepRows rows{.first = 0, .count = static_cast<uint32_t>(visible_.size())};
  for (uint16_t l = 0; l < spec_->n_layer(); ++l) {
    if (!spec_->layers[l].attends_to_source()) continue;
    TRY_STATUS(graphs_.Run(l, {}, [&] { BuildSource(LayerId{l}, rows); }));
  }
  seconds_ += clock_() - start;
  return {};
}

Status LayerGraph::CheckFinite(LayerId layer) const {
  if (chosen_ && chosen_->TakeDamage()) {
    return Fail(Errc::kInvalidFile,
                "layer {}'s indexer computed NaN or infinity; the weights are damaged: fetch the "
                "model again",
                layer.value);
  }
  return CheckLayer(*spec_, *buffers_, layer, visible_.size());
}

Status LayerGraph::Head(uint32_t first_row, uint32_t n_rows) {
  TRY_STATUS(SendHidden());
  const uint32_t together = link_ != nullptr ? n_rows : kHeadRows;
  for (uint32_t at = 0; at < n_rows; at += together) {
    const StepRows rows{.first = first_row + at, .count = std::min(together, n_rows - at)};
    // A graph of later rows of logits is not kept: `at` is no part of the key.
    const auto build = [&] { BuildHead(rows, at); };
    const GraphCache::Key key{.first = rows.first, .rows = at == 0 ? rows.count : 0};
    TRY_STATUS(graphs_.Run(spec_->n_layer(), key, build));
  }
  if (link_ != nullptr) {
    const uint64_t bytes = uint64_t{n_rows} * spec_->n_vocab * sizeof(float);
    TRY_STATUS(link_->Cross({.reads = {buffers_->ToMemory(StepBuffers::kLogits, bytes)}}));
  }
  const auto row =
      FirstRowNotFinite({buffers_->logits(), size_t{n_rows} * spec_->n_vocab}, spec_->n_vocab);
  if (!row) return {};
  return Fail(
      Errc::kInvalidFile,
      "position {}: the last layer's experts or the output matrix computed NaN or infinity; "
      "the weights are damaged: fetch the model again",
      buffers_->positions()[first_row + *row]);
}

// Sends hidden to the device if it was computed in memory.
Status LayerGraph::SendHidden() {
  if (link_ == nullptr || is_hidden_there_) return {};
  is_hidden_there_ = true;
  return link_->Cross({.writes = {buffers_->ToDevice(StepBuffers::kHidden, row_bytes())}});
}

bool LayerGraph::IsForTeam(LayerRange layers, size_t n_rows, uint32_t look_ahead) const {
  return graphs_.AreForTeam(layers.first, layers.end,
                            {.rows = static_cast<uint32_t>(n_rows), .look_ahead = look_ahead});
}

Status LayerGraph::FetchLogits(LayerId layer, uint32_t look_ahead) {
  const size_t n_expert = spec_->router.n_expert;
  const size_t n_rows = visible_.size();
  const uint32_t layers = LayersAhead(layer, look_ahead);
  const size_t logits = n_rows * n_expert * layers;
  Border border;
  border.reads.push_back(
      buffers_->ToMemory(StepBuffers::kRouter, n_rows * n_expert * sizeof(float)));
  if (logits > 0) {
    border.reads.push_back(buffers_->ToMemory(StepBuffers::kAhead, logits * sizeof(float)));
  }
  fetched_.AddLikely(layer.value, row_bytes(), border);
  TRY_STATUS(link_->Cross(border));
  SortByLayer({buffers_->ahead(), logits}, n_rows, layers, ahead_);
  return {};
}

Status LayerGraph::FetchRows() {
  return link_ != nullptr ? fetched_.Fetch(row_bytes(), *link_) : Status();
}

void LayerGraph::HiddenIsThere() {
  is_hidden_there_ = true;
  fetched_.NoteUnused();
}

uint32_t LayerGraph::LayersAhead(LayerId layer, uint32_t look_ahead) const {
  const uint32_t first = spec_->expert_layers_before(layer.value + 1U);
  return std::min(look_ahead, spec_->n_expert_layers() - first);
}

// Rows of StepBuffers, [rows][n_embd].
ggml_tensor* LayerGraph::Region(StepBuffers::Region where, StepRows rows) {
  ggml_tensor* x = ggml_new_tensor_2d(graphs_.context(), GGML_TYPE_F32, spec_->n_embd, rows.count);
  buffers_->Place(x, where, rows.first * x->nb[1]);
  return x;
}

// The input of a layer, or of the head behind the last layer: hidden [rows][n_embd].
ggml_tensor* LayerGraph::Input(uint32_t layer, StepRows rows) {
  ggml_tensor* x = Region(StepBuffers::kHidden, rows);
  if (!BringsParts(layer)) return x;
  const bool has_shared = spec_->adds_shared_in_next(layer - 1);
  return EndLayer(graphs_.context(), tensors_->layers[layer - 1],
                  {.y = x,
                   .shared = has_shared ? Region(StepBuffers::kShared, rows) : nullptr,
                   .residual = Region(StepBuffers::kResidual, rows),
                   .n_latent = spec_->layers[layer - 1].feed_forward.n_latent,
                   .eps = spec_->rms_eps});
}

// Places result [rows][...] at row `first_row` of the region.
void LayerGraph::Output(ggml_tensor* result, StepBuffers::Region region, uint64_t first_row) {
  // A view has no memory of its own: its source gets the place.
  buffers_->Place(result->view_src != nullptr ? result->view_src : result, region,
                  first_row * result->nb[1]);
  ggml_build_forward_expand(graphs_.graph(), result);
}

void LayerGraph::BuildLookAhead(LayerId layer, ggml_tensor* ffn_in, uint32_t look_ahead,
                                StepRows rows) {
  const uint32_t first = spec_->expert_layers_before(layer.value + 1U);
  const uint32_t layers = LayersAhead(layer, look_ahead);
  if (layers == 0) return;
  CHECK(look_ahead_ != nullptr);
  ggml_context* ctx = graphs_.context();
  if (visible_.size() == 1 || link_ != nullptr) {  // a device's logits are sorted after fetching
    Output(MultiplyNode(ctx, look_ahead_->Stack(ctx, first, layers), ffn_in), StepBuffers::kAhead,
           rows.first);
    return;
  }
  for (uint32_t i = 0; i < layers; ++i) {  // a product per layer keeps the layer's rows together
    ggml_tensor* logits = MultiplyNode(ctx, look_ahead_->Stack(ctx, first + i, 1), ffn_in);
    Output(logits, StepBuffers::kAhead, i * visible_.size() + rows.first);
  }
}

// The cells that rows attend to in a layer.
const std::vector<RowCells>& LayerGraph::CellsOf(LayerId layer) const {
  if (spec_->layers[layer.value].attends_to_source()) return sources_;
  return kv_->is_recent(layer.value) ? recent_ : visible_;
}

void LayerGraph::Bind(LayerId layer, StepRows rows) {
  Mixer* const mixer = mixer_of_[layer.value];
  if (mixer == nullptr) return;
  const std::vector<RowCells>& visible = CellsOf(layer);
  mixer->Bind(tensors_->layers[layer.value],
              {.layer = layer,
               .first = rows.first,
               .visible = std::span(visible).subspan(rows.first, rows.count),
               .states = std::span(states_).subspan(rows.first, rows.count)});
}

// x [rows][n_embd], each row's position, and the cell that its key and value go to.
MixerGraph LayerGraph::MixerGraphOf(LayerId layer, ggml_tensor* x, StepRows rows) {
  ggml_context* ctx = graphs_.context();
  const MixerGraph in{.ctx = ctx,
                      .graph = graphs_.graph(),
                      .layer = layer,
                      .first = rows.first,
                      .x = x,
                      .positions = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, rows.count),
                      .cells = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, rows.count)};
  const bool is_recent = kv_->is_recent(layer.value);
  buffers_->Place(in.positions, StepBuffers::kPositions, rows.first * sizeof(int32_t));
  buffers_->Place(in.cells, is_recent ? StepBuffers::kRecentCells : StepBuffers::kCells,
                  rows.first * sizeof(int64_t));
  return in;
}

// hidden [rows][n_embd] -> keys and values of a layer that attends to the source.
void LayerGraph::BuildSource(LayerId layer, StepRows rows) {
  ggml_tensor* x = RmsNorm(graphs_.context(), Region(StepBuffers::kHidden, rows),
                           tensors_->encoder_norm, nullptr, spec_->rms_eps);
  mixer_of_[layer.value]->BuildSource(tensors_->layers[layer.value], MixerGraphOf(layer, x, rows));
}

void LayerGraph::BuildLayer(LayerId layer, uint32_t look_ahead, StepRows rows) {
  ggml_context* ctx = graphs_.context();
  const LayerTensors& w = tensors_->layers[layer.value];
  const MixerGraph in = MixerGraphOf(layer, Input(layer.value, rows), rows);

  // mixed = mixer(norm(hidden)) [rows][n_embd], attended = hidden + mixed; without a mixer a copy
  // of hidden.
  Mixer* const mixer = mixer_of_[layer.value];
  ggml_tensor* mixed = mixer != nullptr ? mixer->Build(w, in) : nullptr;
  if (spec_->has_experts(layer.value) && CanSumAndNorm(w, mixed)) {
    ggml_tensor* attended = Region(StepBuffers::kResidual, rows);
    ggml_tensor* ffn_in = SumAndNorm(ctx, norm_, mixed, in.x, w.ffn_norm, attended);
    ggml_build_forward_expand(graphs_.graph(), ffn_in);  // runs before nodes that read `attended`
    return BuildExperts(layer, attended, ffn_in, look_ahead, rows);
  }
  ggml_tensor* attended = mixed != nullptr ? AddResidual(ctx, mixed, in.x, spec_->residual_scale)
                                           : ggml_cont(ctx, in.x);
  if (!spec_->layers[layer.value].feed_forward.is_there()) {
    return Output(attended, StepBuffers::kHidden, rows.first);
  }
  // A layer without a mixer has one norm, which every family calls attention's.
  ggml_tensor* norm = w.ffn_norm != nullptr ? w.ffn_norm : w.attn_norm;
  ggml_tensor* ffn_in = RmsNorm(ctx, attended, norm, w.ffn_norm_b, spec_->rms_eps);
  if (!spec_->has_experts(layer.value)) return BuildDenseFfn(layer, attended, ffn_in, rows);
  BuildExperts(layer, attended, ffn_in, look_ahead, rows);
  Output(attended, StepBuffers::kResidual, rows.first);
}

// Whether one node adds a mixer's result to the input and norms the sum.
bool LayerGraph::CanSumAndNorm(const LayerTensors& w, const ggml_tensor* mixed) const {
  return link_ == nullptr && mixed != nullptr && ggml_is_contiguous(mixed) &&
         spec_->residual_scale == 1.0F && w.ffn_norm != nullptr && w.ffn_norm_b == nullptr;
}

// A feed-forward block without experts: attended, ffn_in [rows][n_embd] -> the next layer's input.
void LayerGraph::BuildDenseFfn(LayerId layer, ggml_tensor* attended, ggml_tensor* ffn_in,
                               StepRows rows) {
  ggml_context* ctx = graphs_.context();
  const LayerTensors& w = tensors_->layers[layer.value];
  ggml_tensor* ffn = DenseFfn(ctx, spec_->experts.activation, w, ffn_in);
  if (w.ffn_post_norm != nullptr) {
    ffn = RmsNorm(ctx, ffn, w.ffn_post_norm, nullptr, spec_->rms_eps);
  }
  ffn = AddResidual(ctx, ffn, attended, spec_->residual_scale);
  if (w.output_scale != nullptr) ffn = ggml_mul(ctx, ffn, w.output_scale);
  Output(ffn, StepBuffers::kHidden, rows.first);
}

// attended, ffn_in [rows][n_embd] -> the experts' inputs but the residual.
void LayerGraph::BuildExperts(LayerId layer, ggml_tensor* attended, ggml_tensor* ffn_in,
                              uint32_t look_ahead, StepRows rows) {
  ggml_context* ctx = graphs_.context();
  const LayerTensors& w = tensors_->layers[layer.value];
  const Activation activation = spec_->experts.activation;
  // The experts' input [rows][n_embd_expert].
  ggml_tensor* expert_in = ffn_in;
  if (w.experts_norm != nullptr) {
    expert_in = RmsNorm(ctx, attended, w.experts_norm, nullptr, spec_->rms_eps);
  }
  if (w.latent_down != nullptr) expert_in = Linear(ctx, w.latent_down, expert_in, nullptr);
  Output(expert_in, StepBuffers::kFfnIn, rows.first);
  // The router's logits [rows][n_expert] of this layer and of layers ahead, without biases.
  ggml_tensor* router_in = ffn_in;
  ggml_tensor* ahead_in = ffn_in;
  if (w.router_scale != nullptr) {  // layers looked ahead have scales of their own
    const float unit = 1.0F / std::sqrt(static_cast<float>(spec_->n_embd));
    ahead_in = ggml_scale(ctx, ggml_rms_norm(ctx, attended, spec_->rms_eps), unit);
    router_in = ggml_mul(ctx, ahead_in, w.router_scale);
  }
  Output(Linear(ctx, w.router, router_in, nullptr), StepBuffers::kRouter, rows.first);
  BuildLookAhead(layer, ahead_in, look_ahead, rows);
  // The shared expert's result, which is added to the experts' results, [rows][n_embd].
  if (w.shared_up != nullptr) {
    ggml_tensor* shared = SharedExpert(ctx, activation, w, ffn_in);
    if (spec_->residual_scale != 1.0F) shared = ggml_scale(ctx, shared, spec_->residual_scale);
    Output(shared, StepBuffers::kShared, rows.first);
  } else if (w.dense_up != nullptr) {  // a dense block beside the experts
    ggml_tensor* dense = DenseFfn(ctx, activation, w, ffn_in);
    dense = RmsNorm(ctx, dense, w.dense_post_norm, nullptr, spec_->rms_eps);
    Output(dense, StepBuffers::kShared, rows.first);
  }
}

// logits [rows][n_vocab] = output * norm(hidden), from row `at` of the logits on.
void LayerGraph::BuildHead(StepRows rows, uint32_t at) {
  ggml_context* ctx = graphs_.context();
  ggml_tensor* x = RmsNorm(ctx, Input(spec_->n_layer(), rows), tensors_->output_norm,
                           tensors_->output_norm_b, spec_->rms_eps);
  ggml_tensor* logits = Linear(ctx, tensors_->output, x, tensors_->output_b);
  if (spec_->logit_scale != 1.0F) logits = ggml_scale(ctx, logits, 1.0F / spec_->logit_scale);
  if (const float cap = spec_->logit_cap; cap > 0.0F) {
    ggml_tensor* capped = ggml_scale(ctx, ggml_tanh(ctx, ggml_scale(ctx, logits, 1.0F / cap)), cap);
    // NaN and infinity must not be capped: infinity less infinity is NaN.
    logits = ggml_add(ctx, capped, ggml_sub(ctx, logits, logits));
  }
  Output(logits, StepBuffers::kLogits, at);
}

}  // namespace moestro
