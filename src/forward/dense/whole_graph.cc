// SPDX-License-Identifier: MIT
#include "forward/dense/whole_graph.h"

#include <algorithm>

#include "forward/dense/layer_rows.h"

namespace moestro {
namespace {

// The values of one layer in a region of values by layer.
template <class T>
std::span<const T> LayerOf(const StepBuffers& buffers, StepBuffers::Region region, uint64_t layer,
                           uint32_t rows, uint32_t width) {
  const uint64_t at = layer * buffers.WholeStride(rows, width);
  return {reinterpret_cast<const T*>(buffers.whole(region) + at), size_t{rows} * width};
}

}  // namespace

bool WholeGraph::Supports(const ModelSpec& spec) {
  return !spec.encoder && spec.MostOf(&FeedForwardSpec::n_latent) == 0;
}

uint64_t WholeGraph::BytesFor(const ModelSpec& spec, uint32_t chunk) {
  const uint64_t n_used = spec.router.n_used;
  const uint64_t n_ff = spec.MostOf(&FeedForwardSpec::n_ff_expert);
  // Values of a row: gate, up and their product, results and weighted results; some rows and
  // logits.
  const uint64_t values = n_used * (3 * n_ff + 2 * spec.n_embd) + 8 * uint64_t{spec.n_embd} +
                          4 * uint64_t{spec.router.n_expert};
  return chunk * values * sizeof(float);
}

Status WholeGraph::Reserve(uint32_t rows, KvType type) {
  if (parts_.nodes.mixers().size() > 2) {
    return Fail(Errc::kDevice, "layers of more than two kinds of attention");
  }
  n_rows_ = most_rows_ = rows;
  const auto n_layer = static_cast<uint16_t>(parts_.spec.n_layer());
  for (uint16_t first = 0; first < n_layer; ++first) {  // a run begins anywhere
    run_ = {.first = first,
            .end = static_cast<uint16_t>(std::min<uint32_t>(n_layer, first + kTogether))};
    parts_.graphs.Begin();
    Build(run_, true, {.count = rows});
    TRY_STATUS(CheckComputes(&parts_.link.device(), parts_.graphs.graph(), type));
    TRY_STATUS(parts_.graphs.Reserve());
  }
  return {};
}

uint16_t WholeGraph::LayersFrom(LayerRange layers, size_t n_rows) const {
  if (n_rows > most_rows_) return 0;
  const ModelSpec& spec = parts_.spec;
  uint16_t n = 0;
  uint16_t whole = 0;  // layers up to the last whole one
  for (; layers.first + n < layers.end; ++n) {
    const LayerId layer{static_cast<uint16_t>(layers.first + n)};
    if (!spec.has_experts(layer.value)) continue;
    if (!parts_.whole.has(spec.expert_layer(layer))) return whole;
    whole = n + 1;
  }
  return whole > 0 ? n : 0;
}

Status WholeGraph::Begin(LayerRange layers, uint32_t n_rows) {
  TRY_STATUS(parts_.whole.BeginLaunch());
  run_ = layers;
  launched_ = layers.first;
  n_rows_ = n_rows;
  return {};
}

// The end of the graph of the run that begins with the layer. Few rows: the first graphs have one
// layer and two, since the device idles while the host records the first.
uint16_t WholeGraph::EndOfGraph(uint16_t first) const {
  const auto before = static_cast<uint16_t>(first - run_.first);
  const bool is_short = has_few_rows(n_rows_) && before < 2;
  const auto n = static_cast<uint16_t>(is_short ? before + 1 : kTogether);
  return std::min<uint16_t>(first + n, run_.end);
}

// The end of the part of the run that begins with the layer, which ends with a graph. Few rows: the
// last sixth of the layers is a part, long enough for the decisions of the others, and a part costs
// a submission. Many rows: a graph.
uint16_t WholeGraph::EndOfPart(uint16_t first) const {
  uint16_t end = EndOfGraph(first);
  if (!has_few_rows(n_rows_)) return end;
  if (first != run_.first) return run_.end;
  constexpr uint16_t kShareOfLast = 6;
  const auto most = static_cast<uint16_t>(run_.end - (run_.end - run_.first) / kShareOfLast);
  while (end < run_.end && EndOfGraph(end) <= most) end = EndOfGraph(end);
  return end;
}

Result<LayerRange> WholeGraph::LaunchNext() {
  const LayerRange part{.first = launched_, .end = EndOfPart(launched_)};
  const StepRows rows{.count = n_rows_};
  while (launched_ < part.end) {
    const LayerRange together{.first = launched_, .end = EndOfGraph(launched_)};
    const bool is_first = launched_ == run_.first;
    const GraphCache::Key key{.first = run_.first,
                              .rows = n_rows_,
                              .visited = VisitedByAll(),
                              .whole = uint32_t{together.end} - together.first,
                              .slots = parts_.whole.version()};
    TRY_STATUS(parts_.graphs.Run(launched_, key, [&] { Build(together, is_first, rows); }));
    launched_ = together.end;
  }
  return part;
}

uint64_t WholeGraph::IndexOf(LayerId layer) const {
  const ModelSpec& spec = parts_.spec;
  const uint64_t index = spec.expert_layers_before(layer.value);
  if (has_few_rows(n_rows_)) return index - spec.expert_layers_before(run_.first);
  static_assert(StepBuffers::kLayersOfMany >= 2 * kTogether);
  const auto part = static_cast<uint16_t>((layer.value - run_.first) / kTogether);
  return part % 2 * uint64_t{kTogether} + index -
         spec.expert_layers_before(run_.first + part * kTogether);
}

// The cells that each mixer visits, of at most two that differ; more would need a longer key.
uint64_t WholeGraph::VisitedByAll() const {
  uint64_t all = 0;
  for (const auto& mixer : parts_.nodes.mixers()) all = all << 32U | mixer->visited();
  return all;
}

// Adds the nodes of layers, the first of which begin the run.
void WholeGraph::Build(LayerRange layers, bool is_first, StepRows rows) {
  if (is_first) KeepBegin(rows);
  LayerEnd before;
  for (uint16_t l = layers.first; l < layers.end; ++l) {
    before = BuildLayer(LayerId{l}, rows, before);
  }
  if (!parts_.spec.has_experts(layers.end - 1U)) return;  // the dense block has its place
  parts_.nodes.Output(before.hidden, StepBuffers::kHidden, 0);
}

// Stage: copies of the rows as they come in, for GoBack().
void WholeGraph::KeepBegin(StepRows rows) {
  ggml_context* ctx = parts_.graphs.context();
  for (size_t i = 0; i < RegionsBetween(); ++i) {
    ggml_tensor* from = parts_.nodes.Region(StepBuffers::kBetweenLayers[i], rows);
    ggml_tensor* to = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, from->ne[0], from->ne[1]);
    parts_.buffers.Place(to, StepBuffers::kWholeBegin, i * ggml_nbytes(to));
    ggml_build_forward_expand(parts_.graphs.graph(), ggml_cpy(ctx, from, to));
  }
}

