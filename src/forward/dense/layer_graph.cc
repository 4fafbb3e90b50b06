// SPDX-License-Identifier: MIT
#include "forward/dense/layer_graph.h"

#include <ggml.h>

#include <algorithm>
#include <limits>
#include <ranges>
#include <utility>

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

// An indexer, and what it chooses from in a text of n positions.
struct Chooser {
  const IndexerSpec* spec = nullptr;
  uint32_t n = 0;
};

// The first indexer of a model, whose others choose as many positions; spec null: no layer has one.
Chooser ChooserOf(const ModelSpec& spec, uint32_t n_ctx) {
  for (const LayerSpec& layer : spec.layers) {
    const LatentAttentionSpec* latent = layer.latent_attention();
    if (latent != nullptr && latent->indexer) return {.spec = &*latent->indexer, .n = n_ctx};
    const AttentionSpec* attention = layer.attention();
    if (attention != nullptr && attention->chooses()) {
      return {.spec = &*attention->indexer, .n = n_ctx};
    }
    const PooledAttentionSpec* pooled = layer.pooled_attention();
    if (pooled != nullptr && pooled->indexer) {
      return {.spec = &*pooled->indexer, .n = n_ctx / pooled->n_pool};
    }
  }
  return {};
}

}  // namespace

Ngrams::Parts LayerGraph::NgramPartsOf(const Parts& parts) {
  return {.spec = parts.spec,
          .states = parts.states,
          .table = *parts.table,
          .type = parts.table_type,
          .stop = parts.stop};
}

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
      link_(parts.link),
      clock_(parts.clock),
      // A device computes all rows of a step at once. Rows of a source attend to later rows, whose
      // keys must be computed.
      piece_rows_(parts.link != nullptr || parts.spec.encoder
                      ? std::numeric_limits<uint32_t>::max()
                      : PieceRows(parts.tensors, parts.team.threads())),
      fetched_(parts.buffers, parts.spec.layers.size(),
               parts.spec.any_layer(&ModelSpec::has_shared_result)),
      graphs_({.team = parts.team,
               .link = parts.link,
               .stop = parts.stop,
               .places = parts.spec.layers.size() + (parts.spec.predicts() ? kBehind : kJoinLast),
               .max_nodes = parts.link != nullptr ? WholeGraph::kTogether * kMaxNodes : kMaxNodes}),
      nodes_({.spec = parts.spec,
              .tensors = parts.tensors,
              .buffers = parts.buffers,
              .kv = parts.kv,
              .graphs = graphs_,
              .ngrams = parts.table != nullptr ? &ngrams_.emplace(NgramPartsOf(parts)) : nullptr,
              .look_ahead = parts.look_ahead,
              .is_on_device = parts.link != nullptr}) {}

Result<std::unique_ptr<LayerGraph>> LayerGraph::Create(const Parts& parts, uint32_t n_ctx,
                                                       uint32_t chunk, uint32_t logits_rows) {
  std::unique_ptr<LayerGraph> graph(new LayerGraph(parts));
  if (parts.link != nullptr && parts.spec.MostOf(&FeedForwardSpec::n_latent) > 0) {
    return Fail(Errc::kDevice, "the dense part around latent experts is computed in memory");
  }
  if (parts.link != nullptr && parts.spec.encoder) {
    return Fail(Errc::kDevice, "encoders are computed in memory");
  }
  if (parts.link != nullptr && parts.spec.streams) {
    return Fail(Errc::kDevice, "several residual streams are mixed in memory");
  }
  if (parts.link != nullptr && parts.spec.predicts()) {
    return Fail(Errc::kDevice, "layers that predict further tokens are computed in memory");
  }
  // Tensors are placed at rows of hidden, so rows must be aligned.
  if (parts.link != nullptr && parts.spec.n_embd * sizeof(float) %
                                       BackendBuffer::AlignmentOf(parts.link->device().backend()) !=
                                   0) {
    return Fail(Errc::kDevice, "rows of {} values do not lie where {} wants them",
                parts.spec.n_embd, parts.link->device().info().name);
  }
  if (const Chooser chooser = ChooserOf(parts.spec, n_ctx); chooser.spec != nullptr) {
    if (parts.link != nullptr) {
      return Fail(Errc::kDevice, "positions that an indexer chooses are attended to in memory");
    }
    TRY(graph->chosen_, ChosenPositions::Create(chunk, *chooser.spec, chooser.n));
    graph->work_bytes_ = ChosenPositions::BytesFor(chunk, *chooser.spec, chooser.n);
  }
  TRY_STATUS(graph->nodes_.MakeMixers({.cpu = parts.team.device(),
                                       .spec = parts.spec,
                                       .tensors = parts.tensors,
                                       .kv = parts.kv,
                                       .states = parts.states,
                                       .device = DeviceOf(parts.link),
                                       .stop = parts.stop,
                                       .n_ctx = n_ctx,
                                       .chunk = chunk,
                                       .chosen = graph->chosen_.get()},
                                      parts.make_state_mixer));
  TRY_STATUS(graph->Reserve(chunk, logits_rows));
  graph->work_bytes_ += graph->graphs_.value_bytes();
  if (graph->ngrams_) graph->work_bytes_ += graph->ngrams_->work_bytes();
  for (const auto& mixer : graph->nodes_.mixers()) graph->work_bytes_ += mixer->work_bytes();
  return graph;
}

