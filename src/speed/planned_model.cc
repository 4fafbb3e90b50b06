// SPDX-License-Identifier: MIT
#include "speed/planned_model.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/bytes.h"
#include "base/printable.h"
#include "engine/plan/memory_plan.h"

namespace moestro {
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

std::vector<Fit> PlannedModel::fits() const {
  return WhatFits(catalog, needs.shape.n_used, fixed, kPlannedBlock);
}

std::optional<Fit> PlannedModel::fit_in(uint64_t ram) const {
  return FitIn(ram, catalog, needs.shape.n_used, fixed, kPlannedBlock);
}

}  // namespace moestro
