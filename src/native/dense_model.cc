// SPDX-License-Identifier: MIT
#include "native/dense_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/terminal.h"
#include "devices/device_probe.h"
#include "devices/local_transport.h"
#include "forward/dense/attended_cells.h"
#include "forward/dense/attention.h"
#include "forward/dense/dense_probes.h"
#include "forward/dense/whole_graph.h"
#include "native/catalog.h"
#include "native/device_setup.h"

namespace moestro {

DenseReads DenseReads::Of(const ModelWeights& weights, const ModelSpec& spec,
                          const MemoryShape& remembers) {
  const uint64_t table = weights.token_embd->extent.length;
  const uint64_t head = weights.output->extent.length;
  // A tied output is the table of embeddings, which counts once.
  const uint64_t apart = spec.tied_output ? head : head + table;
  return {.weights = weights.dense_bytes() - apart,
          .head = head,
          .embedding = table / spec.n_vocab,
          .position = remembers.position_bytes(),
          .state = 2 * remembers.state_bytes()};
}

uint64_t DenseReads::OfPass(std::span<const BatchRow> rows) const {
  std::map<SequenceId, uint32_t> visited;
  for (const BatchRow& row : rows) {
    uint32_t& length = visited[row.sequence];
    length = std::max(length, row.position + 1);
  }
  uint64_t bytes = weights + rows.size() * embedding;
  if (std::ranges::contains(rows, true, &BatchRow::wants_logits)) bytes += head;
  for (const auto& [sequence, length] : visited) bytes += length * position + state;
  return bytes;
}

namespace {

uint64_t RouterBytes(const ModelSpec& spec) {
  return LookAheadRouters::BytesFor(LookAheadRouters::Shape::Of(spec));
}

}  // namespace

Result<std::unique_ptr<DenseModel>> DenseModel::Create(const OpenedModel& opened, Team& team,
                                                       StopSignal& stop, Device* first) {
  std::unique_ptr<DenseModel> part(new DenseModel(opened, team, stop));
  const ModelFile& model = opened.model;
  part->reads_ = DenseReads::Of(model.weights, model.spec, opened.remembers);
  if (first != nullptr && !opened.options.device.dense_on_cpu) {
    const Status there = part->PutOn(*first);
    if (there) return part;
    LogWarning("{}; the CPU computes the dense part", there.error().message);
    part->LetGo();
    first->plan() = DeviceBudget{.info = first->info()};
  }
  TRY_STATUS(part->Build(nullptr));
  return part;
}

Status DenseModel::TakeStates(uint64_t room, uint32_t known) {
  if (n_states_ == 0) return {};
  n_states_ = known > 0 ? known : n_states_ + FurtherStates(room, opened_.remembers.state_bytes());
  TRY(states_, StateStore::Allocate(opened_.remembers, n_states_));
  return {};
}

Status DenseModel::MoveToCpu() {
  LetGo();
  return Build(nullptr);
}

void DenseModel::LetGo() {
  graph_.reset();
  table_.reset();
  look_ahead_routers_ = {};
  kv_ = {};
  buffers_ = {};
}

Status DenseModel::PutOn(Device& first) {
  const ComputeDevice& there = *first.here();
  weights_ = PlanDenseOn(there.backend(), *opened_.cpu, opened_.model.weights);
  whole_rows_ = RowsOfWhole(first.vram());
  TRY_STATUS(CheckRoom(first));
  TRY_STATUS(Build(first.link()));
  DeviceBudget& plan = first.plan();
  plan.dense = weights_.device.set.bytes();
  plan.kv = KvCache::BytesFor(opened_.remembers, kv_.cells(), there.backend());
  plan.bytes = BytesOn(there) + graph_->work_bytes();
  return Try(there);
}

// Allocates all buffers and makes the graph. `link`: to the first device, for which weights are
// planned already; null: the CPU.
Status DenseModel::Build(DeviceLink* link) {
  const ModelSpec& spec = opened_.model.spec;
  const EnginePlan& plan = opened_.plan;
  ggml_backend_t backend = link != nullptr ? link->device().backend() : nullptr;
  if (link == nullptr) {
    weights_ = PlanDense(
        *opened_.cpu, opened_.model.weights,
        {.allow_repack = opened_.options.repack, .rows_alike = !opened_.options.fast_batches});
  }
  TRY_STATUS(weights_.Allocate());
  TRY(buffers_, StepBuffers::Allocate(spec, limits(backend != nullptr), backend));
  TRY(kv_, KvCache::Allocate(opened_.remembers, LayerGraph::CellsFor(plan.cells, link != nullptr),
                             backend));
  TRY(states_, StateStore::Allocate(opened_.remembers, n_states_));
  if (plan.look_ahead > 0) {
    TRY(look_ahead_routers_, LookAheadRouters::Allocate(LookAheadRouters::Shape::Of(spec), backend,
                                                        &opened_.cpu->team_time()));
  }
  tensors_ = TensorsByRole(weights_, opened_.model.weights);
  TRY(joined_keys_, JoinedKeys::Allocate(spec, opened_.model.weights, tensors_));
  layers_ = LayerFormsOf(spec, tensors_);
  if (const auto sizes = opened_.TableSizes()) {
    TRY(table_,
        TableRows::Create(*sizes, *opened_.table_reader, opened_.paths(), opened_.options.clock));
  }
  TRY(graph_,
      LayerGraph::Create({.team = team_,
                          .spec = spec,
                          .tensors = tensors_,
                          .buffers = buffers_,
                          .kv = kv_,
                          .states = states_,
                          .clock = opened_.options.clock,
                          .look_ahead = plan.look_ahead > 0 ? &look_ahead_routers_ : nullptr,
                          .link = link,
                          .stop = &stop_,
                          .make_state_mixer = opened_.options.make_state_mixer,
                          .table = table_.get(),
                          .table_type = opened_.table_type()},
                         plan.n_ctx, plan.chunk, plan.logits_rows));
  return {};
}

StepLimits DenseModel::limits(bool is_there) const {
  return {.chunk = opened_.plan.chunk,
          .logits_rows = opened_.plan.logits_rows,
          .look_ahead = opened_.plan.look_ahead,
          .whole_rows = is_there ? whole_rows_ : 0};
}

// Rows of steps whose layers the device may compute whole, at most (DeviceSetup decides): a chunk
// if all experts may fit on the device, or if the values of a chunk are a small share of the bytes
// that may be used there; else few rows.
uint32_t DenseModel::RowsOfWhole(uint64_t vram) const {
  if (!opened_.options.device.runs_whole_layers) return 0;
  constexpr uint64_t kShareOfChunk = 32;
  const uint32_t chunk = opened_.plan.chunk;
  const bool has_room = opened_.catalog.total_bytes() <= vram ||
                        WholeGraph::BytesFor(opened_.model.spec, chunk) <= vram / kShareOfChunk;
  return has_room ? chunk : std::min(chunk, StepBuffers::kFewRows);
}

void DenseModel::AddTo(FixedBytes& fixed) const {
  const ModelSpec& spec = opened_.model.spec;
  const EnginePlan& plan = opened_.plan;
  const bool is_there = is_on_device();
  const uint64_t routers = plan.look_ahead > 0 && !is_there ? RouterBytes(spec) : 0;
  fixed.dense += weights_.host.set.bytes() + JoinedKeys::BytesFor(spec, opened_.model.weights);
  fixed.kv += (is_there ? 0 : KvCache::BytesFor(opened_.remembers, plan.cells)) +
              StateStore::BytesFor(opened_.remembers, n_states_);
  fixed.work += routers + StepBuffers::BytesFor(spec, limits(is_there)) +
                (is_there ? 0 : graph_->work_bytes()) + graph_->node_bytes() +
                MultiplyScratch(spec, plan.chunk);
  if (const auto sizes = opened_.TableSizes()) {
    fixed.work += TableRows::BytesFor(*sizes, opened_.planned_block());
  }
  fixed.thread += is_there ? 0 : graph_->thread_bytes();
  fixed.staging += weights_.staging_bytes;
}

Status DenseModel::Load(ReadQueue& queue, Team& team, const Progress& report, KnownWeights& known) {
  if (!known.id) known.id = KnownWeightsId(opened_.model, opened_.options.weights_folder);
  std::atomic<uint64_t> sum{0};
  // The sum is of the model without its predicting layer.
  const bool is_wanted = !known.id && !known.dense_sum && !opened_.model.spec.predicts();
  TRY_STATUS(LoadDense(
      weights_, queue, team, [&](uint64_t done, uint64_t total) { report("loading", done, total); },
      is_wanted ? &sum : nullptr));
  if (is_wanted) known.dense_sum = sum.load();
  joined_keys_.Fill(tensors_);
  TRY_STATUS(CheckSilentValues());
  TRY_STATUS(CheckScoresThere());
  if (opened_.plan.look_ahead == 0) return {};
  std::vector<const ggml_tensor*> routers;
  std::vector<const ggml_tensor*> scales;
  for (const LayerTensors& layer : tensors_.layers) {
    if (layer.router == nullptr) continue;
    routers.push_back(layer.router);
    scales.push_back(layer.router_scale);
  }
  return look_ahead_routers_.Fill(routers, scales);
}

// Checks the matrices that scores are made of in the device's memory: attention kernels of a device
// may take a score that is NaN for a masked one (Mesa's software device does).
Status DenseModel::CheckScoresThere() const {
  if (weights_.device.tensors.empty()) return {};
  for (size_t l = 0; l < tensors_.layers.size(); ++l) {
    const LayerTensors& there = tensors_.layers[l];
    const LayerWeights& file = opened_.model.weights.layers[l];
    for (const auto& [loaded, info] : {std::pair{there.attn_q, file.attn_q},
                                       {there.attn_k, file.attn_k},
                                       {there.attn_v, file.attn_v},
                                       {there.attn_qkv, file.attn_qkv},
                                       {there.latent_q_a, file.latent_q_a},
                                       {there.latent_q_b, file.latent_q_b},
                                       {there.latent_kv_a, file.latent_kv_a},
                                       {there.latent_k_b, file.latent_k_b}}) {
      if (loaded == nullptr) continue;
      TRY(const bool is_sound, IsSound(loaded));
      if (is_sound) continue;
      return Fail(Errc::kInvalidFile, "{}: tensor '{}' holds NaN or infinity; the file is damaged",
                  opened_.model.gguf.paths()[info->extent.file], info->name);
    }
  }
  return {};
}

// Checks that each token has experts that exist, each once.
Status DenseModel::CheckExpertsOfTokens(const ggml_tensor& table, const TensorInfo& info) const {
  const auto n_expert = static_cast<int32_t>(opened_.model.spec.router.n_expert);
  const auto n_used = static_cast<size_t>(table.ne[0]);
  const std::span numbers(static_cast<const int32_t*>(table.data),
                          static_cast<size_t>(ggml_nelements(&table)));
  for (size_t first = 0; first < numbers.size(); first += n_used) {
    const auto experts = numbers.subspan(first, n_used);
    for (size_t k = 0; k < n_used; ++k) {
      const bool is_there = experts[k] >= 0 && experts[k] < n_expert;
      if (is_there && !std::ranges::contains(experts.first(k), experts[k])) continue;
      return Fail(Errc::kInvalidFile,
                  "{}: tensor '{}' names expert {} of {} for token {}, or names it twice; the file "
                  "is damaged",
                  opened_.model.gguf.paths()[info.extent.file], info.name, experts[k], n_expert,
                  first / n_used);
    }
  }
  return {};
}

// Checks all vectors, where NaN would go unnoticed: in a router's bias NaN would choose experts, in
// a score of attention NaN would take a position out of the softmax, and in a state's decay NaN
// would stay in the state.
Status DenseModel::CheckSilentValues() const {
  Status sound;
  const auto look = [&](const TensorRole& role, ggml_tensor* loaded, const TensorInfo* info) {
    if (sound && loaded != nullptr && role.kind == TensorKind::kNumbers) {
      sound = CheckExpertsOfTokens(*loaded, *info);
    }
    if (!sound || loaded == nullptr || role.kind != TensorKind::kVector) return;
    if (loaded->type != GGML_TYPE_F32) return;
    std::vector<float> values(static_cast<size_t>(ggml_nelements(loaded)));
    sound = CopyFrom(loaded, 0, std::as_writable_bytes(std::span(values)));
    if (!sound) return;
    if (std::ranges::none_of(values, [](float value) { return std::isnan(value); })) return;
    sound = Fail(Errc::kInvalidFile, "{}: tensor '{}' holds NaN; the file is damaged",
                 opened_.model.gguf.paths()[info->extent.file], info->name);
  };
  ForEachModelRole(look, tensors_, opened_.model.weights);
  for (size_t l = 0; l < tensors_.layers.size(); ++l) {
    ForEachLayerRole(look, tensors_.layers[l], opened_.model.weights.layers[l]);
  }
  return sound;
}

// The share of bytes, since memory bandwidth bounds look-ahead and the dense part alike.
double DenseModel::look_ahead_share() const {
  const double routers =
      opened_.plan.look_ahead * static_cast<double>(RouterBytes(opened_.model.spec));
  return routers / (routers + static_cast<double>(opened_.model.weights.dense_bytes()));
}

// Bytes of weights, keys, values and the buffers that cross the border between graphs.
uint64_t DenseModel::BytesOn(const ComputeDevice& there) const {
  const ModelSpec& spec = opened_.model.spec;
  const EnginePlan& plan = opened_.plan;
  ggml_backend_t backend = there.backend();
  const uint64_t routers = plan.look_ahead > 0 ? RouterBytes(spec) : 0;
  const CellCounts cells = LayerGraph::CellsFor(plan.cells, true);
  const uint64_t pairs = uint64_t{plan.chunk} * spec.router.n_used;
  return weights_.device.set.bytes() + KvCache::BytesFor(opened_.remembers, cells, backend) +
         routers + StepBuffers::BytesFor(spec, limits(true), backend) +
         LocalTransport::BytesThere(LaunchShapeOf(opened_, there), pairs);
}

// Checks that the device has room for the dense part and the experts of a token.
Status DenseModel::CheckRoom(const Device& first) const {
  const ExpertCatalog& catalog = opened_.catalog;
  uint64_t token = 0;
  for (uint32_t f = 0; f < catalog.forms.size(); ++f) {
    if (!first.computes(f)) continue;
    token =
        std::max(token, DevicePools::BytesFor(catalog.forms[f], opened_.model.spec.router.n_used));
  }
  const uint32_t cells = LayerGraph::CellsFor(opened_.plan.cells, true).all;
  const uint64_t needed = BytesOn(*first.here()) +
                          MaskedAttention::BytesFor(opened_.plan.chunk, cells) +
                          LocalTransport::WorkBytes(LaunchShapeOf(opened_, *first.here())) + token;
  if (needed <= first.vram()) return {};
  return Fail(Errc::kDevice,
              "the dense part and a token's experts take {}, of which {} may be used on {}",
              FormatBytes(needed), FormatBytes(first.vram()), first.info().name);
}

// Compares the device with the CPU: products of each type of matrix, then attention of this model's
// heads. The numbers of rows include one whose last tile is not whole.
Status DenseModel::Try(const ComputeDevice& there) const {
  std::set<ggml_type> types;
  for (const TensorInfo* t : weights_.device.tensors) {
    if (t->ne[1] > 1) types.insert(t->type);
  }
  for (const ggml_type type : types) {
    for (const uint32_t rows : DeviceProbe::kRowsToTry) {
      TRY(const double difference, DenseDifference(there, *opened_.cpu, type, rows));
      const double most = MostDenseDifference(type);
      if (difference <= most) continue;
      return Fail(Errc::kDevice,
                  "{} multiplies {} with an error of {:.1e} (mean squares; {:.0e} is allowed)",
                  there.info().name, ggml_type_name(type), difference, most);
    }
  }
  const std::vector<LayerSpec>& layers = opened_.model.spec.layers;
  for (auto layer = layers.begin(); layer != layers.end(); ++layer) {
    const bool is_tried = std::find_if(layers.begin(), layer, [&](const LayerSpec& before) {
                            return before.mixer == layer->mixer;
                          }) != layer;
    if (is_tried) continue;
    if (const auto* attention = layer->attention(); attention != nullptr) {
      TRY_STATUS(TryAttention(there, AttentionShape::Of(*attention, kv_.type())));
    } else if (const auto* latent = layer->latent_attention(); latent != nullptr) {
      TRY_STATUS(TryAttention(there, AttentionShape::Of(*latent, kv_.type())));
    }
  }
  return {};
}

Status DenseModel::TryAttention(const ComputeDevice& there, const AttentionShape& shape) const {
  for (const uint32_t rows : {1U, DeviceProbe::kRowsToTry.back()}) {
    TRY(const double difference, AttentionDifference(there.backend(), shape, rows));
    if (difference <= kMostAttentionDifference) continue;
    return Fail(Errc::kDevice,
                "{} attends with an error of {:.1e} in a prompt of {} (mean squares; {:.0e} is "
                "allowed)",
                there.info().name, difference, rows, kMostAttentionDifference);
  }
  return {};
}

}  // namespace moestro