uint64_t LayerGraph::thread_bytes() const {
  uint64_t bytes = kProductStackBytes;
  for (const auto& mixer : nodes_.mixers()) bytes += mixer->thread_bytes();
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
  nodes_.SetStepRows(chunk);
  for (const auto& mixer : nodes_.mixers()) mixer->Assume(chunk);
  const uint32_t head_rows = std::min(chunk, logits_rows);
  graphs_.Begin();
  nodes_.Head({.count = link_ != nullptr ? head_rows : std::min(head_rows, kHeadRows)}, 0);
  TRY_STATUS(CheckComputes(DeviceOf(link_), graphs_.graph(), kv_->type()));
  TRY_STATUS(graphs_.Reserve());
  const std::vector<LayerSpec>& layers = spec_->layers;
  for (size_t l = 0; l < layers.size(); ++l) {
    const auto is_alike = [&](size_t other) {
      return layers[other] == layers[l] && nodes_.BringsParts(other) == nodes_.BringsParts(l);
    };
    if (std::ranges::any_of(std::views::iota(size_t{0}, l), is_alike)) continue;
    graphs_.Begin();
    const StepRows rows{.count = std::min(chunk, piece_rows_)};
    const bool may_add = link_ != nullptr && l > 0;
    (void)nodes_.Layer(LayerId{static_cast<uint16_t>(l)}, rows, {},
                       may_add ? nodes_.WithPartial(rows) : DenseNodes::LayerEnd());
    TRY_STATUS(CheckComputes(DeviceOf(link_), graphs_.graph(), kv_->type()));
    TRY_STATUS(graphs_.Reserve());
  }
  if (spec_->predicts()) {
    graphs_.Begin();
    nodes_.JoinPrediction({.count = std::min(chunk, piece_rows_)}, HiddenOf::kLast);
    TRY_STATUS(graphs_.Reserve());
  }
  if (!spec_->encoder) return {};
  const auto last = static_cast<uint16_t>(layers.size() - 1);  // attends to the source
  graphs_.Begin();
  nodes_.Source(LayerId{last}, {.count = chunk});
  return graphs_.Reserve();
}

Status LayerGraph::SetRows(std::span<const StepRow> rows) {
  if (ngrams_) ngrams_->Begin(rows);
  EmbedRows(*tensors_->token_embd, spec_->embedding_scale, rows, buffers_->hidden());
  is_hidden_there_ = has_partial_ = false;
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
  nodes_.SetStepRows(rows.size());
  head_run_ = {};
  TRY_STATUS(SetPositions());
  if (link_ == nullptr) return {};
  TRY_STATUS(link_->Finish());  // a step that failed may have left a launch behind
  Border border{
      .writes = {buffers_->ToDevice(StepBuffers::kPositions, rows.size() * sizeof(int32_t)),
                 buffers_->ToDevice(StepBuffers::kCells, rows.size() * sizeof(int64_t)),
                 buffers_->ToDevice(StepBuffers::kRecentCells, rows.size() * sizeof(int64_t))}};
  for (const auto& mixer : nodes_.mixers()) {
    mixer->SetRows(kv_->is_recent(nodes_.LayerOf(*mixer)) ? recent_ : visible_, border);
  }
  return link_->Cross(border);
}