WholeGraph::LayerEnd WholeGraph::BuildLayer(LayerId layer, StepRows rows, const LayerEnd& before) {
  const ModelSpec& spec = parts_.spec;
  ggml_context* ctx = parts_.graphs.context();
  // Stage: dense part, hidden -> attended, expert_in, shared [rows][n_embd], logits [rows][E].
  const uint64_t index = IndexOf(layer);
  const auto at = [&](uint32_t width) {
    return index * parts_.buffers.WholeStride(rows.count, width);
  };
  const RouterSpec& router = spec.router;
  const DenseNodes::LayerValues values = parts_.nodes.Layer(
      layer, rows, {.logits = StepBuffers::kWholeLogits, .logits_at = at(router.n_expert)}, before);
  if (!spec.has_experts(layer.value)) return {.hidden = values.hidden};
  // Stage: choice, logits -> slots and weights [rows][K].
  const ExpertLayerId id = spec.expert_layer(layer);
  const WholeLayers::Choice choice =
      parts_.whole.AddChoice(ctx, id, values.logits, !has_few_rows(rows.count));
  parts_.nodes.OutputAt(choice.slots != nullptr ? choice.slots : choice.order,
                        StepBuffers::kWholeSlots, at(WidthOfNumbers(rows.count)));
  parts_.nodes.OutputAt(choice.weights, StepBuffers::kWholeWeights, at(router.n_used));
  if (choice.clear != nullptr) {
    parts_.nodes.OutputAt(choice.clear, StepBuffers::kWholeClear, at(1));
  }
  // Stage: y [rows][K][n_embd] -> their sum in router order, then shared, then residual.
  ggml_tensor* y =
      parts_.whole.AddExperts(ctx, parts_.graphs.graph(), id, values.expert_in, choice);
  const auto of = [&](uint64_t k) {
    return ggml_view_2d(ctx, y, y->ne[0], y->ne[2], y->nb[2], k * y->nb[1]);
  };
  ggml_tensor* sum = of(0);
  for (uint64_t k = 1; k < router.n_used; ++k) sum = ggml_add(ctx, sum, of(k));
  if (router.n_used == 1) sum = ggml_cont(ctx, sum);
  if (values.shared != nullptr && !spec.adds_shared_in_next(layer.value)) {
    sum = ggml_add(ctx, sum, values.shared);
  }
  if (!spec.ends_in_next(layer.value)) sum = ggml_add(ctx, sum, values.attended);
  return {.hidden = sum, .residual = values.attended, .shared = values.shared};
}

