// SPDX-License-Identifier: MIT
#include "speed/planned_model.h"

#include <ggml.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string_view>
#include <utility>

#include "base/number.h"
#include "base/terminal.h"
#include "engine/plan/memory_plan.h"
#include "model/tensor_names.h"

namespace moestro {
namespace {

void Add(UseByType& uses, ggml_type type, uint64_t bytes, uint64_t weights) {
  WeightUse& use = uses[ggml_type_name(type)];
  use.bytes += bytes;
  use.weights += weights;
}

uint64_t WeightsOf(const TensorInfo& tensor) {
  return static_cast<uint64_t>(tensor.ne[0] * tensor.ne[1] * tensor.ne[2] * tensor.ne[3]);
}

// Adds the matrices of the layers from `first` on. Norms and biases are read too, but take no time
// beside matrices.
void AddDense(const ModelWeights& weights, size_t first, ModelNeeds& needs) {
  for (const TensorInfo* tensor : weights.dense_tensors()) {
    if (LayerOfTensorName(tensor->name).value_or(first) < first) continue;
    // A table of whole numbers names the experts of each token.
    const bool is_looked_up =
        (tensor == weights.token_embd && weights.output != weights.token_embd) ||
        tensor->type == GGML_TYPE_I32;
    if (is_looked_up || tensor->ne[1] == 1) continue;
    Add(needs.dense, tensor->type, tensor->extent.length, WeightsOf(*tensor));
  }
}

// The mean expert of each layer, K times.
void AddExperts(const LayerExperts& experts, uint32_t n_used, ModelNeeds& needs) {
  for (const ExpertMatrix& matrix : experts.matrices) {
    const size_t n = matrix.types.size();
    for (size_t e = 0; e < n; ++e) {
      const auto type = matrix.types[e];
      const uint64_t weights = uint64_t{matrix.n_in} * matrix.n_out;
      const uint64_t bytes = ggml_row_size(type, matrix.n_in) * matrix.n_out;
      Add(needs.experts, type, bytes * n_used / n, weights * n_used / n);
      needs.all_experts += bytes;
    }
  }
}

void SetMeanExpert(ModelNeeds& needs) {
  const uint64_t experts = needs.shape.experts();
  needs.expert_bytes = experts > 0 ? needs.all_experts / experts : 0;
}

}  // namespace

bool IsExpertsName(std::string_view name) { return name.contains("_exps"); }

ModelNeeds NeedsByName(const GgufFile& file, const std::string& family, const MoeShape& shape) {
  constexpr std::string_view kEmbedding = "token_embd.weight";
  constexpr std::string_view kTable = "per_layer_token_embd.weight";  // rows are looked up
  ModelNeeds needs{.family = family, .shape = shape, .n_layer = shape.n_layer};
  const bool is_tied = file.Find("output.weight") == nullptr;
  for (const TensorInfo& tensor : file.tensors()) {
    // As in AddDense().
    const bool is_looked_up = (tensor.name == kEmbedding && !is_tied) || tensor.name == kTable ||
                              tensor.type == GGML_TYPE_I32;
    if (tensor.ne[1] == 1 || is_looked_up) continue;
    if (!IsExpertsName(tensor.name)) {
      Add(needs.dense, tensor.type, tensor.extent.length, WeightsOf(tensor));
      continue;
    }
    needs.all_experts += tensor.extent.length;
    Add(needs.experts, tensor.type, tensor.extent.length * shape.n_used / shape.n_expert,
        WeightsOf(tensor) * shape.n_used / shape.n_expert);
  }
  SetMeanExpert(needs);
  return needs;
}

ModelNeeds NeedsOf(const ModelFile& model) {
  ModelNeeds needs{
      .family = model.spec.arch_name, .shape = model.id.shape, .n_layer = model.spec.n_layer()};
  // A token that is decoded goes through the decoder alone, and a prompt's through the encoder,
  // which is as deep.
  const size_t first = model.spec.encoder ? model.spec.encoder->n_layer : 0;
  needs.row_bytes = uint64_t{model.spec.n_embd_expert()} * sizeof(float);
  if (model.weights.ngram_table != nullptr) {
    needs.table_bytes = model.weights.ngram_table->extent.length;
    needs.table_rows = model.spec.ngrams->n_heads();
  }
  AddDense(model.weights, first, needs);
  for (size_t l = 0; l < model.weights.layers.size(); ++l) {
    AddExperts(model.weights.layers[l].experts, l >= first ? needs.shape.n_used : 0, needs);
  }
  SetMeanExpert(needs);
  needs.shape.n_layer -= std::exchange(needs.shape.n_encoder, 0);
  needs.n_layer -= static_cast<uint32_t>(first);
  return needs;
}

namespace {

// Estimates of libllama's buffers for a step and its process, as observed with models of 1 to 30
// billion parameters, for models that the engine cannot measure.
constexpr uint64_t kHostedWork = 320 * kMiB;
constexpr uint64_t kHostedProcess = 192 * kMiB;
constexpr uint64_t kMostPositionBytes = kGiB;

Status ReadNative(const ModelToLoad& model, const ContextWish& wish, PlannedModel& planned) {
  const ModelFile& file = model.native();
  const ModelSpec& spec = file.spec;
  planned.engine = "native";
  planned.title = spec.name.empty() ? spec.arch_name : spec.name + " (" + spec.arch_name + ")";
  planned.needs = NeedsOf(file);
  TRY(MemoryNeeds memory, MemoryNeeds::Of(file, wish));
  planned.catalog = std::move(memory.catalog);
  planned.needs.state_bytes = memory.remembers.state_bytes();
  planned.fixed = memory.fixed;
  return {};
}

// Finds the shape by the tensors: metadata may count layers without experts, and may differ between
// layers.
Result<MoeShape> HostedShape(const ModelToLoad& model) {
  constexpr uint32_t kMost = 4096;
  MoeShape shape{.n_used = model.id().shape.n_used};
  std::set<std::string> layers;
  for (const TensorInfo& tensor : model.gguf().tensors()) {
    if (!IsExpertsName(tensor.name) || tensor.ne[2] < 2) continue;
    const uint64_t experts = static_cast<uint64_t>(tensor.ne[2]);
    shape.n_expert =
        static_cast<uint32_t>(std::clamp<uint64_t>(experts, shape.n_expert, kMost + 1));
    layers.insert(tensor.name.substr(0, tensor.name.find("ffn_")));
  }
  shape.n_layer = static_cast<uint32_t>(layers.size());
  if (layers.empty()) {
    return Fail(Errc::kUnsupported, "{} has no experts: every program runs it as fast",
                model.id().name);
  }
  const bool is_sane = shape.n_layer <= kMost && shape.n_expert <= kMost && shape.n_used >= 1 &&
                       shape.n_used <= shape.n_expert;
  if (is_sane) return shape;
  return Fail(Errc::kUnsupported, "{}: {} of {} experts in {} layers are used, which no model does",
              model.id().name, shape.n_used, shape.n_expert, shape.n_layer);
}

Status ReadHosted(const ModelToLoad& model, const ContextWish& wish, PlannedModel& planned) {
  TRY(const MoeShape shape, HostedShape(model));
  planned.engine = "hosted";
  planned.title = Printable(model.arch_name());
  planned.refusal = model.refusal();
  planned.needs = NeedsByName(model.gguf(), planned.title, shape);
  const uint64_t part = planned.needs.expert_bytes / kMatrices;
  planned.catalog.pools = {{.slice_bytes = {part, part, planned.needs.expert_bytes - 2 * part},
                            .experts = uint64_t{shape.n_layer} * shape.n_expert}};
  TRY(const uint64_t position, model.PositionBytes(wish.kv_type));
  if (position > kMostPositionBytes) {
    return Fail(Errc::kInvalidFile,
                "{}: keys and values of a position take {}, which no model does", model.id().name,
                FormatBytes(position));
  }
  uint64_t dense = 0;
  for (const TensorInfo& tensor : model.gguf().tensors()) dense += tensor.extent.length;
  planned.fixed = {.dense = dense - planned.needs.all_experts,
                   .kv = position * planned.ctx,
                   .work = kHostedWork,
                   .process = kHostedProcess};
  return {};
}

}  // namespace

Result<PlannedModel> PlannedModel::Of(const ModelToLoad& model, const ContextWish& wish) {
  PlannedModel planned{.n_files = model.gguf().paths().size(),
                       .file_bytes = model.gguf().file_bytes(),
                       .ctx = std::min(wish.ctx, model.n_ctx_train())};
  TRY_STATUS(model.is_native() ? ReadNative(model, wish, planned)
                               : ReadHosted(model, wish, planned));
  return planned;
}

PlannedModel PlannedModel::Scaled(double times) const {
  const auto scale = [times](uint64_t& bytes) {
    constexpr double kMost = 0x1p50;  // limit, because sizes that a hub lists are not checked
    bytes = static_cast<uint64_t>(std::min(static_cast<double>(bytes) * times, kMost));
  };
  PlannedModel scaled = *this;
  scaled.fixed.smallest = 0;  // of another file
  scale(scaled.file_bytes);
  scale(scaled.fixed.dense);
  scale(scaled.needs.expert_bytes);
  scale(scaled.needs.all_experts);
  for (UseByType* uses : {&scaled.needs.dense, &scaled.needs.experts}) {
    for (auto& [type, use] : *uses) scale(use.bytes);
  }
  for (PoolShape& pool : scaled.catalog.pools) {
    for (uint64_t& bytes : pool.slice_bytes) scale(bytes);
  }
  return scaled;
}

// The smallest budget is the engine's own figure on this machine. Larger blocks add what they add
// to an estimate of that budget.
FixedMemory PlannedModel::FixedFor(uint64_t block) const {
  if (fixed.smallest == 0 || block == PlannedBlockHere()) return fixed;
  FixedMemory estimated = fixed;
  estimated.smallest = 0;
  const auto smallest = [&](uint64_t with) {
    return WhatFits(catalog, needs.shape.n_used, estimated, with).front().ram;
  };
  FixedMemory changed = fixed;
  changed.smallest += smallest(block) - smallest(PlannedBlockHere());
  return changed;
}

std::vector<Fit> PlannedModel::fits(uint64_t block) const {
  return WhatFits(catalog, needs.shape.n_used, FixedFor(block), block);
}

std::optional<Fit> PlannedModel::fit_in(uint64_t ram, uint64_t block) const {
  return FitIn(ram, catalog, needs.shape.n_used, FixedFor(block), block);
}

}  // namespace moestro