Status LayerGraph::SetPositions() {
  for (const auto& mixer : nodes_.mixers()) {
    TRY_STATUS(mixer->SetPositions({buffers_->positions(), visible_.size()}));
  }
  return {};
}

Result<LayerGraph::RowsAside> LayerGraph::TakeRows(size_t n_others) {
  const size_t n = std::min(n_others, visible_.size());
  const size_t values = n * spec_->n_embd;
  const bool is_parted = spec_->any_layer(&ModelSpec::ends_in_next);
  const size_t residual = is_parted ? n * spec_->n_residual() : 0;
  const size_t weights = spec_->streams ? n * spec_->streams->n_weights() : 0;
  const bool has_shared = spec_->any_layer(&ModelSpec::adds_shared_in_next);
  std::vector<std::byte> ngrams;
  if (ngrams_) {
    TRY(ngrams, ngrams_->Take(n));
  }
  return RowsAside{
      .visible = visible_,
      .recent = recent_,
      .sources = sources_,
      .states = states_,
      .hidden = {buffers_->hidden(), buffers_->hidden() + values},
      .residual = {buffers_->residual(), buffers_->residual() + residual},
      .stream_weights = {buffers_->stream_weights(), buffers_->stream_weights() + weights},
      .shared = {buffers_->shared(), buffers_->shared() + (has_shared ? values : 0)},
      .positions = {buffers_->positions(), buffers_->positions() + n},
      .cells = {buffers_->cells(), buffers_->cells() + n},
      .recent_cells = {buffers_->recent_cells(), buffers_->recent_cells() + n},
      .chosen = chosen_ ? chosen_->Take(n) : ChosenPositions::SavedChoice(),
      .ngrams = std::move(ngrams)};
}

Status LayerGraph::GiveRows(const RowsAside& rows) {
  std::ranges::copy(rows.hidden, buffers_->hidden());
  std::ranges::copy(rows.residual, buffers_->residual());
  std::ranges::copy(rows.stream_weights, buffers_->stream_weights());
  std::ranges::copy(rows.shared, buffers_->shared());
  std::ranges::copy(rows.positions, buffers_->positions());
  std::ranges::copy(rows.cells, buffers_->cells());
  std::ranges::copy(rows.recent_cells, buffers_->recent_cells());
  if (chosen_) chosen_->Give(rows.chosen);
  if (ngrams_) ngrams_->Give(rows.ngrams);
  visible_ = rows.visible;
  recent_ = rows.recent;
  sources_ = rows.sources;
  states_ = rows.states;
  nodes_.SetStepRows(visible_.size());
  return SetPositions();
}

Status LayerGraph::Attend(LayerId layer, uint32_t look_ahead) {
  const double start = clock_();
  TRY_STATUS(ComputeLayer(layer, look_ahead));
  seconds_ += clock_() - start;
  return CheckFinite(layer);
}