std::vector<Border::Read> WholeGraph::ReadsOf(LayerRange part) const {
  std::vector<Border::Read> reads;
  const uint64_t first = IndexOf(LayerId{part.first});
  const uint64_t n =
      parts_.spec.expert_layers_before(part.end) - parts_.spec.expert_layers_before(part.first);
  const auto add = [&](StepBuffers::Region region, uint32_t width) {
    const uint64_t stride = parts_.buffers.WholeStride(n_rows_, width);
    if (n > 0) reads.push_back(parts_.buffers.ToMemory(region, n * stride, first * stride));
  };
  if (has_few_rows(n_rows_)) {
    add(StepBuffers::kWholeLogits, parts_.spec.router.n_expert);
  } else {
    add(StepBuffers::kWholeClear, 1);
  }
  add(StepBuffers::kWholeSlots, WidthOfNumbers(n_rows_));
  add(StepBuffers::kWholeWeights, parts_.spec.router.n_used);
  return reads;
}

WholeGraph::Choice WholeGraph::ChoiceOf(LayerId layer) const {
  const RouterSpec& router = parts_.spec.router;
  const StepBuffers& from = parts_.buffers;
  const uint64_t index = IndexOf(layer);
  const bool are_experts = ReadsExperts(layer);
  Choice choice{
      .are_experts = are_experts,
      .numbers =
          LayerOf<int32_t>(from, StepBuffers::kWholeSlots, index, n_rows_, WidthOfNumbers(n_rows_))
              .first(size_t{n_rows_} * (are_experts ? router.n_expert : router.n_used)),
      .weights = LayerOf<float>(from, StepBuffers::kWholeWeights, index, n_rows_, router.n_used)};
  if (has_few_rows(n_rows_)) {
    choice.logits =
        LayerOf<float>(from, StepBuffers::kWholeLogits, index, n_rows_, router.n_expert);
  } else {
    choice.clear = LayerOf<float>(from, StepBuffers::kWholeClear, index, n_rows_, 1);
  }
  return choice;
}

bool WholeGraph::ReadsExperts(LayerId layer) const {
  return has_few_rows(n_rows_) && parts_.whole.lie_in_order(parts_.spec.expert_layer(layer));
}

Result<std::span<const float>> WholeGraph::LogitsOf(LayerId layer, uint32_t row) const {
  const uint64_t bytes = parts_.spec.router.n_expert * sizeof(float);
  const uint64_t at =
      IndexOf(layer) * parts_.buffers.WholeStride(n_rows_, parts_.spec.router.n_expert) +
      row * bytes;
  TRY_STATUS(parts_.link.Cross(
      {.reads = {parts_.buffers.ToMemory(StepBuffers::kWholeLogits, bytes, at)}}));
  return LayerOf<float>(parts_.buffers, StepBuffers::kWholeLogits, IndexOf(layer), n_rows_,
                        parts_.spec.router.n_expert)
      .subspan(size_t{row} * parts_.spec.router.n_expert, parts_.spec.router.n_expert);
}

Status WholeGraph::GoBack() const {
  Border border;
  parts_.buffers.AddWholeBegin(row_bytes(), RegionsBetween(), border);
  TRY_STATUS(parts_.link.Cross(border));
  Border back;
  for (size_t i = 1; i < RegionsBetween(); ++i) {
    back.writes.push_back(parts_.buffers.ToDevice(StepBuffers::kBetweenLayers[i], row_bytes()));
  }
  return parts_.link.Cross(back);
}

size_t WholeGraph::RegionsBetween() const {
  if (!parts_.nodes.BringsParts(run_.first)) return 1;
  return parts_.spec.any_layer(&ModelSpec::has_shared_result) ? 3 : 2;
}

}  // namespace moestro
