// SPDX-License-Identifier: MIT
#include "offline/speed/planned_model.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/format.h"
#include "engine/plan/memory_plan.h"
#include "native/catalog.h"
#include "native/joined_keys.h"
#include "native/plan/prompt_chunk.h"

namespace moestro {
namespace {

// libllama's buffers for a step and its process, as seen with models of 1 to 30 billion
// parameters.
constexpr uint64_t kHostedWork = 320 * kMiB;
constexpr uint64_t kHostedProcess = 192 * kMiB;

Status ReadNative(const ModelToLoad& model, const ContextWish& wish, PlannedModel& planned) {
  const ModelFile& file = model.native();
  const ModelSpec& spec = file.spec;
  planned.engine = "native";
  planned.title = spec.name.empty() ? spec.arch_name : spec.name + " (" + spec.arch_name + ")";
  planned.needs = NeedsOf(file);
  planned.catalog = MakeCatalog(file.weights);
  const uint32_t chunk = std::min(ChunkFor(wish.chunk, spec.router), planned.ctx);
  TRY(const MemoryShape remembers, MemoryShape::Of(spec, wish.kv_type));
  const uint64_t dense = file.weights.dense_bytes() + JoinedKeys::BytesFor(spec, file.weights);
  planned.fixed = EstimateFixed(spec, dense, planned.ctx, remembers, chunk);
  return {};
}

Status ReadHosted(const ModelToLoad& model, const ContextWish& wish, PlannedModel& planned) {
  const MoeShape& shape = model.id().shape;
  planned.engine = "hosted";
  planned.title = model.arch_name();
  planned.refusal = model.refusal();
  planned.needs = NeedsByName(model.gguf(), model.arch_name(), shape);
  if (planned.needs.all_experts == 0) {
    return Fail(Errc::kUnsupported, "{} has no experts: every program runs it as fast",
                model.id().name);
  }
  const uint64_t part = planned.needs.expert_bytes / kMatrices;
  planned.catalog.pools = {{.slice_bytes = {part, part, planned.needs.expert_bytes - 2 * part},
                            .experts = uint64_t{shape.n_layer} * shape.n_expert}};
  TRY(const uint64_t position, model.PositionBytes(wish.kv_type));
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
    bytes = static_cast<uint64_t>(static_cast<double>(bytes) * times);
  };
  PlannedModel scaled = *this;
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