Status LayerGraph::ComputeLayer(LayerId layer, uint32_t look_ahead) {
  const bool adds_partial = has_partial_;
  TRY_STATUS(adds_partial ? SendPartial() : SendHidden());
  const auto n_rows = static_cast<uint32_t>(visible_.size());
  if (ngrams_ && spec_->layers[layer.value].ngram_values > 0) TRY_STATUS(ngrams_->Finish());
  // Pieces run in order, since a row attends only to cells of earlier rows.
  for (uint32_t first = 0; first < n_rows;) {
    const StepRows rows{.first = first, .count = std::min(piece_rows_, n_rows - first)};
    Bind(layer, rows);
    // Graphs of a part of the rows are not kept: the step's number of rows is no part of the key.
    const Mixer* const mixer = nodes_.mixer_of(layer.value);
    const GraphCache::Key key{.rows = rows.count == n_rows ? n_rows : 0,
                              .look_ahead = look_ahead,
                              .visited = mixer != nullptr ? mixer->visited() : 0,
                              .adds_partial = adds_partial};
    TRY_STATUS(graphs_.Run(layer.value, key, [&] {
      (void)nodes_.Layer(layer, rows, {.look_ahead = look_ahead},
                         adds_partial ? nodes_.WithPartial(rows) : DenseNodes::LayerEnd());
    }));
    first += rows.count;
    if (ngrams_) ngrams_->Pump();
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
    TRY_STATUS(graphs_.Run(l, {}, [&] { nodes_.Source(LayerId{l}, rows); }));
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
  const StepRows all{.first = first_row, .count = n_rows};
  if (std::exchange(head_run_, {}) != all) TRY_STATUS(RunHead(all));
  return CheckLogits(*spec_, *buffers_, all);
}

Status LayerGraph::JoinPrediction(std::span<const StepRow> rows, HiddenOf from) {
  const double start = clock_();
  EmbedRows(*tensors_->token_embd, spec_->embedding_scale, rows, buffers_->ffn_in());
  const auto n_rows = static_cast<uint32_t>(rows.size());
  const size_t place = Place(from == HiddenOf::kLast ? kJoinLast : kJoinOwn);
  for (uint32_t first = 0; first < n_rows; first += piece_rows_) {
    const StepRows piece{.first = first, .count = std::min(piece_rows_, n_rows - first)};
    const GraphCache::Key key{.rows = piece.count == n_rows ? n_rows : 0};
    TRY_STATUS(graphs_.Run(place, key, [&] { nodes_.JoinPrediction(piece, from); }));
  }
  seconds_ += clock_() - start;
  return {};
}

Status LayerGraph::PredictionHead() {
  TRY_STATUS(graphs_.Run(Place(kPredictionHead), {.rows = 1},
                         [&] { nodes_.PredictionHead({.count = 1}); }));
  return CheckLogits(*spec_, *buffers_, {.count = 1});
}

Status LayerGraph::AddWhole(const WholeLayers& whole, uint32_t rows) {
  whole_.emplace(WholeGraph::Parts{.spec = *spec_,
                                   .buffers = *buffers_,
                                   .nodes = nodes_,
                                   .graphs = graphs_,
                                   .link = *link_,
                                   .whole = whole});
  nodes_.SetStepRows(rows);
  for (const auto& mixer : nodes_.mixers()) mixer->Assume(rows);
  const uint64_t before = graphs_.value_bytes();
  const Status reserved = whole_->Reserve(rows, kv_->type());
  work_bytes_ += graphs_.value_bytes() - before;
  if (!reserved) whole_.reset();
  return reserved;
}

Status LayerGraph::BeginWhole(LayerRange layers, StepRows head) {
  const double start = clock_();
  TRY_STATUS(SendHidden());
  head_run_ = {};
  whole_head_ = head;
  under_way_.clear();
  TRY_STATUS(whole_->Begin(layers, static_cast<uint32_t>(visible_.size())));
  TRY_STATUS(LaunchPart());
  seconds_ += clock_() - start;
  return {};
}

Status LayerGraph::LaunchPart() {
  TRY(const LayerRange part, whole_->LaunchNext());
  std::vector<Border::Read> reads = whole_->ReadsOf(part);
  const bool is_last = whole_->is_launched();
  if (is_last && whole_head_.count > 0) {
    TRY_STATUS(LaunchHead(whole_head_, 0));
    reads.push_back(buffers_->ToMemory(StepBuffers::kLogits, LogitsBytes(whole_head_.count)));
  }
  TRY(const uint64_t number, link_->QueueReads(std::move(reads), !is_last));
  under_way_.emplace_back(part, number);
  return {};
}

Result<LayerRange> LayerGraph::LandWhole() {
  const double start = clock_();
  if (!whole_->is_launched()) TRY_STATUS(LaunchPart());
  const auto [part, number] = under_way_.front();
  TRY_STATUS(link_->Land(number));
  under_way_.pop_front();
  if (under_way_.empty()) head_run_ = whole_head_;
  seconds_ += clock_() - start;
  return part;
}

Result<WholeGraph::Choice> LayerGraph::ChoiceOf(LayerId layer) {
  const WholeGraph::Choice choice = whole_->ChoiceOf(layer);
  if (choice.logits.empty()) return choice;
  std::ranges::copy(choice.logits, buffers_->router());
  TRY_STATUS(CheckFinite(layer));
  return choice;
}

Status LayerGraph::GoBack() {
  head_run_ = {};
  is_hidden_there_ = has_partial_ = false;
  return whole_->GoBack();
}

// Launches the nodes that give rows' logits, from row `at` of the logits on. A graph of later rows
// of logits is not kept: `at` is no part of the key.
Status LayerGraph::LaunchHead(StepRows rows, uint32_t at) {
  const GraphCache::Key key{.first = rows.first, .rows = at == 0 ? rows.count : 0};
  return graphs_.Run(Place(kHead), key, [&] { nodes_.Head(rows, at); });
}

Status LayerGraph::RunHead(StepRows all) {
  TRY_STATUS(SendHidden());
  const uint32_t together = link_ != nullptr ? all.count : kHeadRows;
  for (uint32_t at = 0; at < all.count; at += together) {
    TRY_STATUS(
        LaunchHead({.first = all.first + at, .count = std::min(together, all.count - at)}, at));
  }
  if (link_ == nullptr) return {};
  return link_->Cross(
      {.reads = {buffers_->ToMemory(StepBuffers::kLogits, LogitsBytes(all.count))}});
}

// Sends hidden to the device if it was computed in memory, or adds there the part that was.
Status LayerGraph::SendHidden() {
  if (link_ == nullptr) return {};
  if (has_partial_) {
    TRY_STATUS(SendPartial());
    const StepRows rows{.count = static_cast<uint32_t>(visible_.size())};
    return graphs_.Run(Place(kPartial), {.rows = rows.count, .adds_partial = true}, [&] {
      nodes_.Output(nodes_.WithPartial(rows).hidden, StepBuffers::kHidden, 0);
    });
  }
  if (std::exchange(is_hidden_there_, true)) return {};
  return link_->Cross({.writes = {buffers_->ToDevice(StepBuffers::kHidden, row_bytes())}});
}

Status LayerGraph::SendPartial() {
  has_partial_ = false;
  return link_->Cross({.writes = {buffers_->ToDevice(StepBuffers::kPartial, row_bytes())}});
}

bool LayerGraph::IsForTeam(LayerRange layers, size_t n_rows, uint32_t look_ahead) const {
  return graphs_.AreForTeam(layers.first, layers.end,
                            {.rows = static_cast<uint32_t>(n_rows), .look_ahead = look_ahead});
}

Status LayerGraph::FetchLogits(LayerId layer, uint32_t look_ahead) {
  const size_t n_expert = spec_->router.n_expert;
  const size_t n_rows = visible_.size();
  const uint32_t layers = nodes_.LayersAhead(layer, look_ahead);
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
  return link_ != nullptr ? fetched_.Fetch(FetchedRows::Which::kAll, row_bytes(), *link_)
                          : Status();
}

Status LayerGraph::FetchInputs() {
  return link_ != nullptr ? fetched_.Fetch(FetchedRows::Which::kInputs, row_bytes(), *link_)
                          : Status();
}

void LayerGraph::HiddenIsThere(bool has_partial) {
  is_hidden_there_ = true;
  has_partial_ = has_partial;
}

// The cells that rows attend to in a layer.
const std::vector<RowCells>& LayerGraph::CellsOf(LayerId layer) const {
  if (spec_->layers[layer.value].attends_to_source()) return sources_;
  return kv_->is_recent(layer.value) ? recent_ : visible_;
}

void LayerGraph::Bind(LayerId layer, StepRows rows) {
  if (ngrams_ && spec_->layers[layer.value].ngram_values > 0) {
    ngrams_->Bind(tensors_->layers[layer.value], layer.value, rows.first,
                  std::span(states_).subspan(rows.first, rows.count));
  }
  Mixer* const mixer = nodes_.mixer_of(layer.value);
  if (mixer == nullptr) return;
  const std::vector<RowCells>& visible = CellsOf(layer);
  mixer->Bind(tensors_->layers[layer.value],
              {.layer = layer,
               .first = rows.first,
               .visible = std::span(visible).subspan(rows.first, rows.count),
               .states = std::span(states_).subspan(rows.first, rows.count),
               .all = std::span(visible_).subspan(rows.first, rows.count)});
}

}  // namespace moestro
